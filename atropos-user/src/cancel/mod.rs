//! The acting half: carries an engine's order to the application's own cancel entry, and tells what came of it.
//!
//! An [`Initiator`] knows one way in (`mysql`, `postgres`, `signal`, `exec`); the [`Ladder`] owns one initiator, obeys the mode and
//! times every order. Where the preset says how, an order is first put down for the session's own thread to find ([`exact`]). An order reaches the task that it names or nobody: each initiator proves the identity of the task
//! right before it acts, and answers `missed` when the task is gone, `refused` when it cannot be proved, `unsent` when there is
//! no way to the target for now, and `unknown` when the target has heard the command and has not answered.

use std::future::Future;

use crate::engine::input::OrderResult;
use crate::engine::record::{Decision, Task};

mod any;
pub mod credentials;
pub mod exact;
pub mod exec;
mod failure;
pub mod ladder;
pub mod mysql;
pub mod postgres;
mod pulse;
pub mod signal;
mod warm;

pub use any::AnyInitiator;
pub use credentials::{Credentials, Secret};
pub use exact::{Desk, Exact, ExactSettings};
pub use exec::{Exec, ExecRung};
pub use ladder::{Ladder, SentOrder};
pub use mysql::{Endpoint, Mysql, MysqlCommand, MysqlSettings};
pub use postgres::{PgCommand, PgEndpoint, Postgres, PostgresSettings};
pub use signal::{ProcessSignal, Proof, SignalRung, SignalTarget};

/// `CLOCK_MONOTONIC` in nanoseconds. Passed in, so that one place in the agent reads the clock.
pub type Clock = fn() -> u64;

/// What an initiator says about one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For the engine.
    pub result: OrderResult,
    /// For a person: why it was missed or refused, what was seen; may be empty.
    pub detail: String,
}

impl Answer {
    /// The target took the command.
    pub fn accepted() -> Self {
        Self {
            result: OrderResult::Accepted,
            detail: String::new(),
        }
    }

    /// The task had ended; nobody was hit.
    pub fn missed(detail: impl Into<String>) -> Self {
        Self {
            result: OrderResult::Missed,
            detail: detail.into(),
        }
    }

    /// The target or the identity check refused; nobody was hit.
    pub fn refused(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            result: OrderResult::Refused(reason.clone()),
            detail: reason,
        }
    }

    /// The command was sent and nothing came back: the target may still carry it out.
    pub fn unknown(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            result: OrderResult::Unknown(reason.clone()),
            detail: reason,
        }
    }

    /// There is no way to the target for now; it has not heard of the order.
    pub fn unsent(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            result: OrderResult::Unsent(reason.clone()),
            detail: reason,
        }
    }

    /// The mode forbids sending.
    pub fn not_sent(detail: impl Into<String>) -> Self {
        Self {
            result: OrderResult::NotSent,
            detail: detail.into(),
        }
    }
}

/// One way into an application's own cancel entry. Every future ends within the initiator's time limit.
pub trait Initiator: Send {
    /// The exact command for this rung and task, such as a person could type.
    fn describe(&self, rung: u8, task: &Task) -> String;

    /// Proves that `task` is still the one that was meant, and ends it.
    fn send(&mut self, rung: u8, task: &Task) -> impl Future<Output = Answer> + Send;

    /// Tries, without touching anybody, whether orders would be allowed. The error says what is missing and the next step.
    fn check_permission(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// Numbers (as in [`Task::id`]) of the agent's own sessions at the target: never to be cancelled.
    fn own_ids(&self) -> Vec<u64>;

    /// Keeps the way in open. To be called about once a second, outside the order path; the error says what is wrong
    /// and is the same text until it changes.
    fn keep_warm(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// Lends it what can prove a task's identity and came to be after it was made. Those that ask the target itself need none.
    fn prove_by(&mut self, _proof: Proof) {}

    /// What only the target can tell of a decision, a sentence each: names in the place of numbers. Nothing waits for it.
    fn remarks(&mut self, _decision: &Decision) -> impl Future<Output = Vec<String>> + Send {
        std::future::ready(Vec::new())
    }
}
