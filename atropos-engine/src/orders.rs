//! Orders: made, followed, taken one rung up, and what is remembered of the work that they end.

use super::Engine;
use super::decide::Judged;
use super::explain;
use super::gain::Scored;
use super::graph::Graph;
use super::guard::class_of;
use super::input::{Activity, ResourceId};
use super::pacing::{Flying, Of};
use super::record::{Effect, Order, PassedOver};
use super::settings::Repeat;

impl Engine {
    /// An order to end a task.
    pub(super) fn order(&mut self, chosen: &Scored) -> Option<Order> {
        let state = self.ledger.state(chosen.session)?.clone();
        let (index, rung) = self.guard.first_rung(&self.settings, &state)?;
        self.ledger.familiar.ended(&state);
        self.order_count += 1;
        self.guard
            .ordered(self.order_count, &state, self.ledger.now_ns);
        Some(Order {
            order: self.order_count,
            decision: self.decision_count,
            at_ns: self.ledger.now_ns,
            task: explain::task(&self.settings, &self.ledger, chosen.session),
            rung: index,
            rung_name: rung.name.clone(),
            expected_gain_s: chosen.gain_s(),
        })
    }

    /// Notes who is left alone for doing again what was ended.
    pub(super) fn note_let_through(&mut self, judged: &[Judged]) {
        if self.settings.tuning.repeat != Repeat::BackOff {
            return;
        }
        let again = judged
            .iter()
            .filter(|judged| judged.verdict == Some(PassedOver::CancelledBefore));
        for judged in again {
            if let Some(state) = self.ledger.state(judged.scored.session) {
                self.guard.again.lets_through(state);
            }
        }
    }

    /// It was ended before, and runs again on advice.
    pub(super) fn runs_again(&self, scored: &Scored) -> bool {
        let state = self.ledger.state(scored.session);
        state.is_some_and(|state| self.requeue.runs_again(state))
    }

    /// Sends an order, and watches what becomes of it.
    pub(super) fn follow(&mut self, order: Order, graph: &Graph, out: &mut Vec<Effect>) {
        let state = self.ledger.state(order.task.session);
        let busy = state.filter(|state| state.activity == Activity::Busy);
        let node = graph.get(order.task.session);
        let blamed_s = (0..).zip(node.into_iter().flat_map(|node| &node.blamed_s));
        let of = Of {
            class: state.and_then(|state| state.class),
            undo_per_s: busy
                .and_then(|state| class_of(&self.settings, state))
                .map_or(0.0, |class| class.undo),
            used: node
                .map(|node| node.uses.iter().map(|used| used.resource).collect())
                .unwrap_or_default(),
            until_gone: false,
            resources: blamed_s
                .filter(|(_, blamed_s)| **blamed_s > 0.0)
                .map(|(r, _)| ResourceId(r))
                .collect(),
        };
        self.flying
            .push(Flying::new(&self.settings, &self.ledger, order.clone(), of));
        out.push(Effect::Cancel(order));
    }

    /// Sends the same task's next rung. It is part of the decision that began it.
    pub(super) fn escalate(&mut self, flying: &mut Flying, rung: u8, out: &mut Vec<Effect>) {
        let before = &flying.order;
        let session = before.task.session;
        self.order_count += 1;
        let order = Order {
            order: self.order_count,
            decision: before.decision,
            at_ns: self.ledger.now_ns,
            task: explain::task(&self.settings, &self.ledger, session),
            rung,
            rung_name: self
                .settings
                .ladder
                .get(usize::from(rung))
                .map(|rung| rung.name.clone())
                .unwrap_or_default(),
            expected_gain_s: before.expected_gain_s,
        };
        if let Some(state) = self.ledger.state(session) {
            self.guard.ordered(order.order, state, self.ledger.now_ns);
        }
        flying.escalate(&self.settings, &self.ledger, order.clone());
        out.push(Effect::Cancel(order));
    }
}
