//! Ending a task by a signal, for applications whose sessions are processes or threads.
//!
//! A signal names a process or thread and not a task, and a number may be used again. So the process or thread is first pinned
//! by a pidfd: whatever is found out afterwards, the signal goes to that one or nobody. Then it must belong to the target: the
//! process itself, one that descends from it, or a thread of these. A process must be the one whose thread serves the session,
//! since in a server of many threads a session's number is a connection's and says nothing of processes. Last, the task is looked
//! at once more; it must still be what was meant, and must have begun when this process or thread was already there.

use std::fmt;
use std::fs;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};

use crate::engine::record::Task;
use crate::target::Process;

use super::{Answer, Initiator};

/// `PIDFD_THREAD` (Linux 6.9): the pidfd is for one thread. Has the value of `O_EXCL`.
const PIDFD_THREAD: u32 = 0o200;

/// Nanoseconds in a second.
const NS_IN_S: u64 = 1_000_000_000;

/// Whom the signal goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalTarget {
    /// The process whose pid is the task's id (one process for each session).
    Process,
    /// The task's thread. Needs Linux 6.9; older kernels cannot name a thread safely.
    Thread,
}

/// One rung: a signal, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalRung {
    signal: nix::sys::signal::Signal,
    target: SignalTarget,
}

impl SignalRung {
    /// This signal.
    pub fn new(signal: nix::sys::signal::Signal, target: SignalTarget) -> Self {
        Self { signal, target }
    }

    /// The command as a person could type it.
    pub fn text(self, process: &Process, task: &Task) -> String {
        match number(process, self.target, task) {
            Ok(number) => format!(
                "kill -{} {number}",
                self.signal.as_str().trim_start_matches("SIG")
            ),
            Err(_) => "(it has no process)".to_owned(),
        }
    }
}

/// Our number of the process that is signalled, or of the thread.
fn number(process: &Process, target: SignalTarget, task: &Task) -> Result<u32, Answer> {
    let in_target = match target {
        SignalTarget::Process => task.id,
        SignalTarget::Thread => u64::from(task.thread),
    };
    // 1 is whoever the others stop with, on the machine as in a container; to a shell, 0 means itself and all it has started.
    let may_be = u32::try_from(in_target).ok().filter(|number| *number > 1);
    let in_target = may_be.ok_or_else(|| {
        Answer::refused(format!(
            "{in_target} is not a process or thread that may be signalled"
        ))
    })?;
    process
        .ours(in_target)
        .ok_or_else(|| Answer::missed(format!("{in_target} is gone")))
}

/// What a proof comes to: since when the task has been at what it is at, `CLOCK_BOOTTIME` nanoseconds, as the kernel counts
/// starts of processes (0 if nobody knows); or why no signal may be sent.
pub type Proving = Pin<Box<dyn Future<Output = Result<u64, Answer>> + Send>>;

/// Proves, once the process or thread can no longer be mistaken and right before the signal, that the task still is what
/// it was: the same session, served by the same thread, with the same request in the same state.
pub type Proof = Box<dyn Fn(&Task) -> Proving + Send + Sync>;

/// The initiator.
pub struct ProcessSignal {
    process: Process,
    rungs: Vec<SignalRung>,
    proof: Option<Proof>,
}

impl fmt::Debug for ProcessSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSignal")
            .field("pid", &self.process.pid())
            .field("rungs", &self.rungs)
            .finish_non_exhaustive()
    }
}

/// Start of a thread, nanoseconds after boot, rounded down to a clock tick (usually 10 ms). A process starts with the thread that
/// has its number.
fn started_ns(owner: u32, thread: u32) -> Result<u64, String> {
    let path = format!("/proc/{owner}/task/{thread}/stat");
    let stat = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    // The second field is the program's name, which may hold spaces and parentheses; starttime is the 22nd.
    let ticks: u64 = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(19))
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| format!("{path} has no start time"))?;
    Ok(ticks.saturating_mul(NS_IN_S / procfs::ticks_per_second()))
}

fn pin(target: SignalTarget, number: u32) -> Result<OwnedFd, Answer> {
    let pid = i32::try_from(number)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| Answer::refused(format!("{number} is no number of a process")))?;
    let flags = match target {
        SignalTarget::Process => PidfdFlags::empty(),
        SignalTarget::Thread => PidfdFlags::from_bits_retain(PIDFD_THREAD),
    };
    pidfd_open(pid, flags).map_err(|error| match (error, target) {
        (Errno::SRCH, _) => Answer::missed(format!("{number} is gone")),
        (Errno::INVAL, SignalTarget::Thread) => Answer::refused(
            "this kernel cannot name a thread safely (PIDFD_THREAD needs Linux 6.9); use a signal to the process",
        ),
        (Errno::INVAL | Errno::NOENT, SignalTarget::Process) => Answer::refused(format!(
            "{number} is a thread and no process: the session's number is not that of a process; use `to = \"thread\"`"
        )),
        _ => Answer::refused(format!("cannot open a pidfd for {number}: {error}")),
    })
}

