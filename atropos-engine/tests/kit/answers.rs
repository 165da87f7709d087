//! What the engine said, as the tests ask for it.

use atropos_engine::record::{
    Decision, Effect, Order, OrderOutcome, OutcomeKind, OverloadState, PassedOver,
};

use super::World;

impl World {
    pub fn orders(&self) -> Vec<&Order> {
        self.effects.iter().filter_map(as_order).collect()
    }

    pub fn decisions(&self) -> Vec<&Decision> {
        self.effects.iter().filter_map(as_decision).collect()
    }

    pub fn outcomes(&self) -> Vec<&OrderOutcome> {
        self.effects.iter().filter_map(as_outcome).collect()
    }

    pub fn outcome_kinds(&self) -> Vec<OutcomeKind> {
        self.outcomes()
            .iter()
            .map(|outcome| outcome.result)
            .collect()
    }

    pub fn overloads(&self) -> Vec<OverloadState> {
        let state = |effect: &Effect| match effect {
            Effect::Overload(note) => Some(note.state),
            _ => None,
        };
        self.effects.iter().filter_map(state).collect()
    }

    /// Why a session was passed over in the latest decision; `None` if it was chosen.
    pub fn verdict(&self, key: u64) -> Option<PassedOver> {
        let decisions = self.decisions();
        let latest = decisions.last().expect("a decision");
        let candidate = latest
            .candidates
            .iter()
            .find(|c| c.task.id == key)
            .expect("a candidate");
        candidate.passed_over.clone()
    }

    /// The ids that orders named, in order.
    pub fn targets(&self) -> Vec<u64> {
        self.orders().iter().map(|order| order.task.id).collect()
    }
}

pub(super) fn as_order(effect: &Effect) -> Option<&Order> {
    match effect {
        Effect::Cancel(order) => Some(order),
        _ => None,
    }
}

fn as_decision(effect: &Effect) -> Option<&Decision> {
    match effect {
        Effect::Decision(decision) => Some(decision),
        _ => None,
    }
}

fn as_outcome(effect: &Effect) -> Option<&OrderOutcome> {
    match effect {
        Effect::Outcome(outcome) => Some(outcome),
        _ => None,
    }
}
