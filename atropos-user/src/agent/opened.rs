//! For how long each transaction has been open, by two clocks.
//!
//! A server tells by the wall clock when a transaction began. Where that clock is set, a transaction can look older than it
//! is: whoever is ended for its age must also have been seen in that transaction for as long, by a clock that is never set.

use std::collections::BTreeMap;

use crate::walk::SessionView;

/// When each session's transaction was first seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Opened {
    /// By session: start of the transaction as it was first told, and when that was.
    seen: BTreeMap<u64, (u64, u64)>,
}

impl Opened {
    /// Takes in a look at all sessions.
    pub(super) fn look(&mut self, sessions: &[SessionView], now_ns: u64) {
        let before = std::mem::take(&mut self.seen);
        let open = sessions.iter().filter(|one| one.transaction_ns > 0);
        self.seen = open
            .map(|one| {
                let same = before
                    .get(&one.key)
                    .filter(|(begun_ns, _)| *begun_ns == one.transaction_ns);
                let first_ns = same.map_or(now_ns, |(_, first_ns)| *first_ns);
                (one.key, (one.transaction_ns, first_ns))
            })
            .collect();
    }

    /// For how long at least the session's transaction has been open, nanoseconds; 0 if none is.
    pub(super) fn open_ns(&self, session: u64, now_ns: u64) -> u64 {
        self.seen.get(&session).map_or(0, |(begun_ns, first_ns)| {
            now_ns.saturating_sub(*begun_ns.max(first_ns))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::Times;

    fn session(key: u64, transaction_ns: u64) -> SessionView {
        SessionView {
            key,
            id: key,
            thread: 0,
            request: 0,
            busy: false,
            in_transaction: true,
            explicit_locks: false,
            started_ns: 0,
            transaction_ns,
            ended_ns: 0,
            killed: false,
            takes_slot: true,
            times: Times::Unchecked,
        }
    }

    #[test]
    fn a_transaction_is_as_old_as_both_clocks_say_that_it_is() {
        let mut opened = Opened::default();
        opened.look(&[session(1, 100)], 5000);
        opened.look(&[session(1, 100)], 5700);
        assert_eq!(opened.open_ns(1, 5700), 700, "seen for no longer");
        // Begun after the first look at the session.
        opened.look(&[session(1, 5800)], 6000);
        assert_eq!(opened.open_ns(1, 6500), 500);
        assert_eq!(opened.open_ns(2, 6500), 0);
    }

    #[test]
    fn another_transaction_begins_anew_and_none_has_no_age() {
        let mut opened = Opened::default();
        opened.look(&[session(1, 100)], 5000);
        opened.look(&[session(1, 101)], 6000);
        assert_eq!(opened.open_ns(1, 6000), 0);
        opened.look(&[session(1, 0)], 7000);
        assert_eq!(opened.open_ns(1, 7000), 0);
        opened.look(&[], 8000);
        assert_eq!(opened.open_ns(1, 8000), 0);
    }
}
