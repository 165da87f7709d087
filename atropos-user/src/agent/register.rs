//! What is known of each session beyond one look, and sessions as the engine wants them.
//!
//! Texts are read seldom: a statement when it first takes part in a wait; who a session belongs to when it is first seen, and
//! again with each request that takes part in a wait, since a connection may log in anew, or call itself something else.

use std::collections::BTreeMap;

use crate::agent::statement::{digest, fingerprint};
use crate::config::Preset;
use crate::engine::input::{Activity, SessionKey, SessionState};
use crate::memory::Memory;
use crate::walk::{SessionList, SessionView, Times};

/// A session's part in the waits of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// None.
    #[default]
    Bystander,
    /// It waits, and keeps nobody waiting.
    Waiter,
    /// None, and it has more of something than the user wants any session to have.
    Beyond,
    /// Others wait for it, or for what it takes.
    InTheWay,
    /// The same, and it waits for nobody itself: how far its work is decides about it.
    Root,
}

/// What is known of a session beyond one look.
#[derive(Clone, Debug, Default)]
struct Known {
    id: u64,
    principal: String,
    /// What the session was at when the principal was read.
    read_at: Doing,
    /// What it was at when it was last looked at, and since when that has been seen.
    doing: Doing,
    doing_since_ns: u64,
    /// Start of the request by the target's word, 0 if that is unknown.
    started_ns: u64,
    /// It was seen to begin that: a look before saw it at something else.
    began_in_sight: bool,
    /// Request that the statement belongs to.
    request: Option<u64>,
    digest: String,
    class: Option<u16>,
}

/// What was seen to begin is older by so much at most, which is longer than looks are apart.
const LOOKS_APART_NS: u64 = 1_000_000_000;

impl Known {
    /// Number of the request that a session runs. The statements of a routine have numbers of their own and the start of their
    /// call: they are one request, by the number that was seen first.
    fn request_of(&self, session: &SessionView) -> u64 {
        let (request, busy) = self.doing;
        let goes_on = busy && session.busy && session.started_ns > 0;
        if goes_on && session.started_ns == self.started_ns {
            request
        } else {
            session.request
        }
    }

    /// Since when it has been at what it is at: as the target tells, who counts by the wall clock at times, but no longer than
    /// can be by what was seen. A clock that is set forward makes nobody old.
    fn since_ns(&self, told_ns: u64) -> u64 {
        if self.began_in_sight {
            told_ns.max(self.doing_since_ns.saturating_sub(LOOKS_APART_NS))
        } else {
            told_ns
        }
    }
}

/// A request of a session, and whether the session runs it still.
type Doing = (u64, bool);

/// What a look sees sessions with.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) list: &'a SessionList,
    pub(super) preset: &'a Preset,
    pub(super) memory: &'a dyn Memory,
    /// When the look was taken.
    pub(super) now_ns: u64,
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
    fn met(&mut self, session: &SessionView, part: Part, sight: Sight<'_>) -> &mut Known {
        let Sight {
            list,
            preset,
            memory,
            now_ns,
        } = sight;
        let mut is_new = false;
        let known = self.known.entry(session.key).or_insert_with(|| {
            is_new = true;
            Known {
                id: session.id,
                ..Known::default()
            }
        });
        let doing = (known.request_of(session), session.busy);
        known.started_ns = session.started_ns;
        if is_new || known.doing != doing {
            (known.doing, known.doing_since_ns) = (doing, now_ns);
            known.began_in_sight = !is_new;
        }
        let involved = part != Part::Bystander;
        let nobody = known.principal.is_empty();
        let is_due = if known.read_at == doing {
            involved && nobody
        } else {
            involved || nobody
        };
        if is_new || is_due {
            known.principal = list.principal(session.key, memory);
            known.read_at = doing;
            known.class = preset.classify(&known.principal, &known.digest);
        }
        known
    }

    /// After how long the session lets go by itself of what others wait for, if it does, nanoseconds.
    pub(super) fn yields_ns(&mut self, session: &SessionView, sight: Sight<'_>) -> Option<u64> {
        let class = self.met(session, Part::InTheWay, sight).class?;
        sight.preset.classes.get(usize::from(class))?.yields_ns
    }

    /// A session as the engine wants it, but for whether it is the agent's own; nothing if its times cannot be believed and it
    /// is not protected anyway. The statement is read only of those that take part in a wait or are beyond a limit, progress
    /// only of those that others wait for, and what of it lies in their own processes only of those that wait for nobody.
    pub(super) fn state(
        &mut self,
        session: &SessionView,
        part: Part,
        sight: Sight<'_>,
    ) -> Option<SessionState> {
        let Sight {
            list,
            preset,
            memory,
            ..
        } = sight;
        let known = self.met(session, part, sight);
        let involved = part != Part::Bystander;
        let request = known.doing.0;
        if involved && known.request != Some(request) {
            let text = digest(&list.statement(session.key, memory));
            // A session that has just gone idle has no text: what it ran last still says what it is.
            if !text.is_empty() {
                known.digest = text;
                known.request = Some(request);
            }
            known.class = preset.classify(&known.principal, &known.digest);
        }
        let differ = session.times == Times::Differ;
        if differ && !known.class.is_some_and(|class| is_safe(preset, class)) {
            return None;
        }
        let activity = match (session.busy, session.in_transaction) {
            (true, _) => Activity::Busy,
            (false, true) => Activity::IdleInTransaction,
            (false, false) => Activity::IdleWithLocks,
        };
        let progress = (matches!(part, Part::InTheWay | Part::Root) && session.busy)
            .then(|| list.progress(session, memory, part == Part::Root))
            .flatten();
        let since_ns = if differ {
            // For so long at least.
            known.doing_since_ns
        } else if session.busy {
            known.since_ns(session.started_ns)
        } else {
            known.since_ns(session.ended_ns)
        };
        Some(SessionState {
            session: SessionKey(session.key),
            id: session.id,
            thread: session.thread,
            request,
            activity,
            since_ns,
            transaction_since_ns: Some(session.transaction_ns).filter(|since_ns| *since_ns > 0),
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
        })
    }
}

/// Nobody of this class is ever ended, whatever it is doing.
fn is_safe(preset: &Preset, class: u16) -> bool {
    let class = preset.classes.get(usize::from(class));
    class.is_some_and(|class| class.class.protected && class.class.protected_queued)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_clock_that_is_set_forward_makes_nobody_old_who_was_seen_to_begin() {
        let seen = |began_in_sight| Known {
            doing_since_ns: 100 * SECOND_NS,
            began_in_sight,
            ..Known::default()
        };
        let told_ns = 99 * SECOND_NS + SECOND_NS / 2;
        assert_eq!(seen(true).since_ns(told_ns), told_ns, "between two looks");
        assert_eq!(seen(true).since_ns(90 * SECOND_NS), 99 * SECOND_NS);
        assert_eq!(seen(false).since_ns(90 * SECOND_NS), 90 * SECOND_NS);
    }
}
