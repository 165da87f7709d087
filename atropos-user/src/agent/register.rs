//! What is known of each session beyond one look, and sessions as the engine wants them.
//!
//! Texts are read once: who a session belongs to when it is first seen, its statement when it first takes part in a wait.

use std::collections::BTreeMap;

use crate::agent::statement::{digest, fingerprint};
use crate::config::Preset;
use crate::engine::input::{Activity, SessionKey, SessionState};
use crate::memory::Memory;
use crate::walk::{SessionList, SessionView};

/// A session's part in the waits of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// None.
    #[default]
    Bystander,
    /// It waits, and keeps nobody waiting.
    Waiter,
    /// Others wait for it.
    InTheWay,
}

/// What is known of a session beyond one look.
#[derive(Clone, Debug, Default)]
struct Known {
    id: u64,
    principal: String,
    /// Request that the statement belongs to.
    request: Option<u64>,
    digest: String,
    class: Option<u16>,
}

/// What is known of sessions beyond one look.
#[derive(Clone, Debug, Default)]
pub(super) struct Register {
    known: BTreeMap<u64, Known>,
}

impl Register {
    /// Forgets sessions that are gone, and those whose place another has taken.
    pub(super) fn keep(&mut self, sessions: &BTreeMap<u64, &SessionView>) {
        self.known.retain(|key, known| {
            sessions
                .get(key)
                .is_some_and(|session| session.id == known.id)
        });
    }

    /// What is known of a session, which may be seen for the first time.
    fn met(
        &mut self,
        session: &SessionView,
        list: &SessionList,
        preset: &Preset,
        memory: &dyn Memory,
    ) -> &mut Known {
        self.known.entry(session.key).or_insert_with(|| {
            let principal = list.principal(session.key, memory);
            Known {
                id: session.id,
                class: preset.classify(&principal, ""),
                principal,
                ..Known::default()
            }
        })
    }

    /// After how long the session lets go by itself of what others wait for, if it does, nanoseconds.
    pub(super) fn yields_ns(
        &mut self,
        session: &SessionView,
        list: &SessionList,
        preset: &Preset,
        memory: &dyn Memory,
    ) -> Option<u64> {
        let class = self.met(session, list, preset, memory).class?;
        preset.classes.get(usize::from(class))?.yields_ns
    }

    /// A session as the engine wants it, but for whether it is the agent's own. The statement is read only of those that
    /// take part in a wait, progress only of those that others wait for.
    pub(super) fn state(
        &mut self,
        session: &SessionView,
        part: Part,
        list: &SessionList,
        preset: &Preset,
        memory: &dyn Memory,
    ) -> SessionState {
        let known = self.met(session, list, preset, memory);
        let involved = part != Part::Bystander;
        if involved && known.request != Some(session.request) {
            let text = digest(&list.statement(session.key, memory));
            // A session that has just gone idle has no text: what it ran last still says what it is.
            if !text.is_empty() {
                known.digest = text;
                known.request = Some(session.request);
            }
            known.class = preset.classify(&known.principal, &known.digest);
        }
        let activity = match (session.busy, session.in_transaction) {
            (true, _) => Activity::Busy,
            (false, true) => Activity::IdleInTransaction,
            (false, false) => Activity::IdleWithLocks,
        };
        let progress = (part == Part::InTheWay && session.busy)
            .then(|| list.progress(session.key, memory))
            .flatten();
        SessionState {
            session: SessionKey(session.key),
            id: session.id,
            thread: session.thread,
            request: session.request,
            activity,
            since_ns: if session.busy {
                session.started_ns
            } else {
                session.ended_ns
            },
            transaction_since_ns: None,
            class: known.class,
            principal: known.principal.clone(),
            fingerprint: fingerprint(&known.digest),
            digest: if involved {
                known.digest.clone()
            } else {
                String::new()
            },
            progress,
            killed: session.killed,
            own: false,
        }
    }
}
