//! The governor against a target that behaves as it is told.

use std::time::Duration;

use proptest::prelude::*;

use super::{Budget, Change, Governor, Reading, Standing, Unit};
use crate::config::Sample;
use crate::engine::input::ResourceId;
use crate::engine::record::Level;

const TICK_NS: u64 = 50_000_000;
const TICKS_A_SECOND: u64 = 20;
const BUDGET: Budget = Budget {
    calm: 0.01,
    suspect: 0.05,
};

/// A unit that is always attached and sees waits for a resource.
fn waits(name: &str, value: u8) -> Unit {
    Unit {
        probes: vec![name.to_owned()],
        level: Level::Calm,
        resource: Some(ResourceId(0)),
        value,
        hot: false,
        sample: None,
        divisible: false,
    }
}

/// The requests: sampled in calm, always attached when suspect.
fn requests() -> Unit {
    Unit {
        probes: vec!["request_begin".to_owned(), "request_end".to_owned()],
        level: Level::Suspect,
        resource: None,
        value: 30,
        hot: true,
        sample: Some(Sample {
            every: Duration::from_secs(5),
            attached: Duration::from_millis(100),
        }),
        divisible: true,
    }
}

/// A target: what share of its CPU time each unit takes while it is attached, and how many cores it uses.
struct World {
    governor: Governor,
    shares: Vec<f64>,
    cores: f64,
    now_ns: u64,
    attached: Vec<bool>,
    changes: Vec<Change>,
    /// Share of the target's CPU time that was taken, by tick.
    taken: Vec<f64>,
}

impl World {
    fn new(units: Vec<Unit>, shares: &[f64]) -> Self {
        let count = units.len();
        Self {
            governor: Governor::new(BUDGET, units, 0),
            shares: shares.to_vec(),
            cores: 1.0,
            now_ns: 0,
            attached: vec![false; count],
            changes: Vec::new(),
            taken: Vec::new(),
        }
    }

    fn tick(&mut self) {
        for unit in 0..self.shares.len() {
            self.attached[unit] = self.governor.wants(unit, self.now_ns);
        }
        self.now_ns += TICK_NS;
        let cpu_ns = TICK_NS as f64 * self.cores;
        let cost = |unit: usize| self.attached[unit].then(|| (self.shares[unit] * cpu_ns) as u64);
        let costs_ns: Vec<Option<u64>> = (0..self.shares.len()).map(cost).collect();
        self.taken
            .push(costs_ns.iter().flatten().sum::<u64>() as f64 / cpu_ns);
        let reading = Reading {
            at_ns: self.now_ns,
            cpu_ns: cpu_ns as u64,
            costs_ns: &costs_ns,
        };
        self.changes.extend(self.governor.read(&reading));
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * TICKS_A_SECOND {
            self.tick();
        }
    }

    /// The most that was taken on average over any stretch of so many seconds, from `from_s` on.
    fn worst(&self, from_s: u64, stretch_s: u64) -> f64 {
        let (from, stretch) = (
            (from_s * TICKS_A_SECOND) as usize,
            (stretch_s * TICKS_A_SECOND) as usize,
        );
        self.taken[from..]
            .windows(stretch)
            .map(|ticks| ticks.iter().sum::<f64>() / stretch as f64)
            .fold(0.0, f64::max)
    }

    fn shed(&self) -> Vec<usize> {
        self.governor.shed().collect()
    }
}

#[test]
fn within_the_budget_nothing_changes() {
    let mut world = World::new(vec![waits("wait", 80), requests()], &[0.004, 0.2]);
    world.run(60);
    assert_eq!(world.changes, []);
    assert!(world.attached[0]);
}

#[test]
fn a_site_that_costs_a_third_of_the_target_is_let_go_with_the_first_reading() {
    let mut world = World::new(vec![waits("wait", 80)], &[0.33]);
    world.tick();
    assert_eq!(world.changes.len(), 1);
    assert_eq!(
        (world.changes[0].from, world.changes[0].to),
        (Standing::Whole, Standing::Shed)
    );
    assert_eq!(world.shed(), [0]);
    world.tick();
    assert!(!world.attached[0]);
}

