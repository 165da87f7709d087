//! The governor: keeps what the probes cost within a budget of the target's CPU time.
//!
//! In: what each unit of probes has cost since the reading before, and how much CPU time the target has used. Out: how much
//! of the time each unit may be attached. Pure: no clock, no kernel, no process.
//!
//! Over budget, what is worth least is sampled less often, then let go (*shed*); the most valuable keeps its place as
//! long as it fits at all. What was reduced comes back when the load has been well below the budget for a while, and each
//! relapse makes that while longer, so that nothing flaps. What was shed is tried for a moment now and then: nobody knows
//! what a detached probe would cost.

mod allot;
mod costs;
mod load;
mod state;
#[cfg(test)]
mod tests;
mod unit;

pub use costs::{Costs, Way, Work};
pub use unit::{Budget, Standing, Unit};

use crate::engine::record::Level;
use allot::{Demand, allot};
use state::State;

/// Only what fits into this share of the budget comes back: else it would go again with the next small rise. 0.7.
const RELAX: f64 = 0.7;

/// A level that was left for longer than this starts afresh: what was learned there is out of date. 60 s.
const FORGET_NS: u64 = 60_000_000_000;

/// What was seen since the reading before.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// When, `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// CPU time that the target has used, its probes included.
    pub cpu_ns: u64,
    /// What each unit has cost, by its index; nothing for one that was not attached the whole time.
    pub costs_ns: &'a [Option<u64>],
}

/// A unit may be attached for more or less of the time than before.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Change {
    /// Index of the unit.
    #[serde(skip)]
    pub unit: usize,
    /// Its probes.
    pub probes: Vec<String>,
    /// Level whose budget this is about.
    pub level: Level,
    /// Before.
    pub from: Standing,
    /// From here on.
    pub to: Standing,
    /// Share of the target's CPU time that the unit takes while it is attached, 0 to 1.
    pub share: f64,
    /// The budget in force, as a share.
    pub budget: f64,
}

/// The governor.
#[derive(Debug)]
pub struct Governor {
    budget: Budget,
    units: Vec<State>,
    /// Indices of the units, the most valuable first.
    order: Vec<usize>,
    level: Level,
    read_ns: u64,
    /// Time between the two latest readings.
    tick_ns: u64,
    /// When each level was left.
    left_ns: [Option<u64>; 2],
    /// The trial before has been paid for from then on.
    next_trial_ns: u64,
}

impl Governor {
    /// A governor that lets everything be attached until it has seen what it costs. Begins in calm.
    pub fn new(budget: Budget, units: Vec<Unit>, now_ns: u64) -> Self {
        let mut order: Vec<usize> = (0..units.len()).collect();
        order.sort_by_key(|index| {
            let unit = &units[*index];
            (unit.hot, std::cmp::Reverse(unit.value), *index)
        });
        Self {
            budget,
            units: units.into_iter().map(State::new).collect(),
            order,
            level: Level::Calm,
            read_ns: now_ns,
            tick_ns: 0,
            left_ns: [None; 2],
            next_trial_ns: 0,
        }
    }

    /// The level changes.
    pub fn enter(&mut self, level: Level, now_ns: u64) {
        if self.level == level {
            return;
        }
        self.left_ns[slot(self.level)] = Some(now_ns);
        self.level = level;
        if level == Level::Calm {
            // Whatever was attached beside the calm set goes; the next sample is due in its time.
            for unit in &mut self.units {
                unit.end_cycle(now_ns);
            }
        }
        let stale = self.left_ns[slot(level)].is_none_or(|left| now_ns > left + FORGET_NS);
        if stale {
            let fit = self.fit(self.budget.of(level));
            for (unit, standing) in self.units.iter_mut().zip(fit) {
                unit.standing[slot(level)] = standing;
            }
        }
    }

    /// Takes a reading in; says what changes.
    pub fn read(&mut self, reading: &Reading<'_>) -> Vec<Change> {
        let now_ns = reading.at_ns;
        let elapsed_ns = now_ns.saturating_sub(self.read_ns);
        self.read_ns = now_ns;
        self.tick_ns = elapsed_ns;
        for (unit, cost_ns) in self.units.iter_mut().zip(reading.costs_ns) {
            if let Some(cost_ns) = cost_ns {
                unit.load.add(*cost_ns, reading.cpu_ns, elapsed_ns);
            }
        }
        let before: Vec<Standing> = self.units.iter().map(|unit| self.standing(unit)).collect();
        self.lower(now_ns);
        self.raise(now_ns);
        self.try_again(now_ns);
        let (level, budget) = (self.level, self.budget.of(self.level));
        let after = self.units.iter().map(|unit| self.standing(unit));
        let changed = before.into_iter().zip(after).enumerate();
        changed
            .filter(|(_, (from, to))| from != to)
            .map(|(unit, (from, to))| Change {
                unit,
                probes: self.units[unit].unit.probes.clone(),
                level,
                from,
                to,
                share: self.units[unit].load.share(),
                budget,
            })
            .collect()
    }

