//! `MariaDB`'s own KILL, over a native connection that is opened, authenticated and kept warm ahead of need.
//!
//! Each command goes inside one compound statement that first compares thread, query id (or start, see [`command`]) and state of
//! the connection with what the order says: one round trip, and nobody is hit when anything differs. `KILL QUERY ID n` alone would not
//! do, although the server refuses it (error 1957) once another statement has begun: an idle session still answers to
//! the id of its last statement, and the server finds the session before it marks it, so that an order which arrives in
//! that gap can hit the statement behind (measured: `docs/audit.md`, "MariaDB: how an order reaches the task that it names").
//! `MySQL` has neither query ids in KILL nor compound statements outside routines, so it is refused here.

use std::time::Duration;

use crate::engine::record::Task;

use tokio::time::{sleep, timeout};

use super::warm::{SETTLE, SETTLE_PAUSE, Warm};
use super::{Answer, Clock, Initiator};

pub mod command;
pub mod connection;
pub mod endpoint;
mod rights;

pub use command::MysqlCommand;
pub use endpoint::Endpoint;

use command::{Began, Done, Failure, Row, Seen};
use connection::{Reach, Server};

/// Everything the initiator is made from.
#[derive(Clone, Debug)]
pub struct MysqlSettings {
    /// Where and as whom.
    pub endpoint: Endpoint,
    /// The command of each rung, by rung index.
    pub commands: Vec<MysqlCommand>,
    /// Hard limit for each command and for each attempt to connect.
    pub timeout: Duration,
    /// `CLOCK_MONOTONIC`.
    pub clock: Clock,
    /// The wall clock, which is the server's as well, less `CLOCK_MONOTONIC`.
    pub epoch_minus_monotonic_ns: fn() -> i64,
}

impl MysqlSettings {
    /// The default limit for a command: an order that takes longer is worth nothing.
    pub const TIMEOUT: Duration = Duration::from_secs(1);
}

/// The initiator.
#[derive(Debug)]
pub struct Mysql {
    commands: Vec<MysqlCommand>,
    epoch_minus_monotonic_ns: fn() -> i64,
    warm: Warm<Reach>,
}

impl Mysql {
    /// Without a connection yet: [`Initiator::keep_warm`] opens it.
    pub fn new(settings: MysqlSettings) -> Self {
        let MysqlSettings {
            endpoint,
            commands,
            timeout,
            clock,
            epoch_minus_monotonic_ns,
        } = settings;
        Self {
            commands,
            epoch_minus_monotonic_ns,
            warm: Warm::new(endpoint.into(), timeout, clock),
        }
    }

    /// Opens the connection, so that a wrong password is an error of the start and not of the first order.
    pub async fn open(settings: MysqlSettings) -> Result<Self, String> {
        let mut initiator = Self::new(settings);
        initiator.warm.connect().await?;
        Ok(initiator)
    }

    /// The server's own words on its version; `None` while there is no connection.
    pub fn server_version(&self) -> Option<&str> {
        self.warm.server().map(|server| server.version.as_str())
    }

    /// Why there is no connection, if so.
    pub fn trouble(&self) -> Option<&str> {
        self.warm.trouble()
    }

    fn command(&self, rung: u8) -> Option<MysqlCommand> {
        self.commands.get(usize::from(rung)).copied()
    }

    /// What stands between an order and the server, before anything is sent.
    fn objection(&self, command: MysqlCommand, task: &Task) -> Option<Answer> {
        let Some(server) = self.warm.server() else {
            return Some(Answer::unsent(self.warm.absence()));
        };
        Self::refusal(server, command, task).map(Answer::refused)
    }

    fn refusal(server: &Server, command: MysqlCommand, task: &Task) -> Option<String> {
        if task.id == server.own_id {
            return Some(format!("connection {} is the agent's own", task.id));
        }
        if !server.is_mariadb() {
            return Some(format!(
                "server {} is not MariaDB: it cannot check an order's identity and act in one step",
                server.version
            ));
        }
        if task.request == 0 {
            return Some(format!(
                "the query id of connection {} is not known, so that {} could hit another statement",
                task.id,
                command.text(task)
            ));
        }
        None
    }

    fn answer_of(&self, command: MysqlCommand, task: &Task, failure: &Failure) -> Answer {
        match failure.code() {
            Some(command::UNKNOWN_QUERY | command::UNKNOWN_THREAD) => {
                Answer::missed(failure.to_string())
            }
            Some(code) if command::is_about_the_task(code) => {
                Answer::refused(format!("{failure}; {}", self.grant_hint()))
            }
            _ => failure.answer(format!(
                "{} at {}: {failure}",
                command.text(task),
                self.warm.reach()
            )),
        }
    }

