//! Runs every controller on every scenario with every seed, and compares each run with what the innocents would have got.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::controllers::names;
use crate::measure::Summary;
use crate::plan::Plan;
use crate::scenario::Family;
use crate::stats::Estimate;
use crate::world::World;

/// What to run.
pub(crate) struct Order {
    pub(crate) plans: Vec<Arc<Plan>>,
    pub(crate) controllers: Vec<String>,
    pub(crate) seeds: std::ops::Range<u64>,
    pub(crate) job_count: usize,
}

/// One controller on one scenario, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) scenario: String,
    pub(crate) family: Family,
    pub(crate) controller: String,
    /// Innocents served, of those served without the trouble.
    pub(crate) throughput: Estimate,
    /// ... within the objective.
    pub(crate) goodput: Estimate,
    /// p99 of innocents, in p99s without the trouble.
    pub(crate) p99: Estimate,
    /// Share of innocents' requests that failed.
    pub(crate) innocent_drops: Estimate,
    /// Share of culprits' requests that failed.
    pub(crate) culprit_drops: Estimate,
    /// Cancels a run.
    pub(crate) cancels: Estimate,
    /// Cancels a run that hit somebody not to blame.
    pub(crate) wrong_cancels: Estimate,
    /// Time a run in which innocents were late or lost, seconds.
    pub(crate) bad_s: Estimate,
    /// Length of the longest episode of such time, seconds: the time to recover.
    pub(crate) recovery_s: Estimate,
    /// Share of the work that came to nothing.
    pub(crate) wasted: Estimate,
}

/// The summaries of one seed: without the trouble, and under each controller.
struct Seeded {
    reference: Summary,
    runs: Vec<Summary>,
}

/// Runs one world; returns its summary and what the controller has to say.
pub(crate) fn one(plan: &Arc<Plan>, controller: &str, seed: u64) -> (Summary, Vec<String>, u64) {
    let made = names::make(controller, plan).expect("names are checked when the order is made");
    let mut world = World::new(plan.clone(), seed, made);
    let happening_count = world.run();
    (
        world.measure.summary(plan),
        world.explain(),
        happening_count,
    )
}

impl Order {
    /// Carries the order out.
    pub(crate) fn run(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for plan in &self.plans {
            let seeded = self.seeded(plan);
            for (n, controller) in self.controllers.iter().enumerate() {
                lines.push(line(plan, controller, n, &seeded));
            }
        }
        lines
    }

    /// All seeds of one scenario, shared out among threads.
    fn seeded(&self, plan: &Arc<Plan>) -> Vec<Seeded> {
        // With nobody to blame there is nothing to take away: the reference is the run without a controller.
        let calm = if plan.scenario.family == Family::Innocent {
            plan.clone()
        } else {
            Arc::new(plan.without_trouble())
        };
        let seeds: Vec<u64> = self.seeds.clone().collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                let reference = one(&calm, "none", *seed).0;
                let runs = self
                    .controllers
                    .iter()
                    .map(|controller| one(plan, controller, *seed).0)
                    .collect();
                done.push((*seed, Seeded { reference, runs }));
            }
            done
        };
        let mut all: Vec<(u64, Seeded)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.job_count.max(1))
                .map(|_| scope.spawn(work))
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("a run does not panic"))
                .collect()
        });
        all.sort_by_key(|(seed, _)| *seed);
        all.into_iter().map(|(_, seeded)| seeded).collect()
    }
}

fn line(plan: &Plan, controller: &str, n: usize, seeded: &[Seeded]) -> Line {
    let plain = |value: fn(&Summary) -> f64| {
        Estimate::of(
            &seeded
                .iter()
                .map(|seeded| value(&seeded.runs[n]))
                .collect::<Vec<_>>(),
        )
    };
    let relative = |value: fn(&Summary) -> f64| {
        let ratios = seeded
            .iter()
            .map(|seeded| value(&seeded.runs[n]) / value(&seeded.reference).max(1.0));
        Estimate::of(&ratios.collect::<Vec<_>>())
    };
    Line {
        scenario: plan.scenario.name.clone(),
        family: plan.scenario.family,
        controller: controller.to_owned(),
        throughput: relative(|summary| summary.served_count),
        goodput: relative(|summary| summary.good_count),
        p99: relative(|summary| summary.p99_ns),
        innocent_drops: plain(|summary| summary.innocent_drops),
        culprit_drops: plain(|summary| summary.culprit_drops),
        cancels: plain(|summary| summary.cancel_count),
        wrong_cancels: plain(|summary| summary.wrong_count),
        bad_s: plain(|summary| summary.bad_s),
        recovery_s: plain(|summary| summary.recovery_s),
        wasted: plain(|summary| summary.wasted),
    }
}
