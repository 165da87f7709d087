//! What a session's memory says beside whom it waits for: how far its request is, and what is worth telling of it.

use super::{Unbound, bind};
use crate::config::expr::{Bindings, Bound};
use crate::config::{Note, Step};
use crate::memory::{Fault, Memory};

/// The bound steps of a request's work.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    steps: Vec<BoundStep>,
}

#[derive(Clone, Debug)]
struct BoundStep {
    when: Bound,
    done: Bound,
    total: Bound,
    from: f64,
    to: f64,
}

impl Progress {
    /// Binds steps whose expressions know `names`.
    pub(super) fn bind(steps: &[Step], names: &Bindings) -> Result<Self, Unbound> {
        let step = |step: &Step| {
            let Step {
                when,
                done,
                total,
                from,
                to,
            } = step;
            Ok(BoundStep {
                when: bind(when, names)?,
                done: bind(done, names)?,
                total: bind(total, names)?,
                from: *from,
                to: *to,
            })
        };
        Ok(Self {
            steps: steps.iter().map(step).collect::<Result<_, _>>()?,
        })
    }

    /// Share of the request's work that is done, 0 to 1. Unknown outside every step, and while a step's whole is unknown;
    /// a count that has outrun its estimate is the end of the step.
    pub(super) fn share(&self, of: &[u64], memory: &dyn Memory) -> Result<Option<f64>, Fault> {
        for step in &self.steps {
            if step.when.eval(of, memory)? == 0 {
                continue;
            }
            let (done, total) = (step.done.eval(of, memory)?, step.total.eval(of, memory)?);
            return Ok((total != 0).then(|| {
                let share = (done as f64 / total as f64).min(1.0);
                step.from + (step.to - step.from) * share
            }));
        }
        Ok(None)
    }
}

/// The bound notes.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    notes: Vec<(Bound, u64)>,
}

impl Notes {
    /// Binds notes whose expressions know `names`.
    pub(super) fn bind(notes: &[Note], names: &Bindings) -> Result<Self, Unbound> {
        let notes = notes
            .iter()
            .map(|note| Ok((bind(&note.value, names)?, note.least)));
        Ok(Self {
            notes: notes.collect::<Result<_, _>>()?,
        })
    }

    /// Index and value of each note that is worth telling of this session.
    pub(super) fn of(&self, of: &[u64], memory: &dyn Memory) -> Vec<(usize, u64)> {
        let worth = |(index, (value, least)): (usize, &(Bound, u64))| {
            let value = value.eval(of, memory).ok()?;
            (value >= *least).then_some((index, value))
        };
        self.notes.iter().enumerate().filter_map(worth).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::expr::Expr;

    /// Memory that nobody reads.
    struct Nothing;

    impl Memory for Nothing {
        fn read(&self, address: u64, _: &mut [u8]) -> Result<(), Fault> {
            Err(Fault { address })
        }
    }

    fn bound(text: &str) -> Bound {
        let names = Bindings::new().with_variables(["phase", "done", "total"]);
        Expr::parse(text).unwrap().bind(&names).unwrap()
    }

    /// A scan that is half of the work, then a write of as much.
    fn share(phase: u64, done: u64, total: u64) -> Option<f64> {
        let step = |phase: &str, from, to| BoundStep {
            when: bound(phase),
            done: bound("done"),
            total: bound("total"),
            from,
            to,
        };
        let progress = Progress {
            steps: vec![step("phase == 1", 0.0, 0.5), step("phase == 2", 0.5, 1.0)],
        };
        progress.share(&[phase, done, total], &Nothing).unwrap()
    }

    #[test]
    fn a_step_is_a_stretch_of_the_whole() {
        assert_eq!(share(1, 0, 100), Some(0.0));
        assert_eq!(share(1, 50, 100), Some(0.25));
        assert_eq!(share(2, 50, 100), Some(0.75));
    }

    #[test]
    fn nothing_is_said_outside_every_step_or_of_an_unknown_whole() {
        assert_eq!(share(3, 50, 100), None);
        assert_eq!(share(1, 50, 0), None);
    }

    #[test]
    fn a_count_beyond_its_estimate_is_the_end_of_the_step() {
        assert_eq!(share(1, 150, 100), Some(0.5));
    }

    #[test]
    fn a_note_is_told_from_its_least_value_on() {
        let notes = Notes {
            notes: vec![(bound("done"), 10), (bound("total"), 10)],
        };
        assert_eq!(notes.of(&[0, 9, 10], &Nothing), [(1, 10)]);
    }
}
