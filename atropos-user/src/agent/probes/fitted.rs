//! A unit of probes and, while it is attached, its links.
//!
//! Both to attach and to detach waits for the kernel, on a busy machine for longer than a tick. So both are done on threads of
//! their own, where the kernel takes many sites at once; the agent goes on looking meanwhile.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use anyhow::{Context as _, Result};

use super::plan::PlannedUnit;
use crate::agent::clock;
use crate::kernel::{Kernel, SiteAt, SiteLink};

pub(super) struct Fitted {
    pub(super) planned: PlannedUnit,
    state: State,
}

enum State {
    Off,
    /// A thread attaches.
    Coming(Receiver<Result<On>>),
    On(On),
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
            State::Off | State::Coming(_) => None,
        }
    }

    /// Whether it is neither attached nor on its way.
    pub(super) fn is_off(&self) -> bool {
        matches!(self.state, State::Off)
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
    pub(super) fn begin(&mut self, kernel: &mut Kernel) -> Result<()> {
        let Some(prepared) = kernel.prepare(&self.sites())? else {
            return self.attach(kernel);
        };
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
        Ok(())
    }

    /// Takes over what has been attached in the meantime: since when, if it has.
    pub(super) fn settle(&mut self, kernel: &mut Kernel) -> Result<Option<u64>> {
        let State::Coming(receive) = &self.state else {
            return Ok(None);
        };
        let come = match receive.try_recv() {
            Err(TryRecvError::Empty) => return Ok(None),
            Ok(come) => come.ok(),
            Err(TryRecvError::Disconnected) => None,
        };
        self.take(come, kernel)
    }

    /// The same, and waits for it.
    pub(super) fn wait(&mut self, kernel: &mut Kernel) -> Result<Option<u64>> {
        let State::Coming(receive) = &self.state else {
            return Ok(None);
        };
        let come = receive.recv().ok().and_then(Result::ok);
        self.take(come, kernel)
    }

    fn take(&mut self, come: Option<On>, kernel: &mut Kernel) -> Result<Option<u64>> {
        match come {
            Some(on) => self.state = State::On(on),
            // Site by site the kernel tells which one it refuses.
            None => self.attach(kernel)?,
        }
        Ok(self.since_ns())
    }

    /// Detaches it, in the background. What is on its way is let come first: else, on a machine where that takes long, nothing
    /// would ever be there.
    pub(super) fn detach(&mut self) {
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