    fn grant_hint(&self) -> String {
        let account = self
            .warm
            .server()
            .map_or("'user'@'host'".to_owned(), Server::quoted_account);
        rights::hint(&account)
    }

    /// The command alone, without a comparison before it.
    async fn send_plain(&mut self, command: MysqlCommand, task: &Task) -> Result<Answer, Failure> {
        self.warm
            .run(&command.text(task))
            .await
            .map(|()| Answer::accepted())
    }

    /// The command behind the comparison of identity.
    async fn send_checked(
        &mut self,
        command: MysqlCommand,
        task: &Task,
    ) -> Result<Answer, Failure> {
        let row = self
            .warm
            .run_for_row::<Row>(
                &command.checked_text(task, Began::of(task, (self.epoch_minus_monotonic_ns)())),
            )
            .await?;
        let seen = Seen::from(row);
        match seen.done {
            Done::Yes => return Ok(Answer::accepted()),
            Done::ByConnection => {
                let detail = format!(
                    "query id {} does not name it alone, so it was given as {}",
                    task.request,
                    MysqlCommand::KillQuery.text(task)
                );
                return Ok(Answer {
                    detail,
                    ..Answer::accepted()
                });
            }
            Done::No => {}
        }
        let sees_everybody = self
            .warm
            .server()
            .is_some_and(|server| server.rights.process);
        if seen.thread.is_none() && !sees_everybody {
            let hint = self.grant_hint();
            return Ok(Answer::refused(format!(
                "cannot see connection {}; {hint}",
                task.id
            )));
        }
        Ok(Answer::missed(seen.difference(task)))
    }

    /// A second session of our own is opened, ended through the same checked statement as any order, and found dead.
    async fn end_own_session(&mut self) -> Result<(), Failure> {
        let mut other = self.warm.another().await?;
        let task = other.as_task().await?;
        let text = MysqlCommand::KillConnection.checked_text(&task, None);
        // The server shows a session as busy for a moment after its last answer, and a killed one as alive.
        let ended = timeout(SETTLE, async {
            loop {
                let seen = Seen::from(self.warm.run_for_row::<Row>(&text).await?);
                if (seen.done != Done::No || seen.thread.is_none()) && !other.is_alive().await {
                    return Ok(());
                }
                sleep(SETTLE_PAUSE).await;
            }
        });
        ended.await.unwrap_or_else(|_| {
            Err(Failure::Unexpected(
                "our own second session is still alive after KILL CONNECTION".to_owned(),
            ))
        })
    }
}

impl Initiator for Mysql {
    fn describe(&self, rung: u8, task: &Task) -> String {
        match self.command(rung) {
            Some(command) => command.text(task),
            None => format!("no command for rung {rung}"),
        }
    }

    async fn send(&mut self, rung: u8, task: &Task) -> Answer {
        let Some(command) = self.command(rung) else {
            return Answer::refused(format!(
                "the ladder has no rung {rung} ({} are configured)",
                self.commands.len()
            ));
        };
        if let Some(objection) = self.objection(command, task) {
            return objection;
        }
        let mut result = self.send_checked(command, task).await;
        // The comparison needs a temporary table. A server that cannot make one (its disk is full) still compares the
        // query id itself, which leaves a gap (`docs/safety.md`, 5). Whatever else it says is no reason to do with less.
        if command == MysqlCommand::KillQueryId
            && let Err(Failure::Server(refusal)) = &result
            && command::is_about_temporary_tables(refusal.code)
        {
            result = self.send_plain(command, task).await;
        }
        result.unwrap_or_else(|failure| self.answer_of(command, task, &failure))
    }

    async fn check_permission(&mut self) -> Result<(), String> {
        if self.warm.server().is_none() {
            self.warm.connect().await?;
        }
        let Some(server) = self.warm.server() else {
            return Err(
                "the control connection was lost while it was checked; run the check again"
                    .to_owned(),
            );
        };
        if !server.is_mariadb() {
            return Err(format!(
                "server {} is not MariaDB; only MariaDB is supported, use observe or dry-run",
                server.version
            ));
        }
        if !server.rights.enough() {
            return Err(format!(
                "{} {}; {}",
                server.account,
                server.rights.lack(),
                self.grant_hint()
            ));
        }
        let endpoint = self.warm.reach().to_string();
        self.end_own_session()
            .await
            .map_err(|failure| format!("cannot end a session of our own at {endpoint}: {failure}"))
    }

    fn own_ids(&self) -> Vec<u64> {
        self.warm
            .server()
            .map(|server| server.own_id)
            .into_iter()
            .collect()
    }

    async fn keep_warm(&mut self) -> Result<(), String> {
        self.warm.keep().await
    }
}