impl ProcessSignal {
    /// For the sessions of a process. Without a proof of a task's identity ([`Self::proving`]) nothing is sent.
    pub fn new(process: Process, rungs: Vec<SignalRung>) -> Self {
        Self {
            process,
            rungs,
            proof: None,
        }
    }

    /// The same, with a proof of the task's identity before each signal.
    #[must_use]
    pub fn proving(self, proof: Proof) -> Self {
        Self {
            proof: Some(proof),
            ..self
        }
    }

    /// The process of a pinned number, which must be the target's and, if it is signalled as a whole, the session's own.
    fn owner(&self, target: SignalTarget, number: u32, task: &Task) -> Result<u32, Answer> {
        let pid = self.process.pid();
        let owner = self.process.owner_of(number).ok_or_else(|| {
            Answer::refused(format!(
                "{number} is neither process {pid} nor descends from it: the number of session {} is not that of a process of \
                 this server",
                task.id
            ))
        })?;
        if target == SignalTarget::Thread {
            return Ok(owner);
        }
        let serves = match task.thread {
            // The server itself is known to be a session's own process by nothing but the session's thread.
            0 => number != pid,
            thread => self.process.ours(thread).is_some_and(|thread| {
                let is_main = thread == number;
                is_main || (number != pid && self.process.owner_of(thread) == Some(number))
            }),
        };
        if owner == number && serves {
            return Ok(owner);
        }
        Err(Answer::refused(format!(
            "process {number} is not the one that serves session {} alone; if the server gives each session a thread, use \
             `to = \"thread\"`",
            task.id
        )))
    }

    async fn deliver(&self, rung: u8, task: &Task) -> Result<(), Answer> {
        let SignalRung { signal, target } = *self
            .rungs
            .get(usize::from(rung))
            .ok_or_else(|| Answer::refused(format!("the ladder has no rung {rung}")))?;
        let signal = Signal::from_named_raw(signal as i32)
            .ok_or_else(|| Answer::refused(format!("{signal} cannot be sent")))?;
        let proof = self.proof.as_ref().ok_or_else(|| {
            Answer::refused("nothing can tell whether the session is still at what it was at")
        })?;
        let number = number(&self.process, target, task)?;
        let pinned = pin(target, number)?;
        let owner = self.owner(target, number, task)?;
        let started_ns = started_ns(owner, number).map_err(Answer::missed)?;
        // The last look; from here to the signal nothing is read or waited for.
        let since_ns = proof(task).await?;
        if since_ns == 0 {
            return Err(Answer::refused(format!(
                "since when session {} has been at it is not known, so that {number} cannot be told from a later one of that \
                 number; add `started_us` to the preset's `[sessions]`",
                task.id
            )));
        }
        if started_ns > since_ns {
            return Err(Answer::missed(format!(
                "{number} started after session {} had begun: it is another one",
                task.id
            )));
        }
        pidfd_send_signal(pinned, signal).map_err(|error| match error {
            Errno::SRCH => Answer::missed(format!("{number} is gone")),
            Errno::PERM => Answer::refused(format!(
                "not allowed to signal {number}; run atropos as root, as the target's user, or with CAP_KILL"
            )),
            _ => Answer::refused(format!("cannot signal {number}: {error}")),
        })
    }
}

impl Initiator for ProcessSignal {
    fn describe(&self, rung: u8, task: &Task) -> String {
        match self.rungs.get(usize::from(rung)) {
            Some(rung) => rung.text(&self.process, task),
            None => format!("no signal for rung {rung}"),
        }
    }

    async fn send(&mut self, rung: u8, task: &Task) -> Answer {
        self.deliver(rung, task)
            .await
            .err()
            .unwrap_or_else(Answer::accepted)
    }

    async fn check_permission(&mut self) -> Result<(), String> {
        let pid = self.process.pid();
        let raw = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| format!("{pid} is not a pid"))?;
        test_kill_process(raw).map_err(|error| {
            format!("may not signal process {pid}: {error}; run atropos as root, as the target's user, or with CAP_KILL")
        })
    }

    fn own_ids(&self) -> Vec<u64> {
        vec![u64::from(std::process::id())]
    }

    async fn keep_warm(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn prove_by(&mut self, proof: Proof) {
        self.proof = Some(proof);
    }
}
