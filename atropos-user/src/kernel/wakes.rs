//! Who woke whom, as long as somebody asks: a hint at who kept whom waiting, never a proof.
//!
//! Every wake-up of the machine runs a program meanwhile, so it is for short looks.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use anyhow::{Context as _, Result, anyhow};
use atropos_common::wake::{WakeKey, WakeValue};
use aya::maps::{HashMap, Map, MapData};

use super::sys::EventLink;
use super::tracepoint;

/// A thread that woke another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Who woke; a thread of a process in scope.
    pub waker: u32,
    /// Who was woken, in whatever process.
    pub woken: u32,
    /// How often since the watch began, while the pair was remembered.
    pub count: u64,
    /// The last time, `CLOCK_MONOTONIC` nanoseconds.
    pub last_ns: u64,
}

/// The watch over wake-ups. It begins idle; dropping it ends it.
pub struct Wakes {
    map: HashMap<MapData, WakeKey, WakeValue>,
    program: OwnedFd,
    watch: Watch,
}

/// To attach and to detach waits for the kernel: both are done on threads of their own.
enum Watch {
    Off,
    Coming(Receiver<Result<EventLink>>),
    On { _link: EventLink },
}

impl Wakes {
    pub(super) fn new(map: Map, program: OwnedFd) -> Result<Self> {
        Ok(Self {
            map: HashMap::try_from(map).context("map WAKES")?,
            program,
            watch: Watch::Off,
        })
    }

    /// Begins to watch, having forgotten what was seen before; [`Self::is_on`] says when it has begun.
    ///
    /// # Errors
    /// When the process can have no further descriptor.
    pub fn begin(&mut self) -> Result<()> {
        self.end();
        for wake in self.seen() {
            let _ = self.map.remove(&WakeKey {
                waker: wake.waker,
                woken: wake.woken,
            });
        }
        let program = self
            .program
            .try_clone()
            .context("cannot begin to watch wake-ups")?;
        let (send, receive) = channel();
        std::thread::spawn(move || {
            let link = tracepoint::attach(program.as_fd(), "sched", "sched_waking");
            // If nobody waits any more, the link goes with what could not be sent.
            let _ = send.send(link);
        });
        self.watch = Watch::Coming(receive);
        Ok(())
    }

    /// Whether wake-ups are watched at this moment.
    ///
    /// # Errors
    /// When the kernel has no such tracepoint, or refuses to attach to it.
    pub fn is_on(&mut self) -> Result<bool> {
        let Watch::Coming(receive) = &self.watch else {
            return Ok(matches!(self.watch, Watch::On { .. }));
        };
        let link = match receive.try_recv() {
            Err(TryRecvError::Empty) => return Ok(false),
            Ok(link) => link,
            Err(TryRecvError::Disconnected) => Err(anyhow!("the thread that attaches is gone")),
        };
        match link {
            Ok(link) => self.watch = Watch::On { _link: link },
            Err(error) => {
                self.watch = Watch::Off;
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Ends the watch. What was seen can still be asked for.
    pub fn end(&mut self) {
        let watch = std::mem::replace(&mut self.watch, Watch::Off);
        if !matches!(watch, Watch::Off) {
            std::thread::spawn(move || drop(watch));
        }
    }

    /// Everybody who woke somebody since the watch began.
    pub fn seen(&self) -> Vec<Wake> {
        let entries = self.map.iter().filter_map(Result::ok);
        entries
            .map(|(key, value)| Wake {
                waker: key.waker,
                woken: key.woken,
                count: value.count,
                last_ns: value.last_ns,
            })
            .collect()
    }
}
