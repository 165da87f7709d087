//! Which processes count: exits and forks of those in scope.

use atropos_common::limits::{KNOWN_BLOCK, Loss};
use atropos_common::op::Op;
use atropos_common::record::{EventRecord, SessionKey};
use atropos_common::scope::Scope;
use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::programs::TracePointContext;

use crate::maps::{KNOWN, SCOPE, SESSIONS};
use crate::{counters, numbers, ring};

/// Offset of `pid` in the record of `task:task_newtask` (its format file says so; it follows the 8-byte common header).
const NEWTASK_PID: usize = 8;
/// Offset of `clone_flags` there: behind `pid` (4 bytes) and `comm` (16 bytes), aligned to 8.
const NEWTASK_CLONE_FLAGS: usize = 32;
/// The new task is a thread of its parent's process.
const CLONE_THREAD: u64 = 0x0001_0000;

/// Whether a process counts.
#[inline(always)]
pub(crate) fn counts(pid: u32) -> bool {
    let known = known(pid);
    // SAFETY: the pointer comes from a map lookup in this program run.
    if known.is_some_and(|known| unsafe { *known } != 0) {
        return true;
    }
    let counts = SCOPE.get_ptr(pid).is_some();
    if let (true, Some(known)) = (counts, known) {
        // SAFETY: as above. If the process leaves the scope at this very moment, the exit of its last thread clears it again.
        unsafe { *known = 1 };
    }
    counts
}

/// Where it is kept that a process counts.
#[inline(always)]
fn known(pid: u32) -> Option<*mut u8> {
    let block = KNOWN.get_ptr_mut(pid / KNOWN_BLOCK)?;
    // SAFETY: the pointer comes from a map lookup in this program run; the index is below the length of a block.
    Some(unsafe { &raw mut (*block)[(pid % KNOWN_BLOCK) as usize] })
}

/// Nothing is known of a process any more.
#[inline(always)]
fn forget(pid: u32) {
    if let Some(known) = known(pid) {
        // SAFETY: the pointer comes from a map lookup in this program run.
        unsafe { *known = 0 };
    }
}

/// The current thread exits: the agent closes what it held. When the leader goes, the process leaves the scope.
#[inline(always)]
pub(crate) fn exit() -> Option<()> {
    let pid_tgid = bpf_get_current_pid_tgid();
    let pid = (pid_tgid >> 32) as u32;
    if SCOPE.get_ptr(pid).is_none() {
        // Somebody may have found it in scope a moment before it left.
        forget(pid);
        return None;
    }
    let leader = pid == pid_tgid as u32;
    let tid = numbers::in_target(pid_tgid) as u32;
    // A session that is a thread or a process ends with it; one that is an object ends by its own probe, also where its number is
    // that of the thread by chance. The number of a process is nobody else's, whichever of its threads served last.
    let key = SessionKey {
        session: u64::from(tid),
        pid,
        reserved: 0,
    };
    let session = SESSIONS.get_ptr(&key);
    // SAFETY: the pointer comes from a map lookup in this program run.
    let is_namesake = !leader && session.is_some_and(|session| unsafe { (*session).tid } != tid);
    let mut flags = 0;
    if is_namesake {
        flags |= EventRecord::NOT_ITS_SESSION;
    } else {
        let _ = SESSIONS.remove(&key);
    }
    if leader {
        let _ = SCOPE.remove(&pid);
        forget(pid);
        flags |= EventRecord::PROCESS;
    }
    emit(Op::Exit, pid, tid, u64::from(tid), flags);
    Some(())
}

/// The current process made a task: a child process of one in scope comes into scope, if its parent's scope says so.
#[inline(always)]
pub(crate) fn new(ctx: &TracePointContext) -> Option<()> {
    let parent = (bpf_get_current_pid_tgid() >> 32) as u32;
    let scope = SCOPE.get_ptr(parent)?;
    // SAFETY: the pointer comes from a map lookup in this program run.
    let scope = unsafe { *scope };
    if scope.flags & Scope::FOLLOW_FORKS == 0 {
        return None;
    }
    // SAFETY: both offsets lie within the tracepoint's record.
    let (child, clone_flags) = unsafe {
        (
            ctx.read_at::<u32>(NEWTASK_PID).ok()?,
            ctx.read_at::<u64>(NEWTASK_CLONE_FLAGS).ok()?,
        )
    };
    if clone_flags & CLONE_THREAD != 0 {
        return None;
    }
    if SCOPE.insert(&child, &scope, u64::from(BPF_ANY)).is_err() {
        counters::lost(Loss::Scope);
        return None;
    }
    #[cfg(feature = "log")]
    aya_log_ebpf::debug!(ctx, "process {} came into scope behind {}", child, parent);
    emit(
        Op::Fork,
        child,
        child,
        u64::from(parent),
        EventRecord::PROCESS,
    );
    Some(())
}

/// Sends a record about a task; `session` is the exiting thread, or the parent of a new process.
#[inline(always)]
fn emit(op: Op, pid: u32, tid: u32, session: u64, flags: u8) {
    ring::send(|| EventRecord {
        // SAFETY: the helper has no preconditions.
        at_ns: unsafe { bpf_ktime_get_ns() },
        session,
        instance: 0,
        value: 0,
        generation: 0,
        pid,
        tid,
        site: u16::MAX,
        resource: u16::MAX,
        op: op as u8,
        flags,
        reserved: [0; 6],
    });
}
