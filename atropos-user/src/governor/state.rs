//! What is kept of one unit.

use crate::engine::record::Level;

use super::allot::Demand;
use super::load::Load;
use super::unit::{Standing, Unit};

/// How long something must have fitted before it comes back, and the least time between two trials of what was shed. 5 s.
const HOLD_NS: u64 = 5_000_000_000;

/// Each relapse doubles that, so often at most: 80 s.
const MAX_DOUBLINGS: u32 = 4;

/// What came back and stayed for so long has not relapsed. 60 s.
const SETTLED_NS: u64 = 60_000_000_000;

/// A trial lasts for so long. 100 ms: two ticks.
const TRIAL_NS: u64 = 100_000_000;

/// All trials together may take this share of the budget on average. 0.15: what takes all of the target's time is tried
/// once in 133 s of calm, once in 22 s when suspect.
const TRIAL_SHARE: f64 = 0.15;

/// For how long a unit without a sample of its own is attached at a time when it may not be attached always. 100 ms.
const CYCLE_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct State {
    pub(super) unit: Unit,
    pub(super) load: Load,
    /// By level: calm, suspect.
    pub(super) standing: [Standing; 2],
    pub(super) better_since_ns: Option<u64>,
    raised_ns: Option<u64>,
    doublings: u32,
    pub(super) next_trial_ns: u64,
    pub(super) trial: bool,
    /// When the current cycle began: attached first, then not.
    cycle_ns: Option<u64>,
}

impl State {
    pub(super) fn new(unit: Unit) -> Self {
        Self {
            load: Load::new(unit.divisible),
            unit,
            standing: [Standing::Whole; 2],
            better_since_ns: None,
            raised_ns: None,
            doublings: 0,
            next_trial_ns: 0,
            trial: false,
            cycle_ns: None,
        }
    }

    /// Whether it is attached at all at a level.
    pub(super) fn takes_part(&self, level: Level) -> bool {
        level == Level::Suspect || self.unit.level == Level::Calm || self.unit.sample.is_some()
    }

    /// What it asks for at a level.
    pub(super) fn demand(&self, level: Level) -> Option<Demand> {
        let duty = self.duty(level)?;
        Some(Demand {
            share: self.load.share() * duty,
            divisible: self.unit.divisible,
        })
    }

    /// The share of the time that level and sample give it.
    fn duty(&self, level: Level) -> Option<f64> {
        if level == Level::Suspect || self.unit.level == Level::Calm {
            return Some(1.0);
        }
        let sample = self.unit.sample?;
        Some(sample.attached.as_secs_f64() / sample.every.as_secs_f64())
    }

    pub(super) fn lower(&mut self, slot: usize, to: Standing, now_ns: u64, budget: f64) {
        self.standing[slot] = to;
        self.better_since_ns = None;
        let relapsed = self
            .raised_ns
            .take()
            .map(|raised| now_ns < raised + SETTLED_NS);
        self.doublings = match relapsed {
            Some(true) => (self.doublings + 1).min(MAX_DOUBLINGS),
            Some(false) => 0,
            None => self.doublings,
        };
        self.trial = false;
        if to == Standing::Shed {
            // What is gone is judged by what it did while it was there, not by the quiet before.
            self.load.judge();
            self.next_trial_ns = now_ns + self.trial_pause_ns(budget);
        }
    }

    pub(super) fn raise(&mut self, slot: usize, to: Standing, now_ns: u64) {
        self.standing[slot] = to;
        self.better_since_ns = None;
        self.raised_ns = Some(now_ns);
        self.trial = false;
    }

    /// Whether it has fitted better for long enough to come back.
    pub(super) fn better_for(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.better_since_ns.get_or_insert(now_ns);
        now_ns >= since_ns + self.hold_ns()
    }

    pub(super) fn begin_trial(&mut self) {
        self.trial = true;
        self.load.begin();
    }

    /// Whether a trial is running and has shown enough: its time is over, or it costs far too much.
    pub(super) fn trial_is_over(&mut self, budget: f64) -> bool {
        if !self.trial {
            return false;
        }
        let (share, seen_ns) = self.load.judge();
        seen_ns >= TRIAL_NS || (seen_ns > 0 && share > 2.0 * budget)
    }

    /// A trial has shown that it is still too much.
    pub(super) fn relapse(&mut self, now_ns: u64, budget: f64) {
        self.trial = false;
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        self.next_trial_ns = now_ns + self.trial_pause_ns(budget);
    }

    /// Whether it should be attached now, where somebody looks each `tick_ns`.
    pub(super) fn wanted(&mut self, level: Level, slot: usize, now_ns: u64, tick_ns: u64) -> bool {
        if !self.takes_part(level) {
            return false;
        }
        let sampled = level == Level::Calm && self.unit.level == Level::Suspect;
        let attached_ns = self.attached_ns();
        let every_ns = match self.unit.sample {
            Some(sample) if sampled => ns(sample.every),
            _ => attached_ns,
        };
        match self.standing[slot] {
            Standing::Shed => self.trial,
            Standing::Whole if !sampled => true,
            Standing::Whole => self.cycle(now_ns, tick_ns, every_ns),
            Standing::Halved(times) => self.cycle(now_ns, tick_ns, every_ns << times),
        }
    }

    /// The attached part of the cycle is over.
    pub(super) fn end_cycle(&mut self, now_ns: u64) {
        self.cycle_ns = now_ns.checked_sub(self.attached_ns());
    }

    /// It has come: the cycle that it was wanted for begins in truth.
    pub(super) fn attached(&mut self, since_ns: u64) {
        if self.cycle_ns.is_some() {
            self.cycle_ns = Some(since_ns);
        }
    }

    /// The attached part ends at the look that is nearest to its end, so that it is as long as it should be on average: at the
    /// look behind it, it would always be longer.
    fn cycle(&mut self, now_ns: u64, tick_ns: u64, every_ns: u64) -> bool {
        let begun_ns = match self.cycle_ns {
            Some(begun_ns) if now_ns < begun_ns.saturating_add(every_ns) => begun_ns,
            _ => *self.cycle_ns.insert(now_ns),
        };
        let attached_ns = self.attached_ns();
        // The first look is always within it, however rare looks are.
        let half_ns = tick_ns.min(attached_ns) / 2;
        now_ns.saturating_add(half_ns) < begun_ns.saturating_add(attached_ns)
    }

    /// For how long it is attached in each cycle.
    fn attached_ns(&self) -> u64 {
        let sample = self.unit.sample;
        sample.map_or(CYCLE_NS, |sample| ns(sample.attached))
    }

    fn hold_ns(&self) -> u64 {
        HOLD_NS << self.doublings
    }

    /// How long nobody may be tried after this one: dear trials are so rare that they take a small share of the budget.
    pub(super) fn trial_price_ns(&self, budget: f64) -> u64 {
        (TRIAL_NS as f64 * self.load.share() / (TRIAL_SHARE * budget)) as u64
    }

    fn trial_pause_ns(&self, budget: f64) -> u64 {
        self.hold_ns().max(self.trial_price_ns(budget))
    }
}

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
