//! Orders that a thread finds by itself.
//!
//! The thread that passes compares what it is doing with what the order is about, and is signalled on the spot. It runs
//! nothing of its own between the two, so that the signal reaches this request or nobody.

use atropos_common::op::Op;
use atropos_common::order::{OrderKey, OrderState, OrderValue};
use atropos_common::record::EventRecord;
use atropos_common::site::SiteSpec;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_send_signal_thread};
use aya_ebpf::programs::ProbeContext;

use crate::args::{Arguments, cookie};
use crate::maps::{ORDERS, SITES};
use crate::ops::guard_holds;
use crate::{counters, numbers, ring};

/// A place of orders was passed: carries out the one that waits for this thread, if there is one and its time is not over.
#[inline(always)]
pub(crate) fn find(ctx: &ProbeContext) -> Option<()> {
    let pid_tgid = bpf_get_current_pid_tgid();
    // Orders go by what the kernel counts.
    let key = OrderKey {
        pid: (pid_tgid >> 32) as u32,
        tid: pid_tgid as u32,
    };
    let order = ORDERS.get_ptr_mut(&key)?;
    // SAFETY: the pointer comes from a map lookup in this program run; only the thread that the order is for writes to it.
    let order = unsafe { &mut *order };
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    if order.state != OrderState::Waiting as u32 || now_ns >= order.deadline_ns {
        return None;
    }
    let site = cookie(ctx) as u32;
    let spec = SITES.get(site)?;
    counters::hit(site);
    let mut arguments = Arguments::of(ctx, numbers::in_target(pid_tgid));
    let at_work = guard_holds(&mut arguments, spec);
    let request = arguments.eval(&spec.value);
    if !arguments.known {
        order.unknown = order.unknown.wrapping_add(1);
        return None;
    }
    order.found_ns = now_ns;
    order.found_request = if at_work { request } else { 0 };
    order.state = if order.found_request == order.request {
        signal(&mut arguments, order, spec, site, key.pid)
    } else {
        OrderState::Missed
    } as u32;
    Some(())
}

/// Signals the current thread, and tells of it.
#[inline(always)]
fn signal(
    arguments: &mut Arguments<'_>,
    order: &OrderValue,
    spec: &SiteSpec,
    site: u32,
    pid: u32,
) -> OrderState {
    // SAFETY: the helper checks the number of the signal itself.
    if unsafe { bpf_send_signal_thread(order.signal) } != 0 {
        return OrderState::Refused;
    }
    let session = arguments.eval(&spec.session);
    ring::send(|| EventRecord {
        at_ns: order.found_ns,
        session,
        instance: 0,
        value: order.request,
        generation: 0,
        pid,
        tid: arguments.tid(),
        site: site as u16,
        resource: u16::MAX,
        op: Op::Killed as u8,
        flags: 0,
        reserved: [0; 6],
    });
    OrderState::Delivered
}