    /// Whether a unit should be attached at this moment.
    pub fn wants(&mut self, unit: usize, now_ns: u64) -> bool {
        let (level, tick_ns) = (self.level, self.tick_ns);
        self.units
            .get_mut(unit)
            .is_some_and(|unit| unit.wanted(level, slot(level), now_ns, tick_ns))
    }

    /// A unit that was wanted is there: its attached time counts from here.
    pub fn attached(&mut self, unit: usize, since_ns: u64) {
        if let Some(unit) = self.units.get_mut(unit) {
            unit.attached(since_ns);
        }
    }

    /// Units that are shed at this level.
    pub fn shed(&self) -> impl Iterator<Item = usize> {
        self.units
            .iter()
            .enumerate()
            .filter(|(_, unit)| {
                unit.takes_part(self.level) && self.standing(unit) == Standing::Shed
            })
            .map(|(index, _)| index)
    }

    /// Share of the target's CPU time that a unit takes while it is attached, 0 to 1; 0 while nothing is known.
    pub fn share(&self, unit: usize) -> f64 {
        self.units.get(unit).map_or(0.0, |unit| unit.load.share())
    }

    /// What each unit would be allowed at a level, given what is known of its cost.
    pub fn outlook(&self, level: Level) -> Vec<Standing> {
        self.fit_at(level, self.budget.of(level))
    }

    /// What all units that may be attached take on average, as a share of the target's CPU time.
    fn total(&self) -> f64 {
        let taken = |unit: &State| {
            unit.demand(self.level)
                .map_or(0.0, |demand| demand.share * self.standing(unit).duty())
        };
        self.units.iter().map(taken).sum()
    }

    /// Over budget: nobody keeps more than fits.
    fn lower(&mut self, now_ns: u64) {
        let budget = self.budget.of(self.level);
        if self.total() <= budget {
            return;
        }
        let (fit, slot) = (self.fit(budget), slot(self.level));
        for (unit, fit) in self.units.iter_mut().zip(fit) {
            if fit < unit.standing[slot] {
                unit.lower(slot, fit, now_ns, budget);
            }
        }
    }

    /// What was sampled less often comes back once it has fitted for a while.
    fn raise(&mut self, now_ns: u64) {
        let (fit, slot) = (self.room(), slot(self.level));
        for (unit, fit) in self.units.iter_mut().zip(fit) {
            let standing = unit.standing[slot];
            if standing == Standing::Shed || fit <= standing {
                unit.better_since_ns = None;
            } else if unit.better_for(now_ns) {
                unit.raise(slot, fit, now_ns);
            }
        }
    }

    /// What was shed is attached for a moment; if it would fit now, it comes back.
    fn try_again(&mut self, now_ns: u64) {
        let (budget, level, slot) = (self.budget.of(self.level), self.level, slot(self.level));
        for index in 0..self.units.len() {
            if self.units[index].trial_is_over(budget) {
                let fit = self.room()[index];
                let unit = &mut self.units[index];
                self.next_trial_ns = now_ns.saturating_add(unit.trial_price_ns(budget));
                if fit > Standing::Shed {
                    unit.raise(slot, fit, now_ns);
                } else {
                    unit.relapse(now_ns, budget);
                }
            }
        }
        if now_ns < self.next_trial_ns || self.units.iter().any(|unit| unit.trial) {
            return;
        }
        let is_due = |index: &usize| {
            let unit = &self.units[*index];
            unit.takes_part(level)
                && unit.standing[slot] == Standing::Shed
                && now_ns >= unit.next_trial_ns
        };
        // Whose turn has been due for longest: a dear one must not keep the others from theirs.
        let due = self
            .order
            .iter()
            .copied()
            .filter(is_due)
            .min_by_key(|index| self.units[*index].next_trial_ns);
        if let Some(index) = due {
            self.units[index].begin_trial();
        }
    }

    fn standing(&self, unit: &State) -> Standing {
        unit.standing[slot(self.level)]
    }

    /// What each unit may have of a budget at this level, whatever it has now.
    fn fit(&self, budget: f64) -> Vec<Standing> {
        self.fit_at(self.level, budget)
    }

    fn fit_at(&self, level: Level, budget: f64) -> Vec<Standing> {
        let nothing = vec![Standing::Shed; self.units.len()];
        allot(&self.order, &self.demands(level), &nothing, budget)
    }

    /// What each unit could have more, while all others keep what they have.
    fn room(&self) -> Vec<Standing> {
        let has: Vec<Standing> = self.units.iter().map(|unit| self.standing(unit)).collect();
        let budget = self.budget.of(self.level) * RELAX;
        allot(&self.order, &self.demands(self.level), &has, budget)
    }

    fn demands(&self, level: Level) -> Vec<Option<Demand>> {
        self.units.iter().map(|unit| unit.demand(level)).collect()
    }
}

/// Index of a level in what is kept for both.
fn slot(level: Level) -> usize {
    usize::from(level == Level::Suspect)
}
