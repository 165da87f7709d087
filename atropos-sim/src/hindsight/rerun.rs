//! The engine on a recording: as it was, which tells what was done, and with other settings.

use std::collections::{BTreeMap, BTreeSet};

use atropos_engine::input::{BlockKind, Input, OrderReport, OrderResult, SessionKey};
use atropos_engine::record::{Decision, Effect, Order};
use atropos_engine::{Engine, Settings};

use super::{Line, Side, What, act};

/// What two orders have in common that ask the same of the same.
type Asked = (SessionKey, u64, u8);

fn asked(order: &Order) -> Asked {
    (order.task.session, order.task.request, order.rung)
}

/// The acts among effects, each with the reason that its decision gives.
fn acts(at_ns: u64, side: Side, effects: &[Effect], lines: &mut Vec<Line>) {
    let mut decision: Option<&Decision> = None;
    for effect in effects {
        match effect {
            Effect::Decision(made) => decision = Some(made),
            Effect::Cancel(order) => {
                let made = decision.filter(|decision| decision.decision == order.decision);
                let why = made.map_or_else(
                    || "the rung before did not help".to_owned(),
                    |decision| decision.summary.clone(),
                );
                let what = What::Act(act(
                    order,
                    made.is_some_and(|made| is_queued(made, order)),
                    why,
                ));
                lines.push(Line { at_ns, side, what });
            }
            _ => {}
        }
    }
}

/// The task that is chosen stands in a queue itself.
fn is_queued(decision: &Decision, order: &Order) -> bool {
    let chosen = decision
        .candidates
        .iter()
        .filter(|candidate| candidate.task.session == order.task.session);
    chosen
        .flat_map(|candidate| &candidate.gains)
        .flat_map(|gain| &gain.instances)
        .any(|held| held.kind == BlockKind::Queued)
}

/// The engine with the recorded settings, and the answers that its orders got.
pub(super) struct Done {
    engine: Engine,
    orders: BTreeMap<u64, Asked>,
    answered: BTreeSet<u64>,
    effects: Vec<Effect>,
}

impl Done {
    /// As the recording began.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            engine: Engine::new(settings.clone()),
            orders: BTreeMap::new(),
            answered: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// Takes the next input in, and tells orders and their answers.
    pub(super) fn handle(&mut self, input: &Input, lines: &mut Vec<Line>) {
        if let Input::Outcome(report) = input {
            self.answered.insert(report.order);
            lines.push(Line {
                at_ns: report.at_ns,
                side: Side::Done,
                what: What::Answer {
                    order: report.order,
                    result: report.result.clone(),
                },
            });
        }
        self.effects.clear();
        self.engine.handle(input, &mut self.effects);
        for effect in &self.effects {
            if let Effect::Cancel(order) = effect {
                self.orders.insert(order.order, asked(order));
            }
        }
        acts(input.at_ns(), Side::Done, &self.effects, lines);
    }

    /// An order for the same is under way.
    fn is_asking(&self, same: Asked) -> bool {
        let mut open = self
            .orders
            .iter()
            .filter(|(order, _)| !self.answered.contains(order));
        open.any(|(_, asked)| *asked == same)
    }
}

/// The engine with other settings. What it orders is written down and not sent, unless it was in fact: then it hears what
/// became of that.
pub(super) struct Rerun {
    engine: Engine,
    /// Orders that were given in fact too, and are not answered yet.
    open: BTreeMap<Asked, u64>,
}

impl Rerun {
    /// With these settings; `again` lets it end the same work again, without a budget for each minute.
    pub(super) fn new(mut settings: Settings, again: bool) -> Self {
        if again {
            settings.tuning.repeat_after_ns = 0;
            settings.tuning.per_minute = settings.tuning.per_hour;
        }
        Self {
            engine: Engine::new(settings),
            open: BTreeMap::new(),
        }
    }

    /// Takes the next input in; `done` has had it already.
    pub(super) fn handle(&mut self, input: &Input, done: &Done, lines: &mut Vec<Line>) {
        let Input::Outcome(report) = input else {
            return self.feed(input, done, lines);
        };
        let own = done
            .orders
            .get(&report.order)
            .and_then(|asked| self.open.remove(asked));
        if let Some(order) = own {
            let report = OrderReport {
                order,
                ..report.clone()
            };
            self.feed(&Input::Outcome(report), done, lines);
        }
    }

    fn feed(&mut self, input: &Input, done: &Done, lines: &mut Vec<Line>) {
        let at_ns = input.at_ns();
        let mut effects = Vec::new();
        self.engine.handle(input, &mut effects);
        acts(at_ns, Side::Would, &effects, lines);
        for effect in &effects {
            let Effect::Cancel(order) = effect else {
                continue;
            };
            if done.is_asking(asked(order)) {
                self.open.insert(asked(order), order.order);
            } else {
                let unsent = OrderReport {
                    at_ns,
                    order: order.order,
                    rung: order.rung,
                    result: OrderResult::NotSent,
                };
                self.feed(&Input::Outcome(unsent), done, lines);
            }
        }
    }
}
