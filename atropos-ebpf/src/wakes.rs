//! Who woke whom.

use atropos_common::wake::{WAKES_SITE, WakeKey, WakeValue};
use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::programs::TracePointContext;

use crate::maps::WAKES;
use crate::{counters, tasks};

/// Offset of `pid` in the record of `sched:sched_waking` (its format file says so; it follows the 8-byte common header and
/// `comm`, 16 bytes).
const WAKING_PID: usize = 24;

/// The current thread wakes another. A wake-up from an interrupt counts for whoever was interrupted: one more reason to take it
/// for a hint only.
#[inline(always)]
pub(crate) fn waking(ctx: &TracePointContext) -> Option<()> {
    let pid_tgid = bpf_get_current_pid_tgid();
    if !tasks::counts((pid_tgid >> 32) as u32) {
        return None;
    }
    counters::hit(u32::from(WAKES_SITE));
    // SAFETY: the offset lies within the tracepoint's record.
    let woken = unsafe { ctx.read_at::<u32>(WAKING_PID).ok()? };
    let key = WakeKey {
        waker: pid_tgid as u32,
        woken,
    };
    // SAFETY: the helper has no preconditions.
    let last_ns = unsafe { bpf_ktime_get_ns() };
    if let Some(wake) = WAKES.get_ptr_mut(&key) {
        // SAFETY: the pointer comes from a map lookup in this program run; only the waker itself writes to it.
        unsafe {
            (*wake).count = (*wake).count.wrapping_add(1);
            (*wake).last_ns = last_ns;
        }
        return Some(());
    }
    let first = WakeValue { count: 1, last_ns };
    // A full map makes room by itself; what is lost was a hint.
    let _ = WAKES.insert(&key, &first, u64::from(BPF_ANY));
    Some(())
}
