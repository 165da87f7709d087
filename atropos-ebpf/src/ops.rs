//! What passing a site means, by operation.

use atropos_common::histogram::bucket_of;
use atropos_common::limits::{Loss, Since};
use atropos_common::op::Op;
use atropos_common::record::{EventRecord, OpenKey, OpenValue, SessionKey, SessionValue};
use atropos_common::site::{Cond, SiteSpec};
use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::programs::ProbeContext;

use crate::args::{Arguments, cookie};
use crate::maps::{OPEN, SESSIONS, SINCE, SITES};
use crate::{counters, numbers, ring, tasks, usage};

/// One passing of a site, with its arguments evaluated.
pub(crate) struct Pass {
    pub(crate) at_ns: u64,
    pub(crate) session: u64,
    pub(crate) instance: u64,
    pub(crate) value: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) resource: u16,
}

/// A site was passed: counts it, keeps the books, and sends a record if the site asks for one.
#[inline(always)]
pub(crate) fn pass(ctx: &ProbeContext) -> Option<()> {
    let pid_tgid = bpf_get_current_pid_tgid();
    let pid = (pid_tgid >> 32) as u32;
    if !tasks::counts(pid) {
        return None;
    }
    let site = cookie(ctx) as u32;
    let spec = SITES.get(site)?;
    if spec.flags & SiteSpec::ACTIVE == 0 {
        return None;
    }
    counters::hit(site);
    let ids = numbers::in_target(pid_tgid);
    let mut arguments = Arguments::of(ctx, ids);
    if !guard_holds(&mut arguments, spec) {
        return None;
    }
    let pass = Pass {
        // SAFETY: the helper has no preconditions.
        at_ns: unsafe { bpf_ktime_get_ns() },
        session: arguments.eval(&spec.session),
        instance: arguments.eval(&spec.instance),
        value: arguments.eval(&spec.value),
        pid,
        tid: ids as u32,
        resource: spec.resource,
    };
    let mut generation = 0;
    if arguments.known {
        generation = book(&pass, spec);
    } else {
        counters::lost(Loss::Argument);
    }
    if spec.flags & SiteSpec::EMIT != 0 {
        let flags = if arguments.known {
            0
        } else {
            EventRecord::ARG_UNKNOWN
        };
        emit(&pass, site as u16, spec.op, generation, flags);
    }
    Some(())
}

/// Whether the site counts this time.
#[inline(always)]
pub(crate) fn guard_holds(arguments: &mut Arguments<'_>, spec: &SiteSpec) -> bool {
    if spec.cond == Cond::Always as u8 {
        return true;
    }
    let equal = arguments.eval(&spec.guard) == spec.guard_value;
    // A guard that cannot be read does not hide the passing: it goes on as one with unknown arguments.
    !arguments.known || equal == (spec.cond == Cond::Equal as u8)
}

/// Keeps the maps in step with the passing; gives the generation of the session's request, 0 if none was seen or nobody is told:
/// to look the session up for its generation alone costs more than to count the passing.
#[inline(always)]
fn book(pass: &Pass, spec: &SiteSpec) -> u32 {
    let key = SessionKey {
        session: pass.session,
        pid: pass.pid,
        reserved: 0,
    };
    match spec.op {
        o if o == Op::RequestBegin as u8 => return request_begin(pass, &key),
        o if o == Op::RequestEnd as u8 => return request_end(pass, &key),
        o if o == Op::SessionEnd as u8 => {
            let _ = SESSIONS.remove(&key);
            return 0;
        }
        o if o == Op::Use as u8 => usage::brought_in(pass),
        o if o == Op::Evict as u8 => usage::driven_out(pass),
        o if o == Op::FetchBegin as u8 => usage::fetch_begin(pass),
        o if o == Op::FetchEnd as u8 => usage::fetch_end(pass),
        o if o == Op::Progress as u8 => work(pass, &key, true),
        o if o == Op::Work as u8 => work(pass, &key, false),
        o if spec.flags & SiteSpec::KEEP != 0 => keep(pass, o),
        _ => {}
    }
    if spec.flags & SiteSpec::EMIT == 0 {
        return 0;
    }
    SESSIONS.get_ptr(&key).map_or(0, |session| {
        // SAFETY: the pointer comes from a map lookup in this program run.
        unsafe { (*session).generation }
    })
}

/// Keeps waits and holds open from begin to end.
#[inline(always)]
fn keep(pass: &Pass, op: u8) {
    match op {
        o if o == Op::WaitBegin as u8 || o == Op::Enqueue as u8 => open_once(pass),
        o if o == Op::WaitEnd as u8 || o == Op::Dequeue as u8 => close(pass, false),
        o if o == Op::Acquire as u8 => open_again(pass),
        o if o == Op::Release as u8 => close(pass, true),
        _ => {}
    }
}

