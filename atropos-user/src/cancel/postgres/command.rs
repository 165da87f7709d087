//! The two commands as text, and what the server's answers mean. Pure: no connection here.

use std::fmt;

use tokio_postgres::SimpleQueryRow;
use tokio_postgres::error::SqlState;

use crate::cancel::failure;
use crate::engine::input::{Activity, SessionKey};
use crate::engine::record::Task;

/// A way of `PostgreSQL` to end a session's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgCommand {
    /// `pg_cancel_backend`: ends the statement. Does nothing to an idle session.
    Cancel,
    /// `pg_terminate_backend`: ends the session; its transaction is rolled back and its locks go.
    Terminate,
}

/// What the queries ask of a process, in the order that [`Seen::from_row`] reads. Microseconds since 2000, exact.
const COLUMNS: &str = "backend_type, state, \
     ((extract(epoch FROM query_start) - 946684800) * 1000000)::bigint AS request";

impl PgCommand {
    /// As a person would type it.
    pub fn text(self, task: &Task) -> String {
        if task.id == 0 {
            return format!(
                "ROLLBACK PREPARED '...' (SELECT gid FROM pg_prepared_xacts WHERE transaction = '{}')",
                task.request
            );
        }
        format!("SELECT {}({})", self.function(), task.id)
    }

    fn function(self) -> &'static str {
        match self {
            Self::Cancel => "pg_cancel_backend",
            Self::Terminate => "pg_terminate_backend",
        }
    }

    /// The command behind a comparison of identity, as one query. It answers with one row, or none if the process is
    /// gone; `signalled` is NULL if anything differed.
    pub(super) fn checked_text(self, task: &Task) -> String {
        let Task {
            id,
            request,
            activity,
            ..
        } = task;
        let state = match activity {
            Activity::Busy => "state IN ('active', 'fastpath function call')",
            Activity::IdleInTransaction => "state LIKE 'idle in transaction%'",
            Activity::IdleWithLocks => "state LIKE 'idle%'",
        };
        let function = self.function();
        format!(
            "SELECT {COLUMNS}, CASE WHEN backend_type = 'client backend' AND {state} AND query_start = \
             timestamptz '2000-01-01 00:00:00+00' + {request} * interval '1 microsecond' \
             THEN {function}(pid) END AS signalled FROM pg_stat_activity WHERE pid = {id}"
        )
    }
}

/// The query for what a process does.
pub(super) fn look_at(pid: u32) -> String {
    format!("SELECT {COLUMNS}, NULL AS signalled FROM pg_stat_activity WHERE pid = {pid}")
}

/// What the identity check saw.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub kind: String,
    pub state: Option<String>,
    pub request: Option<u64>,
    pub signalled: Option<bool>,
}

impl Seen {
    pub(super) fn from_row(row: &SimpleQueryRow) -> Self {
        let text = |index| row.try_get(index).ok().flatten().map(str::to_owned);
        Self {
            kind: text(0).unwrap_or_default(),
            state: text(1),
            request: text(2).and_then(|number| number.parse().ok()),
            signalled: text(3).map(|done| done == "t"),
        }
    }

    /// The server does not show us what others do.
    pub(super) fn is_hidden(&self) -> bool {
        self.kind.is_empty() && self.state.is_none()
    }

    pub(super) fn is_client(&self) -> bool {
        self.kind == "client backend"
    }

    /// Why the task is not the one that was meant, for a person.
    pub(super) fn difference(&self, task: &Task) -> String {
        let id = task.id;
        if self.request != Some(task.request) {
            return format!("process {id} runs or ran another statement by then");
        }
        let state = self.state.as_deref().unwrap_or("unknown");
        format!("process {id} is in state {state}, not {}", task.doing)
    }

    /// As an order would name it, for a session of our own that has gone idle.
    pub(super) fn as_own_task(&self, pid: u32) -> Task {
        Task {
            id: u64::from(pid),
            thread: pid,
            request: self.request.unwrap_or(0),
            doing: "idle".to_owned(),
            ..Task::new(SessionKey(0), Activity::IdleWithLocks)
        }
    }
}

/// The server said no.
#[derive(Debug)]
pub(super) struct Refusal {
    lacks_right: bool,
    message: String,
    code: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.code)
    }
}

/// Why the server's answer is not the one that was hoped for.
pub(super) type Failure = failure::Failure<Refusal>;

impl Failure {
    pub(super) fn is_about_rights(&self) -> bool {
        matches!(self, Self::Server(refusal) if refusal.lacks_right)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(server) => Self::Server(Refusal {
                lacks_right: *server.code() == SqlState::INSUFFICIENT_PRIVILEGE,
                message: server.message().to_owned(),
                code: server.code().code().to_owned(),
            }),
            None => Self::Broken(with_causes(&error)),
        }
    }
}

/// An error with what it was caused by.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(activity: Activity) -> Task {
        let seen = Seen {
            kind: "client backend".to_owned(),
            state: Some("idle".to_owned()),
            request: Some(851_900_000_000_001),
            signalled: None,
        };
        Task {
            activity,
            ..seen.as_own_task(4711)
        }
    }

    #[test]
    fn a_command_names_process_statement_and_state() {
        let text = PgCommand::Terminate.checked_text(&task(Activity::IdleInTransaction));
        for part in [
            "pid = 4711",
            "+ 851900000000001 * interval '1 microsecond'",
            "state LIKE 'idle in transaction%'",
            "THEN pg_terminate_backend(pid)",
            "backend_type = 'client backend'",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn a_difference_says_what_is_another() {
        let task = task(Activity::Busy);
        let mut seen = Seen {
            kind: "client backend".to_owned(),
            state: Some("idle".to_owned()),
            request: Some(task.request),
            signalled: None,
        };
        assert!(seen.difference(&task).contains("in state idle"));
        seen.request = Some(1);
        assert!(seen.difference(&task).contains("another statement"));
    }

    #[test]
    fn what_has_no_process_is_never_given_as_a_process_to_end() {
        let mut task = task(Activity::IdleInTransaction);
        task.id = 0;
        assert!(
            PgCommand::Terminate
                .text(&task)
                .starts_with("ROLLBACK PREPARED")
        );
    }
}
