//! What is usual: how much others took of the same thing lately. Whoever takes no more than its peers is not to blame for
//! what all of them do together.

use std::collections::VecDeque;

/// A task stands out if it takes so many times what is usual (the median of its peers). 20: sizes of like requests are spread
/// about exponentially at worst, and among a million of them the largest is twenty times the median; culprits of known
/// incidents take a hundred times and more. Half of it ends the unlucky in an overload by demand; twice of it finds culprits
/// later, when they have taken twice as much.
pub(super) const STAND_OUT: u64 = 20;

/// What is usual is told by so much of the past: five seconds, ten windows, so that a change of the load is usual soon.
pub(super) const MEMORY_NS: u64 = 5_000_000_000;

/// ... and by so many at most.
const MOST: usize = 256;

/// What others took lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers {
    recent: VecDeque<(u64, u64)>,
}

impl Peers {
    /// One more took `amount` and is done with it. Nothing is no amount.
    pub(super) fn add(&mut self, at_ns: u64, amount: u64) {
        self.add_to(MOST, at_ns, amount);
    }

    /// The same where no more than so many are to be remembered.
    pub(super) fn add_to(&mut self, most: usize, at_ns: u64, amount: u64) {
        if amount == 0 {
            return;
        }
        if self.recent.len() >= most {
            self.recent.pop_front();
        }
        self.recent.push_back((at_ns, amount));
    }

    /// Forgets what is past; true if nothing is left.
    pub(super) fn forget(&mut self, now_ns: u64) -> bool {
        while self
            .recent
            .front()
            .is_some_and(|(at_ns, _)| at_ns.saturating_add(MEMORY_NS) < now_ns)
        {
            self.recent.pop_front();
        }
        self.recent.is_empty()
    }

    /// How many are remembered.
    pub(super) fn count(&self) -> usize {
        self.recent.len()
    }

    /// The median of the remembered ones and of `present`; `None` without any.
    pub(super) fn usual(&self, present: impl Iterator<Item = u64>) -> Option<u64> {
        let mut all: Vec<u64> = self
            .recent
            .iter()
            .map(|(_, amount)| *amount)
            .chain(present.filter(|amount| *amount > 0))
            .collect();
        let middle = all.len().checked_sub(1)? / 2;
        Some(*all.select_nth_unstable(middle).1)
    }
}

/// Whether an amount is far beyond what is usual. With no peers at all there is nothing to stand out from.
pub(super) fn stands_out(amount: u64, usual: Option<u64>) -> bool {
    usual.is_none_or(|usual| amount >= usual.saturating_mul(STAND_OUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_usual_is_the_median_and_a_few_large_ones_do_not_move_it() {
        let mut peers = Peers::default();
        for amount in [3, 1, 2, 0, 900, 800] {
            peers.add(10, amount);
        }
        assert_eq!(peers.usual([1].into_iter()), Some(2));
        assert!(peers.forget(10 + MEMORY_NS + 1));
        assert_eq!(peers.usual(std::iter::empty()), None);
    }

    #[test]
    fn twenty_times_the_usual_stands_out_and_less_does_not() {
        assert!(stands_out(200, Some(10)));
        assert!(!stands_out(199, Some(10)));
        assert!(stands_out(1, None));
    }
}
