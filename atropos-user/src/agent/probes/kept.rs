//! What the kernel half keeps between passings: requests, waits and holds, and what of it has ended without a word.

use std::collections::BTreeSet;

use atropos_common::op::Op;
use atropos_common::record::{SessionKey, SessionValue};

use super::Probes;
use super::plan::Keeps;
use crate::agent::kept::{Kept, Uses};
use crate::engine::input::{Activity, ResourceId};
use crate::engine::record::Task;
use crate::kernel::{Decoded, Kernel};

impl Probes {
    /// A session that said that it is gone has let go of everything.
    pub(super) fn close_ended(&mut self, events: &[Decoded]) {
        let ended: BTreeSet<(u64, u32)> = events
            .iter()
            .filter(|decoded| decoded.op == Op::SessionEnd)
            .map(|decoded| (decoded.record.session, decoded.record.pid))
            .collect();
        if ended.is_empty() {
            return;
        }
        self.kernel
            .close_open(|(key, _)| ended.contains(&(key.session, key.pid)));
        self.kernel
            .close_uses(|(key, _)| ended.contains(&(key.session, key.pid)));
    }

    /// Something was lost, which may have been an end: what is kept open may be held by nobody any more, or by somebody else.
    pub(super) fn doubt_open(&mut self) {
        if self.marks {
            self.kernel.close_open(|_| true);
        }
    }

    /// What sessions use of resources whose probes are attached; nothing is read where none are.
    pub(super) fn uses(&self, now_ns: u64) -> Uses {
        let since: Vec<(ResourceId, u64)> = self
            .units
            .iter()
            .filter(|unit| unit.planned.sums_use)
            .filter_map(|unit| Some((unit.planned.unit.resource?, unit.since_ns()?)))
            .collect();
        let sums = if since.is_empty() {
            Vec::new()
        } else {
            self.kernel.uses()
        };
        Uses {
            at_ns: now_ns,
            sums,
            since,
        }
    }

    /// Since when a session has run the request, or held what it holds while it runs none, that it had when it was looked at;
    /// `CLOCK_MONOTONIC` nanoseconds.
    ///
    /// # Errors
    /// What is different.
    pub fn still_since_ns(&self, task: &Task, pid: u32) -> Result<u64, String> {
        let key = SessionKey {
            session: task.session.0,
            pid,
            reserved: 0,
        };
        let id = task.id;
        let now = self.kernel.session(&key);
        let now = now.ok_or_else(|| format!("session {id} has told nothing of itself"))?;
        let busy = task.activity == Activity::Busy;
        let is = (u64::from(now.generation), now.tid, now.begin_ns != 0);
        if is != (task.request, task.thread, busy) {
            return Err(format!("session {id} has gone on since"));
        }
        if busy {
            return Ok(now.begin_ns);
        }
        // Who would be signalled is the thread of its last task, which in a pool may serve another by now.
        let serves_another = |(key, value): &(SessionKey, SessionValue)| {
            key.session != task.session.0
                && (key.pid, value.tid, value.begin_ns != 0) == (pid, now.tid, true)
        };
        if self.kernel.sessions().iter().any(serves_another) {
            return Err(format!(
                "the thread of session {id} serves another one by now"
            ));
        }
        let open = self.kernel.open_intervals();
        let held = open.iter().filter(|(held, _)| {
            held.hold != 0 && (held.session, held.pid) == (key.session, key.pid)
        });
        held.map(|(_, value)| value.since_ns)
            .min()
            .ok_or_else(|| format!("session {id} holds nothing any more"))
    }

    /// What the kernel half keeps at this moment.
    pub fn kept(&self) -> Kept {
        Kept {
            processes: self.kernel.watched(),
            sessions: self.kernel.sessions(),
            open: self.kernel.open_intervals(),
        }
    }
}

/// Closes what was open when the probes of these waits or holds were last there: what became of it meanwhile nobody saw.
pub(super) fn close_unseen(kernel: &mut Kernel, keeps: Keeps) {
    kernel
        .close_open(|(key, _)| key.resource == keeps.resource.0 && (key.hold != 0) == keeps.holds);
}
