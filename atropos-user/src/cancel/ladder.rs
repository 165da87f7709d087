//! From an order to a report: obeys the mode, sends through the one initiator, times both ends.
//!
//! The ladder itself does not climb. The engine sees whether the target released, and names the rung of the next order.

use crate::engine::input::OrderReport;
use crate::engine::record::Order;
use crate::engine::settings::Mode;

use super::exact::{Attempt, Desk, Exact};
use super::{Answer, Clock, Initiator};

/// An order with everything that is known about carrying it out.
#[derive(Clone, Debug, PartialEq)]
pub struct SentOrder {
    /// What was asked.
    pub order: Order,
    /// The exact command, as a person could type it.
    pub command: String,
    /// When it was handed to the initiator, nanoseconds of `CLOCK_MONOTONIC`.
    pub sent_at_ns: u64,
    /// When the initiator answered.
    pub answered_at_ns: u64,
    /// What it answered.
    pub answer: Answer,
}

impl SentOrder {
    /// For the engine.
    pub fn report(&self) -> OrderReport {
        OrderReport {
            at_ns: self.answered_at_ns,
            order: self.order.order,
            rung: self.order.rung,
            result: self.answer.result.clone(),
        }
    }
}

/// Carries out orders, one at a time.
#[derive(Debug)]
pub struct Ladder<I> {
    initiator: I,
    exact: Option<Exact>,
    /// For how long an order of each rung counts as under way; none, if nobody minds.
    deadlines_ns: Vec<u64>,
    mode: Mode,
    clock: Clock,
}

impl<I: Initiator> Ladder<I> {
    /// A ladder over one initiator.
    pub fn new(initiator: I, mode: Mode, clock: Clock) -> Self {
        Self {
            initiator,
            exact: None,
            deadlines_ns: Vec::new(),
            mode,
            clock,
        }
    }

    /// The same, with an exact way for some rungs, once there is a desk.
    #[must_use]
    pub fn with_exact(self, exact: Option<Exact>) -> Self {
        Self { exact, ..self }
    }

    /// The same, with the deadline of each rung: an order that could not leave until then is not sent, since whoever gave it has
    /// given it up.
    #[must_use]
    pub fn with_deadlines(self, deadlines_ns: Vec<u64>) -> Self {
        Self {
            deadlines_ns,
            ..self
        }
    }

    /// Gives the exact way its desk.
    pub fn equip(&mut self, desk: Box<dyn Desk>) {
        if let Some(exact) = &mut self.exact {
            exact.equip(desk);
        }
    }

    /// The command of an order as a person could type it.
    pub fn command(&self, order: &Order) -> String {
        self.initiator.describe(order.rung, &order.task)
    }

    /// Sends the order if the mode allows it. `&mut self` makes it one at a time.
    pub async fn carry_out(&mut self, order: Order) -> SentOrder {
        let command = self.command(&order);
        let sent_at_ns = (self.clock)();
        let answer = match self.mode {
            Mode::Enforce if self.is_late(&order, sent_at_ns) => {
                Answer::unsent("the way to the target was not free before the order's deadline")
            }
            Mode::Enforce => self.send(&order).await,
            Mode::Observe => Answer::not_sent("mode is observe"),
            Mode::DryRun => Answer::not_sent("mode is dry-run"),
        };
        SentOrder {
            order,
            command,
            sent_at_ns,
            answered_at_ns: (self.clock)(),
            answer,
        }
    }

    fn is_late(&self, order: &Order, now_ns: u64) -> bool {
        let deadline_ns = self.deadlines_ns.get(usize::from(order.rung));
        deadline_ns.is_some_and(|deadline_ns| now_ns.saturating_sub(order.at_ns) >= *deadline_ns)
    }

    async fn send(&mut self, order: &Order) -> Answer {
        let mut why_ordinary = String::new();
        let own = self.initiator.own_ids().contains(&order.task.id);
        if let Some(exact) = self.exact.as_mut().filter(|_| !own) {
            match exact.attempt(order.rung, &order.task).await {
                Attempt::Done(answer) => return answer,
                Attempt::Ordinary(reason) => why_ordinary = reason,
            }
        }
        let mut answer = self.initiator.send(order.rung, &order.task).await;
        if !why_ordinary.is_empty() {
            let apart = if answer.detail.is_empty() { "" } else { "; " };
            answer.detail = format!(
                "{}{apart}sent the ordinary way: {why_ordinary}",
                answer.detail
            );
        }
        answer
    }

    /// The initiator: to keep it warm, ask its own ids, check its permission.
    pub fn initiator(&mut self) -> &mut I {
        &mut self.initiator
    }

    /// Numbers of the agent's own sessions.
    pub fn own_ids(&self) -> Vec<u64> {
        self.initiator.own_ids()
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}
