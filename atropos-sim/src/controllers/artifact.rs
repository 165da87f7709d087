//! The rules of the paper's published artifact, which differ from the paper's text. Sources: OrderLab/Atropos
//! `libs/src/stat.c`; easonycliu/AutoCancelJavaLib `core/policy`.
//!
//! Both look at throughput alone. C: overload if each of the last five seconds is below half of the mean of the best three
//! of the last 30 s (history cut to 8 s here, since trouble begins at 10 s: that favours it); multi-objective score with
//! gains normalised by their sum, unknown progress and the last 20 % are never chosen; 10 s pause. Java: the mean of the last
//! two one-second cycles below 80 % of the mean of the best three of 30, for more than two cycles; usage as a share of
//! all, times remaining time (half done if unknown); the processor counts a third; 10 s pause.

use std::collections::VecDeque;
use std::sync::Arc;

use super::usage::{measure, to_go};
use super::{Action, Controller, Seen};
use crate::plan::Plan;

const SECOND_NS: u64 = 1_000_000_000;
const PAUSE_NS: u64 = 10 * SECOND_NS;

/// Which of the two libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// The one for C and C++.
    C,
    /// The one for Java.
    Java,
}

/// The artifact.
pub(crate) struct Artifact {
    plan: Arc<Plan>,
    library: Library,
    served: VecDeque<f64>,
    cycles_below: u32,
    acted_ns: Option<u64>,
}

impl Artifact {
    /// One of the libraries.
    pub(crate) fn new(plan: &Arc<Plan>, library: Library) -> Self {
        Self {
            plan: plan.clone(),
            library,
            served: VecDeque::new(),
            cycles_below: 0,
            acted_ns: None,
        }
    }

    fn is_over(&mut self, seen: &Seen) -> bool {
        self.served.push_back(seen.done_count as f64);
        if self.served.len() > 30 {
            self.served.pop_front();
        }
        let mut best: Vec<f64> = self.served.iter().copied().collect();
        best.sort_by(|a, b| b.total_cmp(a));
        let normal = best.iter().take(3).sum::<f64>() / 3.0;
        let recent = |count: usize| self.served.iter().rev().take(count);
        match self.library {
            Library::C => self.served.len() >= 8 && recent(5).all(|served| *served < 0.5 * normal),
            Library::Java => {
                let mean = recent(2).sum::<f64>() / 2.0;
                self.cycles_below = if mean < 0.8 * normal {
                    self.cycles_below + 1
                } else {
                    0
                };
                self.served.len() >= 3 && self.cycles_below > 2
            }
        }
    }

    /// What is left of a task's work, over what is done; `None` if the library never chooses such a task.
    fn factor(&self, progress: Option<f64>, age_s: f64) -> Option<f64> {
        match self.library {
            Library::C => progress
                .filter(|p| *p > 0.0 && *p < 0.8)
                .map(|p| to_go(Some(p))),
            Library::Java => Some(to_go(progress) * age_s),
        }
    }
}

impl Controller for Artifact {
    fn tick_ns(&self) -> u64 {
        SECOND_NS
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let paused = self
            .acted_ns
            .is_some_and(|acted_ns| seen.now_ns < acted_ns + PAUSE_NS);
        if !self.is_over(seen) || paused || seen.tasks.len() < 4 {
            return;
        }
        let mut usage = measure(&self.plan, seen, u64::MAX);
        let cpu = self.plan.line_count();
        if self.library == Library::Java {
            usage.levels[cpu] /= 3.0;
        }
        let gains: Vec<Vec<f64>> = usage
            .tasks
            .iter()
            .map(|(task, used)| {
                let age_s = (seen.now_ns - task.started_ns) as f64 / 1e9;
                let factor = self.factor(task.progress, age_s).unwrap_or(0.0);
                used.iter().map(|used| used * factor).collect()
            })
            .collect();
        let sums: Vec<f64> = (0..usage.levels.len())
            .map(|r| gains.iter().map(|gain| gain[r]).sum::<f64>().max(1e-9))
            .collect();
        let score = |gain: &[f64]| {
            (0..sums.len())
                .map(|r| gain[r] / sums[r] * usage.levels[r])
                .sum::<f64>()
        };
        let best = gains
            .iter()
            .map(|gain| score(gain))
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((index, _)) = best.filter(|(_, score)| *score > 0.0) else {
            return;
        };
        self.acted_ns = Some(seen.now_ns);
        let task = usage.tasks[index].0;
        // If the best may not be cancelled nothing is, and the pause is spent.
        if !task.killed && !task.protected {
            out.push(task.end(false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{plan, summary};

    #[test]
    fn a_drop_of_the_load_is_taken_for_an_overload() {
        let quiet = plan(
            "innocent",
            "",
            "[[classes]]\nname = 'small'\nsteps = [{ cpu = '~4ms' }]\n\
             [[classes]]\nname = 'job'\nsteps = [{ cpu = '7s' }]\n\
             [[clients]]\nclass = 'small'\nsend = { poisson = 300.0 }\nto = '3s'\n\
             [[clients]]\nclass = 'job'\nsend = { at = ['1s', '1s', '1s', '1s', '1s', '1s'] }\n",
        );
        assert!(summary(&quiet, "artifact-java").wrong_count > 0.0);
    }

    #[test]
    fn progress_that_is_not_told_protects_from_the_c_library() {
        let stalled = |progress: &str| {
            plan(
                "synchronisation",
                "'hog'",
                &format!(
                    "locks = [{{ name = 'table' }}]\n\
                     [[classes]]\nname = 'small'\nsteps = [{{ lock = {{ of = 'table' }} }}, {{ cpu = '~1ms' }}]\n\
                     [[classes]]\nname = 'hog'\nprogress = '{progress}'\nsteps = [{{ lock = {{ of = 'table' }} }}, {{ sleep = '60s' }}]\n\
                     [[clients]]\nclass = 'small'\nsend = {{ poisson = 200.0 }}\n\
                     [[clients]]\nclass = 'hog'\nsend = {{ at = ['2s'] }}\ninjected = true\n"
                ),
            )
        };
        assert!(summary(&stalled("right"), "artifact-c").culprit_drops > 0.9);
        assert!(summary(&stalled("missing"), "artifact-c").culprit_drops < f64::EPSILON);
    }
}
