//! Orders without a race: put down in the kernel, found by the session's own thread.
//!
//! Between any look at a session from outside and the signal that follows there is a gap, in which the request can end and the
//! next one begin. Here the thread compares for itself: it passes a place of the preset, the kernel half compares the request
//! that the thread is at with the one that was meant, and signals it on the spot. A thread that passes none of the places in
//! time keeps its order from being carried out this way; it is taken back, and the rung's ordinary command is sent.

use std::fmt;
use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::engine::input::Activity;
use crate::engine::record::Task;

use super::{Answer, Clock};

/// How often it is looked whether the order was found.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A thread that sleeps passes no place: it is nudged after so long.
const NUDGE_AFTER: Duration = Duration::from_millis(5);

/// After the deadline so long is waited before the ordinary command is sent, and looked once more. The thread may have read the
/// clock in time and lost its processor before it acted, so that it is signalled after everybody has taken the order for not
/// found: the statement behind would be met by the second command. 20 ms: several time slices of a busy machine.
const GRACE: Duration = Duration::from_millis(20);

/// Why there is no exact way.
const NO_DESK: &str = "no order can be put down in the kernel";

/// What lies on the desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Process.
    pub pid: u32,
    /// Its thread that is meant.
    pub tid: u32,
    /// The request that is meant, as in [`Task::request`].
    pub request: u64,
    /// Number of the signal.
    pub signal: u32,
    /// From when on it counts for nothing, `CLOCK_MONOTONIC` nanoseconds.
    pub deadline_ns: u64,
}

/// What came of a note so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The thread has not found it; so many passings told nothing, since what they had to read was not in memory.
    Waiting {
        /// Those passings.
        unknown: u32,
    },
    /// The thread was at the request and was signalled.
    Delivered {
        /// When, `CLOCK_MONOTONIC` nanoseconds.
        at_ns: u64,
    },
    /// The thread was at another request: nobody was signalled.
    Missed {
        /// That request, 0 if the thread was between requests.
        request: u64,
    },
    /// The thread was at the request, and the kernel would not signal it.
    Refused,
}

/// Where notes are put down for threads to find. One at a time.
pub trait Desk: Send {
    /// Opens the places where a process can find a note. One process at a time.
    ///
    /// # Errors
    /// A reason; then none is open.
    fn open(&mut self, pid: u32) -> Result<(), String>;

    /// Closes them.
    fn close(&mut self);

    /// Puts a note down.
    ///
    /// # Errors
    /// A reason; then no note lies there.
    fn put(&mut self, note: &Note) -> Result<(), String>;

    /// What came of it.
    ///
    /// # Errors
    /// A reason, when it cannot be seen.
    fn look(&self, note: &Note) -> Result<Found, String>;

    /// Takes the note away.
    fn take_back(&mut self, note: &Note);
}

/// Our numbers of the process and the thread of a session's thread that the target calls so; `None` if there is none.
pub type Ours = Box<dyn Fn(u32) -> Option<(u32, u32)> + Send + Sync>;

/// What the preset says of such orders.
#[derive(Clone, Debug)]
pub struct ExactSettings {
    /// The process that is watched.
    pub pid: u32,
    /// Each session is a process of its own, a child of the one that is watched.
    pub forks: bool,
    /// Signal of each rung, by rung index; none for a rung that has no such way.
    pub signals: Vec<Option<Signal>>,
    /// How long an order waits to be found.
    pub within: Duration,
    /// A signal that does nothing to a process but wake it.
    pub nudge: Option<Signal>,
    /// `CLOCK_MONOTONIC`.
    pub clock: Clock,
}

/// What came of the attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The order is carried out, or can no longer be.
    Done(Answer),
    /// The rung's ordinary command is the way, for this reason (empty: this rung has no other).
    Ordinary(String),
}

/// The exact way of some rungs.
pub struct Exact {
    settings: ExactSettings,
    ours: Ours,
    desk: Option<Box<dyn Desk>>,
}

impl fmt::Debug for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exact")
            .field("settings", &self.settings)
            .field("desk", &self.desk.is_some())
            .finish_non_exhaustive()
    }
}

impl Exact {
    /// Without a desk yet: until [`Self::equip`] every order goes the ordinary way.
    pub fn new(settings: ExactSettings, ours: Ours) -> Self {
        Self {
            settings,
            ours,
            desk: None,
        }
    }

    /// Gives it the desk.
    pub fn equip(&mut self, desk: Box<dyn Desk>) {
        self.desk = Some(desk);
    }

    /// The signal of a rung that has this way, once there is a desk.
    pub fn signal(&self, rung: u8) -> Option<Signal> {
        self.desk.as_ref()?;
        self.settings
            .signals
            .get(usize::from(rung))
            .copied()
            .flatten()
    }

