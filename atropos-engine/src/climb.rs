//! Up the ladder: what becomes of orders in flight at a tick, and what a further rung must be allowed by.
//!
//! A rung is an order like any other: whoever may not be ordered to end at this moment is not met by the next rung either. It
//! waits for as long as that is so, and that is said; in the end the order is given up.

use super::Engine;
use super::explain;
use super::gain;
use super::graph::Graph;
use super::pacing::{Flying, Step};
use super::record::{Effect, OutcomeKind, PassedOver};

impl Engine {
    /// Looks after the orders in flight.
    pub(super) fn pace(&mut self, graph: &Graph, out: &mut Vec<Effect>) {
        for mut flying in std::mem::take(&mut self.flying) {
            let mut step = flying.step(&self.settings, &self.ledger);
            let now_ns = self.ledger.now_ns;
            match step {
                Step::Escalate(rung) => {
                    step = match self.objection(graph, &flying) {
                        None => {
                            self.escalate(&mut flying, rung, out);
                            Step::Wait
                        }
                        Some(reason) => flying.withhold(reason, now_ns),
                    };
                }
                Step::Unseen => step = flying.withhold(PassedOver::WeakEvidence, now_ns),
                Step::Wait | Step::Tell(_) | Step::Finish(_) => {}
            }
            match step {
                Step::Wait | Step::Escalate(_) | Step::Unseen => {}
                Step::Tell(result) => out.push(self.outcome(&flying, result)),
                Step::Finish(result) => {
                    out.push(self.outcome(&flying, result));
                    match result {
                        OutcomeKind::GoneOn => self.guard.slipped(&flying, now_ns),
                        OutcomeKind::Released if flying.is_accepted() => {
                            self.requeue.ended(&self.settings, &flying, now_ns);
                        }
                        _ => {}
                    }
                    continue;
                }
            }
            self.flying.push(flying);
        }
    }

    fn outcome(&self, flying: &Flying, result: OutcomeKind) -> Effect {
        let mut outcome = flying.outcome(&self.ledger, result);
        if let Some(reason) = flying
            .withheld()
            .filter(|_| result == OutcomeKind::Withheld)
        {
            let task = explain::task(&self.settings, &self.ledger, flying.order.task.session);
            outcome.summary.push_str(": ");
            outcome
                .summary
                .push_str(&explain::passed_over(&task, reason));
        }
        Effect::Outcome(outcome)
    }

    /// Why the task of an order may not be met by a further rung now; `None` if it may.
    fn objection(&self, graph: &Graph, flying: &Flying) -> Option<PassedOver> {
        let target = flying.order.task.session;
        let scored = gain::score(&self.settings, &self.ledger, graph);
        let candidate = scored
            .iter()
            .find(|candidate| candidate.session == target)
            .zip(graph.get(target));
        let Some((candidate, node)) = candidate else {
            // By what can be seen at present it is in nobody's way.
            return Some(PassedOver::WeakEvidence);
        };
        self.guard
            .check_again(&self.settings, &self.ledger, node, candidate)
    }
}
