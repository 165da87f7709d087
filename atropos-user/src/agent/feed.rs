//! From what the kernel half and the target's memory show to inputs of the engine. Pure but for the memory it reads.

use std::collections::{BTreeMap, BTreeSet};

use atropos_common::op::Op;
use atropos_common::record::EventRecord;

use super::kept::Kept;
use super::probes::Harvest;
use super::told::Told;
use super::usage::Sums;
use super::watch::{View, Watcher};
use crate::config::expr::Bound;
use crate::engine::input::{
    Blind, Event, EventKind, Excess, Input, InstanceKey, Lost, RequestStats, ResourceId,
    SessionKey, Tick, Unseen,
};
use crate::kernel::Decoded;
use crate::memory::Memory;

/// What is kept of a target that has not told anything.
static NOTHING: Kept = Kept {
    processes: Vec::new(),
    sessions: Vec::new(),
    open: Vec::new(),
};

/// What sessions and waits are seen with.
pub enum Eyes {
    /// Looks into the target's memory.
    Memory(Box<Watcher>),
    /// Hears what the target tells by marks.
    Marks(Box<Told>),
}

/// Makes inputs.
pub struct Feed {
    eyes: Eyes,
    completed: Option<Bound>,
    completed_before: Option<u64>,
    /// Resources that can never be seen in this process.
    never_seen: Vec<Blind>,
    /// Waits in the snapshot before, by resource: one that has gone to none must still be told.
    waits_before: BTreeMap<ResourceId, usize>,
    sums: Sums,
    /// Somebody was beyond a limit when that was last asked.
    was_beyond: bool,
}

impl Feed {
    /// A feed from these eyes; `completed` counts the requests that the target has completed, `never_seen` are resources that
    /// cannot be seen in this process.
    pub fn new(eyes: Eyes, completed: Option<Bound>, never_seen: Vec<Blind>) -> Self {
        Self {
            eyes,
            completed,
            completed_before: None,
            never_seen,
            waits_before: BTreeMap::new(),
            sums: Sums::default(),
            was_beyond: false,
        }
    }

    /// The session that a probe told of.
    pub fn session_told(&self, told: u64) -> u64 {
        match &self.eyes {
            Eyes::Memory(watcher) => watcher.session_told(told),
            Eyes::Marks(_) => told,
        }
    }

    /// Whether the target tells by marks.
    pub fn hears_marks(&self) -> bool {
        matches!(self.eyes, Eyes::Marks(_))
    }

    /// The inputs of one tick, in the order in which they happened. `own` are the numbers of the agent's own sessions.
    pub fn inputs(
        &mut self,
        harvest: &Harvest,
        memory: &dyn Memory,
        now_ns: u64,
        own: &[u64],
    ) -> (Vec<Input>, View) {
        let mut inputs = Vec::new();
        let mut lost = harvest.lost;
        let mut events: Vec<Event> = Vec::new();
        for decoded in &harvest.events {
            // An event whose arguments could not be read is an event that was missed.
            lost += u64::from(decoded.record.flags & EventRecord::ARG_UNKNOWN != 0);
            events.extend(event(decoded).map(|event| self.of_session(event)));
        }
        // Each CPU's records are in order, those of several CPUs are not.
        events.sort_by_key(|event| event.at_ns);
        for event in events {
            self.note(&event);
            inputs.push(Input::Event(event));
        }
        if lost > 0 {
            inputs.push(Input::Lost(Lost {
                at_ns: now_ns,
                count: lost,
            }));
        }
        let mut usages = self.sums.since_before(&harvest.uses, lost == 0);
        let takers = self.sums.takers().map(|told| self.session_told(told));
        let takers: BTreeSet<u64> = takers.collect();
        let mut view = match &mut self.eyes {
            Eyes::Memory(watcher) => {
                watcher.take(takers);
                watcher.look(memory, now_ns, own)
            }
            Eyes::Marks(told) => {
                told.take(takers);
                for decoded in &harvest.events {
                    told.hear(decoded.op, &decoded.record, memory);
                }
                told.look(harvest.kept.as_ref().unwrap_or(&NOTHING), now_ns)
            }
        };
        for blind in self.never_seen.iter().chain(&harvest.blind) {
            if !view
                .blind
                .iter()
                .any(|known| known.resource == blind.resource)
            {
                view.blind.push(blind.clone());
            }
        }
        for snapshot in &view.snapshots {
            let before = self
                .waits_before
                .insert(snapshot.resource, snapshot.waits.len())
                .unwrap_or(0);
            if before > 0 || !snapshot.waits.is_empty() {
                inputs.push(Input::Snapshot(snapshot.clone()));
            }
        }
        for usage in &mut usages {
            for one in &mut usage.sessions {
                one.session = SessionKey(self.session_told(one.session.0));
            }
        }
        inputs.extend(usages.into_iter().map(Input::Usage));
        if let Some(sessions) = &view.beyond {
            // That there are none any more is told once.
            let before = std::mem::replace(&mut self.was_beyond, !sessions.is_empty());
            if before || !sessions.is_empty() {
                inputs.push(Input::Excess(Excess {
                    at_ns: now_ns,
                    sessions: sessions.clone(),
                }));
            }
        }
        let (at_ns, requests) = (now_ns, self.requests(harvest, memory));
        inputs.push(if view.unseen {
            Input::Unseen(Unseen { at_ns, requests })
        } else {
            Input::Tick(Tick {
                at_ns,
                requests,
                sessions: view.sessions.clone(),
                blind: view.no_reason(),
            })
        });
        (inputs, view)
    }