    /// Tries to end the task by this rung.
    pub async fn attempt(&mut self, rung: u8, task: &Task) -> Attempt {
        let Some(signal) = self.signal(rung) else {
            return Attempt::Ordinary(String::new());
        };
        if task.activity != Activity::Busy || task.request == 0 || task.thread == 0 {
            return Attempt::Ordinary("it runs no request that could be named".to_owned());
        }
        let Some((pid, tid)) = (self.ours)(task.thread) else {
            return Attempt::Ordinary("it has no thread (any more)".to_owned());
        };
        let begun_ns = (self.settings.clock)();
        if let Err(reason) = self.open(pid).await {
            return Attempt::Ordinary(reason);
        }
        let Some(desk) = self.desk.as_mut() else {
            return Attempt::Ordinary(NO_DESK.to_owned());
        };
        let opened_ns = (self.settings.clock)();
        let note = Note {
            pid,
            tid,
            request: task.request,
            signal: signal as u32,
            deadline_ns: opened_ns.saturating_add(nanos(self.settings.within)),
        };
        let found = match desk.put(&note) {
            Ok(()) => wait(desk.as_mut(), &self.settings, &note, opened_ns).await,
            Err(reason) => Err(reason),
        };
        desk.take_back(&note);
        desk.close();
        self.meaning(found, task, signal, begun_ns)
    }

    /// Opens the places, on a thread of its own: the kernel may keep us waiting, and the agent's ticks must not wait too.
    async fn open(&mut self, pid: u32) -> Result<(), String> {
        let mut desk = self.desk.take().ok_or(NO_DESK)?;
        let opening = tokio::task::spawn_blocking(move || {
            let opened = desk.open(pid);
            (desk, opened)
        });
        let (desk, opened) = opening
            .await
            .map_err(|error| format!("cannot open the places of orders: {error}"))?;
        self.desk = Some(desk);
        opened
    }

    fn meaning(
        &self,
        found: Result<Found, String>,
        task: &Task,
        signal: Signal,
        begun_ns: u64,
    ) -> Attempt {
        let id = task.id;
        match found {
            Ok(Found::Delivered { at_ns }) => Attempt::Done(Answer {
                detail: format!(
                    "{signal} inside the kernel, {:.1} ms after the order, while the thread was at that very request",
                    at_ns.saturating_sub(begun_ns) as f64 / 1e6
                ),
                ..Answer::accepted()
            }),
            Ok(Found::Missed { request: 0 }) => Attempt::Done(Answer::missed(format!(
                "session {id} was between requests when its thread found the order"
            ))),
            Ok(Found::Missed { .. }) => Attempt::Done(Answer::missed(format!(
                "session {id} was at another request when its thread found the order"
            ))),
            Ok(Found::Refused) => {
                Attempt::Ordinary(format!("the kernel would not send {signal} to its thread"))
            }
            Ok(Found::Waiting { unknown: 0 }) => Attempt::Ordinary(format!(
                "its thread passed no place of orders within {} ms",
                self.settings.within.as_millis()
            )),
            Ok(Found::Waiting { unknown }) => Attempt::Ordinary(format!(
                "its thread passed places of orders {unknown} times, and what it was at lay on no page in memory"
            )),
            Err(reason) => Attempt::Ordinary(reason),
        }
    }
}

/// Looks until the note was found or its time is over.
async fn wait(
    desk: &mut dyn Desk,
    settings: &ExactSettings,
    note: &Note,
    put_ns: u64,
) -> Result<Found, String> {
    let mut nudge = settings.nudge;
    let nudge_ns = put_ns.saturating_add(nanos(NUDGE_AFTER));
    loop {
        let now_ns = (settings.clock)();
        let found = desk.look(note)?;
        if !matches!(found, Found::Waiting { .. }) {
            return Ok(found);
        }
        // Whoever passes a place at this time or later leaves the note alone.
        if now_ns >= note.deadline_ns {
            tokio::time::sleep(GRACE).await;
            return desk.look(note);
        }
        if now_ns >= nudge_ns
            && let Some(signal) = nudge.take()
        {
            wake(settings, note.pid, signal);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Wakes a process. It is pinned and proved to be one of the target's first; if that fails it sleeps on.
fn wake(settings: &ExactSettings, pid: u32, signal: Signal) {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let Ok(pinned) = pidfd_open(raw, PidfdFlags::empty()) else {
        return;
    };
    let ours = if settings.forks {
        parent(pid) == Some(settings.pid)
    } else {
        pid == settings.pid
    };
    if ours && let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32) {
        let _ = pidfd_send_signal(pinned, signal);
    }
}

/// Parent of a process.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, which may hold spaces and parentheses; the parent is the 4th.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
