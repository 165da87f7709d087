//! `PostgreSQL`'s `pg_cancel_backend` and `pg_terminate_backend`, over a connection that is opened, authenticated and kept
//! warm ahead of need.
//!
//! Each command stands inside one query on `pg_stat_activity` that compares process, kind of process, start of the
//! statement and state with what the order says: one round trip, and nobody is signalled when anything differs. What is
//! left is the time between the server's reading of its own table and its signal, some microseconds: a statement that
//! ends in that gap leaves the cancel to the one behind it. `pg_terminate_backend` has no such gap for an idle session that
//! stays idle.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::input::OrderResult;
use crate::engine::record::{Decision, Task};

use tokio::time::{sleep, timeout};

use super::warm::{SETTLE, SETTLE_PAUSE, Warm};
use super::{Answer, Clock, Initiator};

mod command;
mod connection;
mod remark;

pub use command::PgCommand;
pub use connection::PgEndpoint;

use command::{Failure, Seen};
use connection::Reach;
use remark::Question;

/// Answers that are kept; a table that is renamed is called by its old name until they are thrown away.
const REMEMBERED: usize = 256;

/// The next step for whoever lacks rights.
const GRANT_HINT: &str = "as a superuser of the server run: GRANT pg_signal_backend, pg_read_all_stats TO the control \
                          user (sessions of superusers can be ended by superusers alone)";

/// Everything the initiator is made from.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// Where and as whom.
    pub endpoint: PgEndpoint,
    /// The command of each rung, by rung index.
    pub commands: Vec<PgCommand>,
    /// Hard limit for each command and for each attempt to connect.
    pub timeout: Duration,
    /// `CLOCK_MONOTONIC`.
    pub clock: Clock,
}

impl PostgresSettings {
    /// The default limit for a command: an order that takes longer is worth nothing.
    pub const TIMEOUT: Duration = Duration::from_secs(1);
}

/// The initiator.
#[derive(Debug)]
pub struct Postgres {
    commands: Vec<PgCommand>,
    warm: Warm<Reach>,
    /// What has been asked already: names rarely change.
    answered: BTreeMap<Question, String>,
}

impl Postgres {
    /// Without a connection yet: [`Initiator::keep_warm`] opens it.
    pub fn new(settings: PostgresSettings) -> Self {
        let PostgresSettings {
            endpoint,
            commands,
            timeout,
            clock,
        } = settings;
        Self {
            commands,
            warm: Warm::new(endpoint.into(), timeout, clock),
            answered: BTreeMap::new(),
        }
    }

    /// What stands between an order and the server, before anything is sent.
    fn objection(&self, task: &Task) -> Option<Answer> {
        let Some(own_id) = self.warm.own_id() else {
            return Some(Answer::unsent(self.warm.absence()));
        };
        Self::refusal(own_id, task).map(Answer::refused)
    }

    fn refusal(own_id: u32, task: &Task) -> Option<String> {
        if task.id == u64::from(own_id) {
            return Some(format!("process {} is the agent's own session", task.id));
        }
        if task.id == 0 {
            return Some("it has no process: a prepared transaction ends by COMMIT PREPARED or ROLLBACK PREPARED only".to_owned());
        }
        (task.request == 0).then(|| {
            format!(
                "the start of the statement of process {} is not known, so that another one could be hit",
                task.id
            )
        })
    }

    async fn send_checked(&mut self, command: PgCommand, task: &Task) -> Result<Answer, Failure> {
        let rows = self.warm.rows(&command.checked_text(task)).await?;
        let Some(seen) = rows.first().map(Seen::from_row) else {
            return Ok(Answer::missed(format!("process {} is gone", task.id)));
        };
        if seen.is_hidden() {
            return Ok(Answer::refused(format!(
                "may not see what process {} does; {GRANT_HINT}",
                task.id
            )));
        }
        Ok(match seen.signalled {
            Some(true) => Answer::accepted(),
            Some(false) => Answer::missed(format!("process {} is gone", task.id)),
            None if !seen.is_client() => Answer::refused(format!(
                "process {} is no client but: {}",
                task.id, seen.kind
            )),
            None => Answer::missed(seen.difference(task)),
        })
    }

    /// A second session of our own is opened, ended through the same checked query as any order, and found dead.
    async fn end_own_session(&mut self) -> Result<(), Failure> {
        let other = self.warm.another().await?;
        let look = command::look_at(other.own_id());
        let ended = timeout(SETTLE, async {
            loop {
                let rows = self.warm.rows(&look).await?;
                let Some(seen) = rows.first().map(Seen::from_row) else {
                    return Ok(());
                };
                let task = seen.as_own_task(other.own_id());
                let answer = self.send_checked(PgCommand::Terminate, &task).await?;
                if let OrderResult::Refused(reason) = answer.result {
                    return Err(Failure::Unexpected(reason));
                }
                sleep(SETTLE_PAUSE).await;
            }
        });
        ended.await.unwrap_or_else(|_| {
            Err(Failure::Unexpected(
                "our own second session is still there after pg_terminate_backend".to_owned(),
            ))
        })
    }

    fn with_hint(failure: &Failure) -> String {
        if failure.is_about_rights() {
            format!("{failure}; {GRANT_HINT}")
        } else {
            failure.to_string()
        }
    }
}

impl Initiator for Postgres {
    fn describe(&self, rung: u8, task: &Task) -> String {
        match self.commands.get(usize::from(rung)) {
            Some(command) => command.text(task),
            None => format!("no command for rung {rung}"),
        }
    }

    async fn send(&mut self, rung: u8, task: &Task) -> Answer {
        let Some(command) = self.commands.get(usize::from(rung)).copied() else {
            return Answer::refused(format!(
                "the ladder has no rung {rung} ({} are configured)",
                self.commands.len()
            ));
        };
        if let Some(objection) = self.objection(task) {
            return objection;
        }
        self.send_checked(command, task)
            .await
            .unwrap_or_else(|failure| {
                let text = format!(
                    "{} at {}: {}",
                    command.text(task),
                    self.warm.reach(),
                    Self::with_hint(&failure)
                );
                failure.answer(text)
            })
    }

    async fn check_permission(&mut self) -> Result<(), String> {
        if self.warm.own_id().is_none() {
            self.warm.connect().await?;
        }
        let endpoint = self.warm.reach().to_string();
        self.end_own_session().await.map_err(|failure| {
            format!(
                "cannot end a session of our own at {endpoint}: {}",
                Self::with_hint(&failure)
            )
        })
    }

    fn own_ids(&self) -> Vec<u64> {
        self.warm.own_id().map(u64::from).into_iter().collect()
    }

    async fn keep_warm(&mut self) -> Result<(), String> {
        self.warm.keep().await
    }

    async fn remarks(&mut self, decision: &Decision) -> Vec<String> {
        let mut remarks = Vec::new();
        for question in Question::of(decision) {
            if let Some(known) = self.answered.get(&question) {
                remarks.push(known.clone());
                continue;
            }
            // Without a connection, or when the server is slow to answer, the numbers must do.
            let Ok(rows) = self.warm.rows(&question.query()).await else {
                break;
            };
            if let Some(said) = rows.first().and_then(|row| question.sentence(row)) {
                remarks.push(said.clone());
                if self.answered.len() >= REMEMBERED {
                    self.answered.clear();
                }
                self.answered.insert(question, said);
            }
        }
        remarks
    }
}