    /// The wall clock less the monotonic clock at this moment, nanoseconds.
    pub fn follow_clock(&mut self, epoch_minus_monotonic_ns: i64) {
        if let Eyes::Memory(watcher) = &mut self.eyes {
            watcher.follow_clock(epoch_minus_monotonic_ns);
        }
    }

    fn of_session(&self, event: Event) -> Event {
        Event {
            session: SessionKey(self.session_told(event.session.0)),
            ..event
        }
    }

    /// Keeps what a look alone would not know: when a wait began.
    fn note(&mut self, event: &Event) {
        let Eyes::Memory(watcher) = &mut self.eyes else {
            return;
        };
        match event.kind {
            EventKind::WaitBegin { .. } => watcher.wait_begun(event.session.0, event.at_ns),
            EventKind::WaitEnd { .. } | EventKind::SessionEnd => watcher.wait_over(event.session.0),
            _ => {}
        }
    }

    fn requests(&mut self, harvest: &Harvest, memory: &dyn Memory) -> RequestStats {
        let count = self
            .completed
            .as_ref()
            .and_then(|bound| bound.eval(&[], memory).ok());
        let before = std::mem::replace(&mut self.completed_before, count);
        RequestStats {
            completed: count
                .zip(before)
                .map(|(count, before)| count.saturating_sub(before)),
            covered_ns: harvest.covered_ns,
            latency: harvest.latency.clone(),
        }
    }
}

/// A record as the engine wants it; nothing for those that concern the agent alone.
fn event(decoded: &Decoded) -> Option<Event> {
    let Decoded { op, record } = decoded;
    let (resource, instance) = (ResourceId(record.resource), InstanceKey(record.instance));
    let kind = match op {
        Op::RequestBegin => EventKind::RequestBegin,
        Op::RequestEnd => EventKind::RequestEnd,
        Op::Exit if record.flags & EventRecord::NOT_ITS_SESSION != 0 => return None,
        Op::SessionEnd | Op::Exit => EventKind::SessionEnd,
        Op::WaitBegin | Op::Enqueue => EventKind::WaitBegin { resource, instance },
        Op::WaitEnd | Op::Dequeue => EventKind::WaitEnd { resource, instance },
        Op::Acquire => EventKind::Acquire {
            resource,
            instance,
            mode: record.value as u32,
        },
        Op::Release => EventKind::Release { resource, instance },
        Op::ReleaseAll => EventKind::ReleaseAll { resource },
        Op::Killed => EventKind::Killed,
        Op::Use
        | Op::Evict
        | Op::FetchBegin
        | Op::FetchEnd
        | Op::Progress
        | Op::Work
        | Op::Fork
        | Op::Label => return None,
    };
    Some(Event {
        at_ns: record.at_ns,
        session: SessionKey(record.session),
        kind,
    })
}
