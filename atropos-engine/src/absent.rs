//! What would be left of the waits if some sessions were gone: whom their going frees, and whom those free in turn.

use std::collections::{BTreeMap, BTreeSet};

use super::input::{BlockKind, SessionKey};
use super::ledger::Ledger;
use super::view::Edge;

/// Sessions that are gone, and those that get what they wait for by that.
#[derive(Clone, Debug, Default)]
pub(super) struct Absent {
    gone: BTreeSet<SessionKey>,
    freed: BTreeSet<SessionKey>,
}

impl Absent {
    /// Works out whom it frees if these sessions go. One look at each edge.
    pub(super) fn of(ledger: &Ledger, gone: &BTreeSet<SessionKey>) -> Self {
        let mut absent = Self {
            gone: gone.clone(),
            freed: BTreeSet::new(),
        };
        if gone.is_empty() {
            return absent;
        }
        let mut blocks: BTreeMap<SessionKey, Vec<(SessionKey, BlockKind)>> = BTreeMap::new();
        let mut left: BTreeMap<SessionKey, usize> = BTreeMap::new();
        for wait in ledger.foreign_waits() {
            for edge in ledger.edges(wait) {
                let behind = blocks.entry(edge.session).or_default();
                behind.push((wait.waiter, edge.kind));
                *left.entry(wait.waiter).or_default() += 1;
            }
        }
        let mut open: Vec<SessionKey> = gone.iter().copied().collect();
        while let Some(next) = open.pop() {
            for (waiter, kind) in blocks.get(&next).into_iter().flatten() {
                if !absent.is_out(next, *kind) {
                    continue;
                }
                let Some(count) = left.get_mut(waiter) else {
                    continue;
                };
                *count -= 1;
                let is_free = *count == 0 && !gone.contains(waiter);
                if is_free && absent.freed.insert(*waiter) {
                    open.push(*waiter);
                }
            }
        }
        absent
    }

    /// Nobody is gone.
    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty()
    }

    /// The session is gone, with what it held and what it waited for.
    pub(super) fn is_gone(&self, session: SessionKey) -> bool {
        self.gone.contains(&session)
    }

    /// An edge that is no longer in the way: whoever is freed does not queue any more, and goes on holding what it held.
    pub(super) fn drops(&self, edge: &Edge) -> bool {
        self.is_out(edge.session, edge.kind)
    }

    fn is_out(&self, session: SessionKey, kind: BlockKind) -> bool {
        self.gone.contains(&session) || (kind == BlockKind::Queued && self.freed.contains(&session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{busy, granted, ledger, queued, wait};

    /// 1 holds; 2 queues for it; 3 behind 2; 4 behind 3 and behind 9, which holds something else as well.
    fn line() -> Ledger {
        let waits = vec![
            wait(2, 7, 900, &[granted(1, 100)]),
            wait(3, 7, 910, &[queued(2, 900)]),
            wait(4, 7, 920, &[queued(3, 910), granted(9, 100)]),
        ];
        ledger(1000, waits, vec![busy(1, 100), busy(9, 100)])
    }

    #[test]
    fn whoever_waits_only_for_those_that_go_is_freed_and_so_is_the_line_behind() {
        let absent = Absent::of(&line(), &[SessionKey(1)].into());
        assert_eq!(absent.freed, [SessionKey(2), SessionKey(3)].into());
        assert!(absent.is_gone(SessionKey(1)) && !absent.is_gone(SessionKey(2)));
    }

    #[test]
    fn while_another_is_in_the_way_nobody_is_freed() {
        let absent = Absent::of(&line(), &[SessionKey(3)].into());
        assert!(absent.freed.is_empty());
        let both = Absent::of(&line(), &[SessionKey(3), SessionKey(9)].into());
        assert_eq!(both.freed, [SessionKey(4)].into());
    }
}
