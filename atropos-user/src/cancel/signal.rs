//! Ending a task by a signal, for applications whose sessions are processes or threads.
//!
//! A pid may be used again, so the process is first pinned by a pidfd, then its start time is compared with the one
//! that was seen when the session was, and only then is the signal sent through the pidfd: to that process or nobody.

use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};

use crate::engine::record::Task;

use super::{Answer, Initiator};

/// `PIDFD_THREAD` (Linux 6.9): the pidfd is for one thread. Has the value of `O_EXCL`.
const PIDFD_THREAD: u32 = 0o200;

/// Whom the signal goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalTarget {
    /// The process whose pid is the task's id (one process for each session).
    Process,
    /// The task's thread, in the process that is watched. Needs Linux 6.9; older kernels cannot name a thread safely.
    Thread,
}

/// One rung: a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalRung {
    signal: nix::sys::signal::Signal,
}

impl SignalRung {
    /// From a name: `INT`, `SIGINT`.
    pub fn parse(name: &str) -> Result<Self, String> {
        let upper = name.to_ascii_uppercase();
        let full = if upper.starts_with("SIG") {
            upper
        } else {
            format!("SIG{upper}")
        };
        let signal = full
            .parse()
            .map_err(|_| format!("`{name}` is not a signal (for example: INT, TERM, USR1)"))?;
        Ok(Self { signal })
    }
}

/// The start time, in clock ticks since boot, of the process or thread behind a task when its session was first seen;
/// `None` if it was not recorded, and then nothing is sent.
pub type StartSeen = Box<dyn Fn(&Task) -> Option<u64> + Send + Sync>;

/// Our number of the process or thread that the target calls so; `None` if there is none.
pub type Ours = Box<dyn Fn(u32) -> Option<u32> + Send + Sync>;

/// Proves, once the process or thread can no longer be mistaken and right before the signal, that the task still is what
/// it was: the same session with the same request in the same state. The error says what is different.
pub type Proof = Box<dyn Fn(&Task) -> Result<(), String> + Send + Sync>;

/// The initiator.
pub struct ProcessSignal {
    /// The process that is watched.
    pid: u32,
    target: SignalTarget,
    rungs: Vec<SignalRung>,
    ours: Ours,
    start_seen: StartSeen,
    proof: Option<Proof>,
}

impl fmt::Debug for ProcessSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSignal")
            .field("pid", &self.pid)
            .field("target", &self.target)
            .field("rungs", &self.rungs)
            .finish_non_exhaustive()
    }
}

/// Start time of a process, or of one of its threads, in clock ticks since boot.
pub fn start_ticks(pid: u32, thread: Option<u32>) -> Result<u64, String> {
    let path = match thread {
        Some(tid) => format!("/proc/{pid}/task/{tid}/stat"),
        None => format!("/proc/{pid}/stat"),
    };
    let stat = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    // The second field is the program's name, which may hold spaces and parentheses; starttime is the 22nd.
    stat.rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(19))
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| format!("{path} has no start time"))
}

impl ProcessSignal {
    /// For the sessions of process `pid`.
    pub fn new(
        pid: u32,
        target: SignalTarget,
        rungs: Vec<SignalRung>,
        ours: Ours,
        start_seen: StartSeen,
    ) -> Self {
        Self {
            pid,
            target,
            rungs,
            ours,
            start_seen,
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

    /// Number that the signal goes to, as we count.
    fn number(&self, task: &Task) -> Result<u32, Answer> {
        let in_target = match self.target {
            SignalTarget::Process => task.id,
            SignalTarget::Thread => u64::from(task.thread),
        };
        // 1 is whoever the others stop with, on the machine as in a container.
        let may_be = u32::try_from(in_target).ok().filter(|number| *number > 1);
        let in_target = may_be.ok_or_else(|| {
            Answer::refused(format!(
                "{in_target} is not a process or thread that may be signalled"
            ))
        })?;
        (self.ours)(in_target).ok_or_else(|| Answer::missed(format!("{in_target} is gone")))
    }

    fn pin(&self, pid: Pid) -> Result<OwnedFd, Answer> {
        let flags = match self.target {
            SignalTarget::Process => PidfdFlags::empty(),
            SignalTarget::Thread => PidfdFlags::from_bits_retain(PIDFD_THREAD),
        };
        pidfd_open(pid, flags).map_err(|error| match (error, self.target) {
            (Errno::SRCH, _) => Answer::missed(format!("{} is gone", pid.as_raw_nonzero())),
            (Errno::INVAL, SignalTarget::Thread) => Answer::refused(
                "this kernel cannot name a thread safely (PIDFD_THREAD needs Linux 6.9); use a signal to the process",
            ),
            _ => Answer::refused(format!("cannot open a pidfd for {}: {error}", pid.as_raw_nonzero())),
        })
    }

    fn deliver(&self, rung: u8, task: &Task) -> Result<(), Answer> {
        let rung = self
            .rungs
            .get(usize::from(rung))
            .ok_or_else(|| Answer::refused(format!("the ladder has no rung {rung}")))?;
        let number = self.number(task)?;
        let pid = i32::try_from(number)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| Answer::refused(format!("{number} is no number of a process")))?;
        let seen = (self.start_seen)(task).ok_or_else(|| {
            Answer::refused(format!(
                "the start time of {number} was not recorded, so it cannot be told from a later one"
            ))
        })?;
        let pinned = self.pin(pid)?;
        let found = match self.target {
            SignalTarget::Process => start_ticks(number, None),
            SignalTarget::Thread => start_ticks(self.pid, Some(number)),
        }
        .map_err(Answer::missed)?;
        if found != seen {
            return Err(Answer::missed(format!(
                "{number} started at tick {found}, not {seen}: it is another one"
            )));
        }
        if let Some(proof) = &self.proof {
            proof(task).map_err(Answer::missed)?;
        }
        let signal = Signal::from_named_raw(rung.signal as i32)
            .ok_or_else(|| Answer::refused(format!("{} cannot be sent", rung.signal)))?;
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
        match (self.rungs.get(usize::from(rung)), self.number(task)) {
            (Some(rung), Ok(number)) => format!(
                "kill -{} {number}",
                rung.signal.as_str().trim_start_matches("SIG")
            ),
            (Some(_), Err(_)) => "(it has no process)".to_owned(),
            (None, _) => format!("no signal for rung {rung}"),
        }
    }

    async fn send(&mut self, rung: u8, task: &Task) -> Answer {
        self.deliver(rung, task)
            .err()
            .unwrap_or_else(Answer::accepted)
    }

    async fn check_permission(&mut self) -> Result<(), String> {
        let pid = i32::try_from(self.pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| format!("{} is not a pid", self.pid))?;
        test_kill_process(pid).map_err(|error| {
            format!("may not signal process {}: {error}; run atropos as root, as the target's user, or with CAP_KILL", self.pid)
        })
    }

    fn own_ids(&self) -> Vec<u64> {
        vec![u64::from(std::process::id())]
    }

    async fn keep_warm(&mut self) -> Result<(), String> {
        Ok(())
    }
}
