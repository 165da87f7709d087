//! How often sites are passed while they are attached, kept so that a rate can be told.

use atropos_common::limits::MAX_SITES;

use super::Hits;

/// Attached time and passings. A probe is passed while it comes and for as long as it takes to go, so a rate counts
/// the ticks through which it was there from begin to end, and nothing else.
pub(super) struct Tally {
    /// By unit: attached time in all.
    pub(super) attached_ns: Vec<u64>,
    /// By unit: time of whole ticks.
    whole_ns: Vec<u64>,
    /// By cookie: passings in those ticks.
    whole_hits: Box<Hits>,
}

impl Tally {
    pub(super) fn new(unit_count: usize) -> Self {
        Self {
            attached_ns: vec![0; unit_count],
            whole_ns: vec![0; unit_count],
            whole_hits: Box::new([0; MAX_SITES as usize]),
        }
    }

    /// A unit was attached in a tick, since `since_ns`. Whether it was there for the whole of the tick.
    pub(super) fn tick(
        &mut self,
        unit: usize,
        since_ns: u64,
        (from_ns, now_ns): (u64, u64),
    ) -> bool {
        self.attached_ns[unit] += now_ns.saturating_sub(since_ns.max(from_ns));
        let whole = since_ns <= from_ns;
        if whole {
            self.whole_ns[unit] += now_ns.saturating_sub(from_ns);
        }
        whole
    }

    /// Passings of a site in a whole tick of its unit.
    pub(super) fn passed(&mut self, cookie: u16, passings: u64) {
        self.whole_hits[usize::from(cookie)] += passings;
    }

    /// Passings of a site a second of attached time; 0 if it was never there for a whole tick.
    pub(super) fn per_s(&self, unit: usize, cookie: u16) -> f64 {
        match self.whole_ns[unit] {
            0 => 0.0,
            whole_ns => self.whole_hits[usize::from(cookie)] as f64 * 1e9 / whole_ns as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_whole_ticks_and_attached_time_is_all_of_it() {
        const S: u64 = 1_000_000_000;
        let mut tally = Tally::new(1);
        assert!((tally.per_s(0, 3)).abs() < 1e-9);
        assert!(!tally.tick(0, 5 * S, (4 * S, 6 * S)), "it came in between");
        assert!(tally.tick(0, 5 * S, (6 * S, 8 * S)));
        tally.passed(3, 100);
        assert_eq!(tally.attached_ns, [3 * S]);
        assert!((tally.per_s(0, 3) - 50.0).abs() < 1e-9);
    }
}