#[test]
fn requests_are_sampled_less_often_before_anything_else_is_touched() {
    let mut world = World::new(vec![requests(), waits("wait", 10)], &[0.2, 0.01]);
    world.governor.enter(Level::Suspect, 0);
    world.run(10);
    assert!(
        world.changes.iter().all(|change| change.unit == 0),
        "{:?}",
        world.changes
    );
    assert_eq!(
        world.changes.last().map(|change| change.to),
        Some(Standing::Halved(3))
    );
    assert!(world.worst(4, 4) <= BUDGET.suspect);
    assert!(world.attached[1], "however little it is worth");
}

#[test]
fn what_is_dear_and_cannot_be_kept_takes_nothing_else_with_it() {
    let mut world = World::new(vec![waits("dear", 90), waits("cheap", 10)], &[0.5, 0.005]);
    world.run(10);
    assert_eq!(world.shed(), [0]);
}

#[test]
fn of_two_that_do_not_fit_together_the_more_valuable_stays() {
    let mut world = World::new(vec![waits("less", 40), waits("more", 60)], &[0.008, 0.008]);
    world.run(10);
    assert_eq!(world.shed(), [0]);
}

#[test]
fn a_burst_of_waits_at_an_idle_target_is_not_too_much() {
    let mut world = World::new(vec![waits("wait", 80)], &[0.0]);
    // A stalled server that uses a hundredth of a core, and 2,000 waits of 1.4 µs within one tick.
    world.cores = 0.01;
    world.run(5);
    world.shares[0] = 2000.0 * 1400.0 / (TICK_NS as f64 * world.cores);
    world.tick();
    world.shares[0] = 0.0;
    world.run(5);
    assert_eq!(world.changes, []);
}

#[test]
fn what_was_shed_comes_back_when_the_load_falls() {
    let mut world = World::new(vec![waits("wait", 80)], &[0.33]);
    world.run(20);
    assert_eq!(world.shed(), [0]);
    world.shares[0] = 0.001;
    world.run(60);
    assert_eq!(world.shed(), [0; 0]);
    assert!(world.attached[0]);
}

#[test]
fn what_is_sampled_less_often_comes_back_only_after_a_while() {
    let mut world = World::new(vec![requests()], &[0.2]);
    world.governor.enter(Level::Suspect, 0);
    world.run(10);
    world.shares[0] = 0.001;
    world.run(3);
    assert_ne!(
        world.changes.last().map(|change| change.to),
        Some(Standing::Whole)
    );
    world.run(60);
    assert_eq!(
        world.changes.last().map(|change| change.to),
        Some(Standing::Whole)
    );
}

#[test]
fn each_level_has_its_budget_and_remembers_what_it_allowed() {
    let mut world = World::new(vec![waits("wait", 80)], &[0.03]);
    world.run(10);
    assert_eq!(world.shed(), [0], "too much for calm");
    world.governor.enter(Level::Suspect, world.now_ns);
    world.tick();
    assert!(world.attached[0], "not too much when suspect");
    world.governor.enter(Level::Calm, world.now_ns);
    world.tick();
    assert_eq!(world.shed(), [0]);
}

#[test]
fn a_sample_in_calm_is_as_often_and_as_long_as_the_preset_says() {
    let mut world = World::new(vec![requests()], &[0.2]);
    let mut ticks = 0;
    for _ in 0..50 * TICKS_A_SECOND {
        world.tick();
        ticks += u64::from(world.attached[0]);
    }
    assert_eq!(ticks, 10 * 2, "two ticks every five seconds");
}

