//! How far a session's request is, as far as its memory tells.

use super::{Check, Unbound, bind, bind_checks};
use crate::config::Step;
use crate::config::expr::{Bindings, Bound};
use crate::memory::{Fault, Memory};

/// The bound steps of a request's work.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    steps: Vec<BoundStep>,
}

#[derive(Clone, Debug)]
struct BoundStep {
    when: Bound,
    /// Whatever follows is read in the memory of the session's own process.
    own_process: bool,
    lets: Vec<Bound>,
    checks: Vec<Check>,
    done: Bound,
    total: Bound,
    from: f64,
    to: f64,
    is_estimate: bool,
}

impl Progress {
    /// Binds steps whose expressions know `scope`.
    pub(super) fn bind(steps: &[Step], scope: &[&str], names: &Bindings) -> Result<Self, Unbound> {
        let mut bound = Vec::new();
        for step in steps {
            match BoundStep::bind(step, scope, names) {
                Ok(step) => bound.push(step),
                // Of a process that lacks these names (which is said of it), all but this is known all the same.
                Err(_) if step.own_process => {}
                Err(unbound) => return Err(unbound),
            }
        }
        Ok(Self { steps: bound })
    }

    /// Share of the request's work that is done, 0 to 1. Unknown outside every step, while a step's whole is unknown, and
    /// where a check does not hold; a count that has outrun its whole is the end of the step, one that has outrun an
    /// estimate says that nothing is known. `own` is the memory of the session's own process, asked for when it is needed.
    pub(super) fn share(
        &self,
        of: &[u64],
        memory: &dyn Memory,
        own: impl FnOnce() -> Option<Box<dyn Memory>>,
    ) -> Result<Option<f64>, Fault> {
        for step in &self.steps {
            if step.when.eval(of, memory)? == 0 {
                continue;
            }
            if !step.own_process {
                return step.share(of, memory);
            }
            return own().map_or(Ok(None), |own| step.share(of, own.as_ref()));
        }
        Ok(None)
    }
}

impl BoundStep {
    fn bind(step: &Step, scope: &[&str], names: &Bindings) -> Result<Self, Unbound> {
        let Step {
            when,
            done,
            total,
            from,
            to,
            is_estimate,
            own_process,
            lets,
            checks,
        } = step;
        let mut scope = scope.to_vec();
        let when = bind(when, &names.with_variables(scope.iter().copied()))?;
        let mut bound = Vec::new();
        for (name, formula) in lets {
            bound.push(bind(formula, &names.with_variables(scope.iter().copied()))?);
            scope.push(name);
        }
        let names = names.with_variables(scope);
        Ok(Self {
            when,
            own_process: *own_process,
            lets: bound,
            checks: bind_checks(checks, &names)?,
            done: bind(done, &names)?,
            total: bind(total, &names)?,
            from: *from,
            to: *to,
            is_estimate: *is_estimate,
        })
    }

    /// How far a request in this step is.
    fn share(&self, of: &[u64], memory: &dyn Memory) -> Result<Option<f64>, Fault> {
        let mut of = of.to_vec();
        for bound in &self.lets {
            of.push(bound.eval(&of, memory)?);
        }
        for check in &self.checks {
            if !check.holds(&of, memory)? {
                return Ok(None);
            }
        }
        let (done, total) = (self.done.eval(&of, memory)?, self.total.eval(&of, memory)?);
        if total == 0 || (self.is_estimate && done > total) {
            return Ok(None);
        }
        let share = (done as f64 / total as f64).min(1.0);
        let share = self.from + (self.to - self.from) * share;
        Ok(Some(if self.is_estimate {
            hedged(share)
        } else {
            share
        }))
    }
}

/// Progress by an estimate, as far as it can be believed: what is left for each part that is done, (1 - p) / p, is taken to
/// be the geometric mean of what the estimate says and of 1, which is taken where nothing is known. The estimates of
/// planners are wrong by factors; one that is wrong by ten then moves what is left by three.
fn hedged(share: f64) -> f64 {
    let (done, left) = (share.sqrt(), (1.0 - share).sqrt());
    done / (done + left)
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
        let progress = Progress {
            steps: vec![step("phase == 1", 0.0, 0.5), step("phase == 2", 0.5, 1.0)],
        };
        let nobody = || panic!("nobody's own memory is asked for");
        progress
            .share(&[phase, done, total], &Nothing, nobody)
            .unwrap()
    }

    fn step(when: &str, from: f64, to: f64) -> BoundStep {
        BoundStep {
            when: bound(when),
            own_process: false,
            lets: Vec::new(),
            checks: Vec::new(),
            done: bound("done"),
            total: bound("total"),
            from,
            to,
            is_estimate: false,
        }
    }

    /// Memory that is all ones: each byte has the value 1.
    struct Ones;

    impl Memory for Ones {
        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), Fault> {
            into.fill(1);
            Ok(())
        }
    }

    fn estimated(done: u64, total: u64) -> Option<f64> {
        let step = BoundStep {
            is_estimate: true,
            ..step("phase == 1", 0.0, 1.0)
        };
        let progress = Progress { steps: vec![step] };
        progress
            .share(&[1, done, total], &Nothing, || None)
            .unwrap()
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
    fn an_estimate_counts_half_and_one_that_was_outrun_says_nothing() {
        let left = |p: f64| (1.0 - p) / p;
        assert_eq!(estimated(50, 100), Some(0.5));
        // Nine times as much is left by the estimate, and as much again where nothing is known.
        assert!((left(estimated(10, 100).unwrap()) - 3.0).abs() < 1e-9);
        assert!((left(estimated(90, 100).unwrap()) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(estimated(0, 100), Some(0.0));
        assert_eq!(estimated(100, 100), Some(1.0));
        assert_eq!(estimated(101, 100), None);
    }

    #[test]
    fn what_lies_in_the_own_process_is_read_there_or_not_at_all() {
        let own = |checks: &[&str]| {
            let check = |text: &&str| Check {
                bound: bound(text),
                text: (*text).to_owned(),
            };
            let step = BoundStep {
                own_process: true,
                lets: vec![bound("u8(4096)")],
                checks: checks.iter().map(check).collect(),
                done: bound("u8(4096)"),
                total: bound("2"),
                ..step("phase == 1", 0.0, 1.0)
            };
            Progress { steps: vec![step] }
        };
        let of = [1, 0, 0];
        let ones = || -> Option<Box<dyn Memory>> { Some(Box::new(Ones)) };
        let share = |checks: &[&str]| own(checks).share(&of, &Nothing, ones);
        assert_eq!(share(&["u8(8192) == 1"]), Ok(Some(0.5)));
        assert_eq!(share(&["u8(8192) == 1", "u8(8192) == 2"]), Ok(None));
        assert_eq!(own(&[]).share(&of, &Nothing, || None), Ok(None));
        let nothing = || -> Option<Box<dyn Memory>> { Some(Box::new(Nothing)) };
        assert!(own(&[]).share(&of, &Nothing, nothing).is_err());
    }
}
