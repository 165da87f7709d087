//! How far a request is, as far as what the target says of it can be believed.
//!
//! Progress is taken at its word until it contradicts the clock: work that was to be done by now and is not, or that has
//! not moved for long. From then on nothing is known of that request's progress.

use super::input::{Activity, SessionState};

/// Told progress that has not moved for so long says nothing. 2 s: scans report once a second.
const STUCK_NS: u64 = 2_000_000_000;

/// Work that was to be done within a time may take so many times that. Plans are wrong by a factor of two as a rule.
const OVERRUN: u64 = 2;

/// ... and this much more, for work that was told in large steps. Half a second: one window.
const GRACE_NS: u64 = 500_000_000;

/// Share done from which on what is left can be told by how long it took so far.
const SETTLED: f64 = 0.5;

/// Plans are revised while they run: told progress may fall by so much.
const SLACK: f64 = 0.05;

/// A request's progress over time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    told: Option<f64>,
    moved_ns: u64,
    /// By when it must be over if what it told is true.
    due_ns: Option<u64>,
    broken: bool,
}

impl Pace {
    /// Takes in what a tick tells of the session; `same` if it is the same request as before.
    pub(super) fn look(&mut self, state: &SessionState, same: bool, at_ns: u64) {
        if !same {
            *self = Self::default();
        }
        let told = state
            .progress
            .filter(|p| *p > 0.0 && *p <= 1.0 && state.activity == Activity::Busy);
        let Some(p) = told else {
            self.told = None;
            return;
        };
        if self.told != told {
            self.broken |= self.told.is_some_and(|before| p + SLACK < before);
            self.moved_ns = at_ns;
        }
        self.told = told;
        if p >= SETTLED && self.due_ns.is_none() {
            let age_ns = at_ns.saturating_sub(state.since_ns);
            let left_ns = (age_ns as f64 * (1.0 - p) / p) as u64;
            let allowed_ns = left_ns.saturating_mul(OVERRUN).saturating_add(GRACE_NS);
            self.due_ns = Some(at_ns.saturating_add(allowed_ns));
        }
        self.broken |= self.due_ns.is_some_and(|due_ns| at_ns > due_ns)
            || at_ns.saturating_sub(self.moved_ns) > STUCK_NS;
    }

    /// Share of the work that is done; `None` if it is not told, or not to be believed.
    pub(super) fn done(&self) -> Option<f64> {
        self.told.filter(|_| !self.broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{MS, busy};

    /// Done so far, after these (milliseconds since the start, told) looks.
    fn after(looks: &[(u64, f64)]) -> Option<f64> {
        let mut pace = Pace::default();
        for (n, (age_ms, told)) in looks.iter().enumerate() {
            let mut state = busy(1, 1000);
            state.progress = Some(*told);
            pace.look(&state, n > 0, (1000 + age_ms) * MS);
        }
        pace.done()
    }

    #[test]
    fn progress_that_agrees_with_the_clock_is_believed() {
        assert_eq!(after(&[(1000, 0.4), (2000, 0.8), (2400, 0.95)]), Some(0.95));
        assert_eq!(after(&[(1000, 0.4), (2000, 0.37)]), Some(0.37));
    }

    #[test]
    fn work_that_is_long_overdue_by_its_own_progress_is_not_believed() {
        // Half done after a second, so it is due after another one; two and a half are allowed.
        assert_eq!(after(&[(1000, 0.5), (3400, 0.99)]), Some(0.99));
        assert_eq!(after(&[(1000, 0.5), (3600, 0.99)]), None);
    }

    #[test]
    fn progress_that_stands_still_or_goes_back_says_nothing() {
        assert_eq!(after(&[(100, 0.05), (2200, 0.05)]), None);
        assert_eq!(after(&[(100, 0.05), (2000, 0.05)]), Some(0.05));
        assert_eq!(after(&[(100, 0.3), (200, 0.1)]), None);
    }

    #[test]
    fn none_and_zero_tell_nothing() {
        assert_eq!(after(&[(100, 0.0)]), None);
        assert_eq!(after(&[(100, 0.3), (200, 0.0)]), None);
    }
}
