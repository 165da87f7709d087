//! The initiators as one type, chosen by the preset at run time.

use crate::engine::record::{Decision, Task};

use super::{Answer, Exec, Initiator, Mysql, Postgres, ProcessSignal, Proof};

/// Any of the initiators.
#[derive(Debug)]
pub enum AnyInitiator {
    /// `MariaDB`'s KILL over a warm connection.
    Mysql(Box<Mysql>),
    /// `PostgreSQL`'s functions over a warm connection.
    Postgres(Box<Postgres>),
    /// A signal to a process or thread.
    Signal(Box<ProcessSignal>),
    /// A program of the user's.
    Exec(Box<Exec>),
    /// No way in is configured: every order is refused with this reason.
    None(String),
}

impl Initiator for AnyInitiator {
    fn describe(&self, rung: u8, task: &Task) -> String {
        match self {
            Self::Mysql(one) => one.describe(rung, task),
            Self::Postgres(one) => one.describe(rung, task),
            Self::Signal(one) => one.describe(rung, task),
            Self::Exec(one) => one.describe(rung, task),
            Self::None(_) => format!("end session {}", task.id),
        }
    }

    async fn send(&mut self, rung: u8, task: &Task) -> Answer {
        match self {
            Self::Mysql(one) => one.send(rung, task).await,
            Self::Postgres(one) => one.send(rung, task).await,
            Self::Signal(one) => one.send(rung, task).await,
            Self::Exec(one) => one.send(rung, task).await,
            Self::None(reason) => Answer::refused(reason.clone()),
        }
    }

    async fn check_permission(&mut self) -> Result<(), String> {
        match self {
            Self::Mysql(one) => one.check_permission().await,
            Self::Postgres(one) => one.check_permission().await,
            Self::Signal(one) => one.check_permission().await,
            Self::Exec(one) => one.check_permission().await,
            Self::None(reason) => Err(reason.clone()),
        }
    }

    fn own_ids(&self) -> Vec<u64> {
        match self {
            Self::Mysql(one) => one.own_ids(),
            Self::Postgres(one) => one.own_ids(),
            Self::Signal(one) => one.own_ids(),
            Self::Exec(one) => one.own_ids(),
            Self::None(_) => Vec::new(),
        }
    }

    async fn keep_warm(&mut self) -> Result<(), String> {
        match self {
            Self::Mysql(one) => one.keep_warm().await,
            Self::Postgres(one) => one.keep_warm().await,
            Self::Signal(one) => one.keep_warm().await,
            Self::Exec(one) => one.keep_warm().await,
            Self::None(_) => Ok(()),
        }
    }

    fn prove_by(&mut self, proof: Proof) {
        if let Self::Signal(one) = self {
            one.prove_by(proof);
        }
    }

    async fn remarks(&mut self, decision: &Decision) -> Vec<String> {
        match self {
            Self::Postgres(one) => one.remarks(decision).await,
            _ => Vec::new(),
        }
    }
}