/// A request starts: the next generation of its session.
#[inline(always)]
fn request_begin(pass: &Pass, key: &SessionKey) -> u32 {
    if let Some(session) = SESSIONS.get_ptr_mut(key) {
        // SAFETY: the pointer comes from a map lookup in this program run; a session runs one request at a time.
        let session = unsafe { &mut *session };
        session.begin_ns = pass.at_ns;
        session.generation = session.generation.wrapping_add(1);
        session.tid = pass.tid;
        session.done = 0;
        session.work = 0;
        return session.generation;
    }
    let first = SessionValue {
        begin_ns: pass.at_ns,
        generation: first_generation(pass.at_ns),
        tid: pass.tid,
        done: 0,
        work: 0,
    };
    if SESSIONS.insert(key, &first, u64::from(BPF_ANY)).is_err() {
        counters::lost(Loss::Sessions);
        return 0;
    }
    first.generation
}

/// Number of the first request that is seen of a session: microseconds, so that it is none that another session had which was
/// called the same and is gone. They come again after 73 minutes, and are never 0, which is no number.
#[inline(always)]
fn first_generation(at_ns: u64) -> u32 {
    (at_ns >> 10) as u32 | 1
}

/// A request is over: its latency counts if its begin was seen in the current sample.
#[inline(always)]
fn request_end(pass: &Pass, key: &SessionKey) -> u32 {
    let Some(session) = SESSIONS.get_ptr_mut(key) else {
        return 0;
    };
    // SAFETY: the pointer comes from a map lookup in this program run; a session runs one request at a time.
    let session = unsafe { &mut *session };
    let begin_ns = session.begin_ns;
    session.begin_ns = 0;
    if begin_ns != 0 && begin_ns >= since_ns(Since::Requests) {
        counters::latency(bucket_of(pass.at_ns.saturating_sub(begin_ns)));
    }
    session.generation
}

/// A request tells how much it has done, or how much it has to do. Of one whose begin was not seen nothing is kept: it could be
/// told from the next one by nobody.
#[inline(always)]
fn work(pass: &Pass, key: &SessionKey, done: bool) {
    let Some(session) = SESSIONS.get_ptr_mut(key) else {
        return;
    };
    // SAFETY: the pointer comes from a map lookup in this program run; a session runs one request at a time.
    let session = unsafe { &mut *session };
    if session.begin_ns == 0 {
        return;
    }
    if done {
        session.done = pass.value;
    } else {
        session.work = pass.value;
    }
}

/// Since when what is kept is whole.
#[inline(always)]
pub(crate) fn since_ns(of: Since) -> u64 {
    SINCE.get(of as u32).copied().unwrap_or(0)
}

/// A wait starts. One that is announced again while it goes on keeps its first begin.
#[inline(always)]
fn open_once(pass: &Pass) {
    let value = OpenValue {
        since_ns: pass.at_ns,
        value: pass.value,
        depth: 1,
        tid: pass.tid,
    };
    if OPEN
        .insert(&open_key(pass, false), &value, u64::from(BPF_NOEXIST))
        .is_err()
        && OPEN.get_ptr(&open_key(pass, false)).is_none()
    {
        counters::lost(Loss::Open);
    }
}

/// A hold starts, or is entered once more.
#[inline(always)]
fn open_again(pass: &Pass) {
    let key = open_key(pass, true);
    if let Some(hold) = OPEN.get_ptr_mut(&key) {
        // SAFETY: the pointer comes from a map lookup in this program run; a hold is entered by its own session only.
        unsafe { (*hold).depth = (*hold).depth.wrapping_add(1) };
        return;
    }
    let value = OpenValue {
        since_ns: pass.at_ns,
        value: pass.value,
        depth: 1,
        tid: pass.tid,
    };
    if OPEN.insert(&key, &value, u64::from(BPF_ANY)).is_err() {
        counters::lost(Loss::Open);
    }
}

/// A wait or hold ends; a hold that was entered several times ends with the last.
#[inline(always)]
fn close(pass: &Pass, hold: bool) {
    let key = open_key(pass, hold);
    if hold && let Some(open) = OPEN.get_ptr_mut(&key) {
        // SAFETY: the pointer comes from a map lookup in this program run; a hold is left by its own session only.
        let depth = unsafe { &mut (*open).depth };
        if *depth > 1 {
            *depth -= 1;
            return;
        }
    }
    let _ = OPEN.remove(&key);
}

#[inline(always)]
fn open_key(pass: &Pass, hold: bool) -> OpenKey {
    OpenKey {
        session: pass.session,
        instance: pass.instance,
        pid: pass.pid,
        resource: pass.resource,
        hold: u8::from(hold),
        reserved: 0,
    }
}

/// Tells of a passing.
#[inline(always)]
fn emit(pass: &Pass, site: u16, op: u8, generation: u32, flags: u8) {
    ring::send(|| EventRecord {
        at_ns: pass.at_ns,
        session: pass.session,
        instance: pass.instance,
        value: pass.value,
        generation,
        pid: pass.pid,
        tid: pass.tid,
        site,
        resource: pass.resource,
        op,
        flags,
        reserved: [0; 6],
    });
}
