//! Which statements come again and again: a request of that kind is no special event, wherever it stands in a queue.

use std::collections::{BTreeMap, VecDeque};

use super::input::{Activity, SessionState};

/// A statement that was seen so often lately, beside the request in question, is ordinary. 3: a tool that tries its ALTER
/// again after each lock timeout comes twice in ten seconds at most.
const OFTEN: usize = 3;

/// Lately: ten seconds.
const LATELY_NS: u64 = 10_000_000_000;

/// Statements seen lately, by fingerprint.
#[derive(Clone, Debug, Default)]
pub(super) struct Familiar {
    seen: BTreeMap<u64, VecDeque<(u64, u64)>>,
}

impl Familiar {
    /// A request was seen for the first time.
    pub(super) fn begun(&mut self, state: &SessionState, at_ns: u64) {
        if state.fingerprint == 0 || state.activity != Activity::Busy {
            return;
        }
        let seen = self.seen.entry(state.fingerprint).or_default();
        if seen.len() > OFTEN {
            seen.pop_front();
        }
        seen.push_back((at_ns, state.session.0));
    }

    /// A request was ended as a culprit: that it came is no sign that its like are ordinary.
    pub(super) fn ended(&mut self, state: &SessionState) {
        if let Some(seen) = self.seen.get_mut(&state.fingerprint) {
            seen.retain(|(_, session)| *session != state.session.0);
        }
    }

    /// Whether enough others of the same statement were seen lately.
    pub(super) fn is_ordinary(&self, state: &SessionState, now_ns: u64) -> bool {
        let Some(seen) = self.seen.get(&state.fingerprint) else {
            return false;
        };
        let lately = |at_ns: u64| at_ns.saturating_add(LATELY_NS) >= now_ns;
        let others = seen
            .iter()
            .filter(|(at_ns, session)| lately(*at_ns) && *session != state.session.0);
        others.count() >= OFTEN
    }

    /// Forgets what is past.
    pub(super) fn forget(&mut self, now_ns: u64) {
        self.seen.retain(|_, seen| {
            seen.back()
                .is_some_and(|(at_ns, _)| at_ns.saturating_add(LATELY_NS) >= now_ns)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{MS, busy};

    #[test]
    fn what_was_ended_does_not_make_its_like_ordinary() {
        let mut familiar = Familiar::default();
        let of = |key| {
            let mut state = busy(key, 1000);
            state.fingerprint = 5;
            state
        };
        for key in 1..=4 {
            familiar.begun(&of(key), key * MS);
        }
        familiar.ended(&of(4));
        assert!(familiar.is_ordinary(&of(9), 10 * MS));
        familiar.ended(&of(2));
        assert!(!familiar.is_ordinary(&of(9), 10 * MS));
    }

    #[test]
    fn a_statement_that_three_others_ran_lately_is_ordinary() {
        let mut familiar = Familiar::default();
        let of = |key| {
            let mut state = busy(key, 1000);
            state.fingerprint = 5;
            state
        };
        for key in 1..=3 {
            familiar.begun(&of(key), key * MS);
        }
        assert!(familiar.is_ordinary(&of(9), 10 * MS));
        assert!(!familiar.is_ordinary(&of(1), 10 * MS));
        assert!(!familiar.is_ordinary(&busy(9, 1000), 10 * MS));
        assert!(!familiar.is_ordinary(&of(9), 11_000 * MS));
        familiar.forget(11_000 * MS);
        assert!(familiar.seen.is_empty());
    }
}