#[test]
fn a_sample_that_comes_between_two_looks_is_as_long_as_it_should_be_on_average() {
    let mut world = World::new(vec![requests()], &[0.001]);
    let (mut samples, mut attached_ns) = (0_u64, 0);
    let mut since_ns = None;
    for _ in 0..500 * TICKS_A_SECOND {
        world.tick();
        let now_ns = world.now_ns;
        match since_ns {
            None if world.attached[0] => {
                // The kernel took that long.
                let late_ns = samples * 19_000_000 % TICK_NS;
                since_ns = Some(now_ns - TICK_NS + late_ns);
                world.governor.attached(0, now_ns - TICK_NS + late_ns);
            }
            Some(since) if !world.attached[0] => {
                samples += 1;
                attached_ns += now_ns - TICK_NS - since;
                since_ns = None;
            }
            _ => {}
        }
    }
    let mean_ms = attached_ns / samples / 1_000_000;
    assert!((98..=102).contains(&mean_ms), "{mean_ms} ms");
}

#[test]
fn a_sample_shorter_than_a_tick_is_taken_at_one_look() {
    let mut unit = requests();
    unit.sample = Some(Sample {
        every: Duration::from_secs(5),
        attached: Duration::from_millis(10),
    });
    let mut world = World::new(vec![unit], &[0.001]);
    let mut ticks = 0;
    for _ in 0..50 * TICKS_A_SECOND {
        world.tick();
        ticks += u64::from(world.attached[0]);
    }
    assert_eq!(ticks, 10, "one tick every five seconds");
}

#[test]
fn calm_ends_what_suspicion_attached_and_the_next_sample_comes_in_its_time() {
    let mut world = World::new(vec![requests()], &[0.001]);
    world.run(10);
    world.governor.enter(Level::Suspect, world.now_ns);
    world.run(7);
    assert!(world.attached[0]);
    world.governor.enter(Level::Calm, world.now_ns);
    let mut ticks = 0;
    for _ in 0..4 * TICKS_A_SECOND {
        world.tick();
        ticks += u64::from(world.attached[0]);
    }
    assert_eq!(ticks, 0);
    let sampled = (0..2 * TICKS_A_SECOND).any(|_| {
        world.tick();
        world.attached[0]
    });
    assert!(sampled);
}

#[test]
fn a_load_that_swings_about_the_budget_does_not_make_the_probes_flap() {
    let mut world = World::new(vec![waits("wait", 80)], &[0.0]);
    for round in 0..60 {
        world.shares[0] = if round % 2 == 0 { 0.03 } else { 0.001 };
        world.run(10);
    }
    assert!(
        world.changes.len() <= 24,
        "{} changes in ten minutes",
        world.changes.len()
    );
}

fn unit() -> impl Strategy<Value = (Unit, f64)> {
    let share = prop_oneof![Just(0.0), 0.0001..0.02, 0.01..1.0_f64];
    let waits = (0..=100_u8).prop_map(|value| waits("wait", value));
    (prop_oneof![3 => waits, 1 => Just(requests())], share)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_constant_load_stays_within_the_budget_and_at_rest(
        units in prop::collection::vec(unit(), 1..6),
        cores in 0.2..8.0_f64,
        suspect in any::<bool>(),
    ) {
        let (units, shares): (Vec<_>, Vec<_>) = units.into_iter().unzip();
        let count = units.len();
        let mut world = World::new(units.clone(), &shares);
        world.cores = cores;
        let level = if suspect { Level::Suspect } else { Level::Calm };
        world.governor.enter(level, 0);
        world.run(300);
        let budget = BUDGET.of(level);
        // After two windows, and over a time in which samples are not the whole truth; trials have a part of their own.
        let worst = world.worst(10, 120);
        prop_assert!(worst <= budget * 1.25, "{worst} of {budget}");
        // Each unit finds its place and keeps it.
        prop_assert!(world.changes.len() <= 3 * count, "{:?}", world.changes);
        // Nobody is shed for the sake of something that is worth less.
        for shed in world.shed() {
            let rank = |unit: &Unit| (!unit.hot, unit.value);
            let above: f64 = (0..count)
                .filter(|other| *other != shed && rank(&units[*other]) >= rank(&units[shed]))
                .map(|other| world.governor.share(other))
                .sum();
            prop_assert!(world.governor.share(shed) + above > budget * super::RELAX * 0.9);
        }
    }
}
