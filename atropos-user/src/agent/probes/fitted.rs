//! A unit of probes and, while it is attached, its links.
//!
//! Both to attach and to detach waits for the kernel, on a busy machine for longer than a tick. So both are done on threads of
//! their own, where the kernel takes many sites at once; the agent goes on looking meanwhile. What the kernel refuses while the
//! agent watches is kept with the reason and tried again: an incident is no time to give up.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use anyhow::{Context as _, Result};

use super::plan::PlannedUnit;
use crate::agent::clock;
use crate::kernel::{Kernel, SiteAt, SiteLink};

/// After so long what was refused is tried again, nanoseconds. 5 s: memory may be there by then.
const RETRY_NS: u64 = 5_000_000_000;

pub(super) struct Fitted {
    pub(super) planned: PlannedUnit,
    state: State,
}

enum State {
    Off,
    /// A thread attaches.
    Coming(Receiver<Result<On>>),
    On(On),
    /// The kernel does not let it be attached.
    Refused {
        why: String,
        at_ns: u64,
    },
}

/// Links, and since when all of them are there.
struct On {
    links: Vec<SiteLink>,
    since_ns: u64,
}

impl Fitted {
    pub(super) fn new(planned: PlannedUnit) -> Self {
        Self {
            planned,
            state: State::Off,
        }
    }

    /// Since when it has been attached, if it is.
    pub(super) fn since_ns(&self) -> Option<u64> {
        match &self.state {
            State::On(on) => Some(on.since_ns),
            State::Off | State::Coming(_) | State::Refused { .. } => None,
        }
    }

    /// Whether it is neither attached nor on its way, nor was refused a short while ago.
    pub(super) fn is_off(&self, now_ns: u64) -> bool {
        match &self.state {
            State::Off => true,
            State::Refused { at_ns, .. } => now_ns.saturating_sub(*at_ns) >= RETRY_NS,
            State::Coming(_) | State::On(_) => false,
        }
    }

    /// Why the kernel does not let it be attached, if so.
    pub(super) fn refused(&self) -> Option<&str> {
        match &self.state {
            State::Refused { why, .. } => Some(why),
            State::Off | State::Coming(_) | State::On(_) => None,
        }
    }

    /// Attaches it and waits.
    pub(super) fn attach(&mut self, kernel: &mut Kernel) -> Result<()> {
        let links = kernel
            .attach_all(&self.sites())
            .with_context(|| self.what())?;
        self.state = State::On(On::now(links));
        Ok(())
    }

    /// Begins to attach it; [`Self::settle`] sees it through.
    pub(super) fn begin(&mut self, kernel: &mut Kernel) {
        match kernel.prepare(&self.sites()) {
            Ok(Some(prepared)) => {
                let planned = self.planned.sites.iter();
                let files: Vec<_> = planned.map(|planned| planned.file.file()).collect();
                let (send, receive) = channel();
                std::thread::spawn(move || {
                    // If nobody waits any more, the links go with what could not be sent.
                    let _ = send.send(prepared.attach().map(On::now));
                    // Only now may the files be closed.
                    drop(files);
                });
                self.state = State::Coming(receive);
            }
            Ok(None) => self.attach_or_refuse(kernel),
            Err(error) => self.refuse(&error),
        }
    }

    /// Takes over what has been attached in the meantime: since when, if it has.
    pub(super) fn settle(&mut self, kernel: &mut Kernel) -> Option<u64> {
        let State::Coming(receive) = &self.state else {
            return None;
        };
        let come = match receive.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Ok(come) => come.ok(),
            Err(TryRecvError::Disconnected) => None,
        };
        self.take(come, kernel)
    }

    /// The same, and waits for it.
    pub(super) fn wait(&mut self, kernel: &mut Kernel) -> Option<u64> {
        let State::Coming(receive) = &self.state else {
            return None;
        };
        let come = receive.recv().ok().and_then(Result::ok);
        self.take(come, kernel)
    }

    fn take(&mut self, come: Option<On>, kernel: &mut Kernel) -> Option<u64> {
        match come {
            Some(on) => self.state = State::On(on),
            // Site by site the kernel tells which one it refuses.
            None => self.attach_or_refuse(kernel),
        }
        self.since_ns()
    }

    fn attach_or_refuse(&mut self, kernel: &mut Kernel) {
        if let Err(error) = self.attach(kernel) {
            self.refuse(&error);
        }
    }

    fn refuse(&mut self, error: &anyhow::Error) {
        self.state = State::Refused {
            why: format!("{error:#}"),
            at_ns: clock::monotonic_ns(),
        };
    }

    /// Detaches it, in the background. What is on its way is let come first: else, on a machine where that takes long, nothing
    /// would ever be there. What was refused is tried anew when it is wanted again.
    pub(super) fn detach(&mut self) {
        if let State::Refused { .. } = self.state {
            self.state = State::Off;
        }
        if let State::On(_) = self.state
            && let State::On(on) = std::mem::replace(&mut self.state, State::Off)
        {
            // Where there are several links, each waits for the kernel, and together they wait once.
            for link in on.links {
                std::thread::spawn(move || drop(link));
            }
        }
    }

    fn sites(&self) -> Vec<SiteAt<'_>> {
        let sites = self.planned.sites.iter().map(|planned| SiteAt {
            cookie: planned.cookie,
            spec: planned.spec(),
            file: &planned.file,
            offset: planned.site.site.file_offset,
            semaphore_offset: planned.site.semaphore_offset,
        });
        sites.collect()
    }

    fn what(&self) -> String {
        format!(
            "cannot attach probe `{}`",
            self.planned.unit.probes.join("`, `")
        )
    }
}

impl On {
    fn now(links: Vec<SiteLink>) -> Self {
        Self {
            links,
            since_ns: clock::monotonic_ns(),
        }
    }
}
