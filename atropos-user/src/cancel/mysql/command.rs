//! The three commands as text, and what the server's answers mean. Pure: no connection here.

use std::fmt;
use std::str::FromStr;

use crate::cancel::failure;
use crate::engine::input::Activity;
use crate::engine::record::Task;

/// `ER_NO_SUCH_THREAD`: the connection is gone.
pub(super) const UNKNOWN_THREAD: u16 = 1094;
/// `ER_KILL_DENIED_ERROR`: not our connection, and no right to end others'.
pub(super) const NOT_OWNER_OF_THREAD: u16 = 1095;
/// `ER_SPECIFIC_ACCESS_DENIED_ERROR`: a privilege is missing.
pub(super) const NO_PRIVILEGE: u16 = 1227;
/// `ER_NO_SUCH_QUERY`: the statement is over.
pub(super) const UNKNOWN_QUERY: u16 = 1957;
/// `ER_KILL_QUERY_DENIED_ERROR`: not our statement, and no right to end others'.
pub(super) const NOT_OWNER_OF_QUERY: u16 = 1979;

/// The server speaks of the task or of our right to end it, and not of a trouble of its own.
pub(super) fn is_about_the_task(code: u16) -> bool {
    matches!(
        code,
        UNKNOWN_THREAD | NOT_OWNER_OF_THREAD | NO_PRIVILEGE | UNKNOWN_QUERY | NOT_OWNER_OF_QUERY
    )
}

/// The server could not make the temporary table that the comparison reads from: its disk is full or its `tmpdir` cannot be
/// written. The mysys codes 1 (cannot create a file), 3 (cannot write) and 20 (disk full) arrive as they are; then
/// `ER_CANT_CREATE_FILE`, `ER_CANT_CREATE_TABLE`, `ER_DISK_FULL`, `ER_ERROR_ON_WRITE`, `ER_GET_ERRNO` (the storage engine's own
/// trouble), `ER_RECORD_FILE_FULL` and `ER_TEMP_FILE_WRITE_FAILURE`.
pub(super) fn is_about_temporary_tables(code: u16) -> bool {
    matches!(
        code,
        1 | 3 | 20 | 1004 | 1005 | 1021 | 1026 | 1030 | 1114 | 1878
    )
}

/// A way of `MariaDB` to end a session's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MysqlCommand {
    /// `KILL QUERY ID n`: ends statement `n`, whoever runs it; nobody if it is over.
    KillQueryId,
    /// `KILL QUERY n`: ends what connection `n` runs. Does nothing to an idle one.
    KillQuery,
    /// `KILL CONNECTION n`: ends the connection; its transaction is rolled back and its locks go.
    KillConnection,
}

impl MysqlCommand {
    /// Names in a preset, in the order of the variants.
    pub const NAMES: [&str; 3] = ["kill_query_id", "kill_query", "kill_connection"];

    /// As a person would type it.
    pub fn text(self, task: &Task) -> String {
        match self {
            Self::KillQueryId => format!("KILL QUERY ID {}", task.request),
            Self::KillQuery => format!("KILL QUERY {}", task.id),
            Self::KillConnection => format!("KILL CONNECTION {}", task.id),
        }
    }

    /// The command behind a comparison of identity, as one statement. It answers with one row: thread, query id and
    /// command as found (NULL if the connection is gone), and whether the command was given ([`Done`]).
    ///
    /// A connection's query id changes with each statement, so an equal one means that no other statement has begun; the
    /// state is compared as well, since a busy task may have become idle. `Killed` is shown for a session that an
    /// earlier rung has marked, busy or idle. The statements of a routine have ids of their own and the start of their
    /// `CALL`, so that start, if it is known, says as much as an equal id.
    pub(super) fn checked_text(self, task: &Task, began: Option<Began>) -> String {
        let Task {
            id,
            thread,
            request,
            activity,
            ..
        } = task;
        let state = match activity {
            Activity::Busy => "c <> 'Sleep'",
            Activity::IdleInTransaction | Activity::IdleWithLocks => "c IN ('Sleep', 'Killed')",
        };
        let same_thread = if *thread == 0 {
            String::new()
        } else {
            format!("t = {thread} AND ")
        };
        let same_request = match began {
            Some(Began { epoch_s, slack_s }) => {
                format!("(q = {request} OR ABS(s - {epoch_s:.6}) < {slack_s:.6})")
            }
            None => format!("q = {request}"),
        };
        let command = self.text(task);
        // A ping takes the number that the next statement will get, and its session idles with it. The server ends
        // whom it finds first under a number, so a number that several share does not name the task.
        let give = match self {
            Self::KillQueryId => format!(
                "IF n > 1 OR q <> {request} THEN {}; SET done = 2; ELSE {command}; SET done = 1; END IF;",
                Self::KillQuery.text(task)
            ),
            Self::KillQuery | Self::KillConnection => format!("{command}; SET done = 1;"),
        };
        format!(
            "BEGIN NOT ATOMIC \
             DECLARE t, q BIGINT UNSIGNED; DECLARE s DECIMAL(20, 6); DECLARE c VARCHAR(32); \
             DECLARE n, done INT DEFAULT 0; \
             SELECT MAX(IF(ID = {id}, TID, NULL)), MAX(IF(ID = {id}, QUERY_ID, NULL)), \
             MAX(IF(ID = {id}, COMMAND, NULL)), COUNT(IF(QUERY_ID = {request}, 1, NULL)), \
             MAX(IF(ID = {id} AND SYSDATE(6) > NOW(6), UNIX_TIMESTAMP(SYSDATE(6)) - TIME_MS / 1000, NULL)) INTO t, q, c, n, s \
             FROM information_schema.PROCESSLIST WHERE ID = {id} OR QUERY_ID = {request}; \
             IF {same_thread}{same_request} AND {state} THEN {give} END IF; \
             SELECT t, q, c, done; END"
        )
    }
}

/// When a statement began by the wall clock, and how far from it a start may be that is still the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Began {
    epoch_s: f64,
    slack_s: f64,
}

impl Began {
    /// Below this age of a statement, seconds, its start says too little.
    const LEAST_AGE_S: f64 = 0.01;

    /// Of a task at work. `epoch_minus_monotonic_ns` is the wall clock less `CLOCK_MONOTONIC`.
    ///
    /// A statement of the session that is not the one that was seen began after that, which is later than the start by all of the
    /// age that was seen; half of it is far from either. The server reads its clock a moment after it has read the ages of its
    /// sessions, which makes starts later and never earlier. (With `--sysdate-is-now` it would be earlier, and nothing is compared.)
    pub(super) fn of(task: &Task, epoch_minus_monotonic_ns: i64) -> Option<Self> {
        let age_s = task.seen_ns.saturating_sub(task.since_ns) as f64 / 1e9;
        let known = task.activity == Activity::Busy && task.since_ns > 0;
        (known && age_s >= Self::LEAST_AGE_S).then(|| Self {
            epoch_s: task
                .since_ns
                .saturating_add_signed(epoch_minus_monotonic_ns) as f64
                / 1e9,
            slack_s: (age_s / 2.0).min(1.0),
        })
    }
}

impl FromStr for MysqlCommand {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "kill_query_id" => Ok(Self::KillQueryId),
            "kill_query" => Ok(Self::KillQuery),
            "kill_connection" => Ok(Self::KillConnection),
            _ => Err(format!(
                "`{name}` is not a command of the mysql initiator (allowed: {})",
                Self::NAMES.join(", ")
            )),
        }
    }
}

/// The row that a checked command answers with.
pub(super) type Row = (Option<u64>, Option<u64>, Option<String>, u8);

/// What the identity check saw.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub thread: Option<u64>,
    pub request: Option<u64>,
    pub command: String,
    pub done: Done,
}

/// Whether a checked command was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// The comparison failed.
    No,
    /// As it was asked for.
    Yes,
    /// By connection, since other sessions answer to the same query id, or this one answers to another by now.
    ByConnection,
}

impl From<Row> for Seen {
    fn from((thread, request, command, done): Row) -> Self {
        let done = match done {
            0 => Done::No,
            2 => Done::ByConnection,
            _ => Done::Yes,
        };
        Self {
            thread,
            request,
            command: command.unwrap_or_default(),
            done,
        }
    }
}

impl Seen {
    /// Why the task is not the one that was meant, for a person.
    pub(super) fn difference(&self, task: &Task) -> String {
        let id = task.id;
        let (Some(thread), Some(request)) = (self.thread, self.request) else {
            return format!("connection {id} is gone");
        };
        if task.thread != 0 && thread != u64::from(task.thread) {
            return format!(
                "connection {id} is served by thread {thread}, not {}",
                task.thread
            );
        }
        if request != task.request {
            return format!(
                "connection {id} is at query id {request}, not {}",
                task.request
            );
        }
        format!(
            "connection {id} is in state {}, not {}",
            self.command, task.doing
        )
    }
}

/// The server said no.
#[derive(Debug)]
pub(super) struct Refusal {
    pub code: u16,
    message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {})", self.message, self.code)
    }
}

/// Why the server's answer is not the one that was hoped for.
pub(super) type Failure = failure::Failure<Refusal>;

impl Failure {
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Server(refusal) => Some(refusal.code),
            _ => None,
        }
    }
}

impl From<mysql_async::Error> for Failure {
    fn from(error: mysql_async::Error) -> Self {
        match error {
            mysql_async::Error::Server(server) => Self::Server(Refusal {
                code: server.code,
                message: server.message,
            }),
            other => Self::Broken(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::input::SessionKey;

    const SECOND_NS: u64 = 1_000_000_000;

    fn task(since_ns: u64, seen_ns: u64) -> Task {
        Task {
            id: 7,
            thread: 4711,
            request: 99,
            since_ns,
            seen_ns,
            ..Task::new(SessionKey(1), Activity::Busy)
        }
    }

    #[test]
    fn a_start_is_compared_by_less_than_half_of_the_age_that_was_seen() {
        let began = |since_ns, seen_ns| Began::of(&task(since_ns, seen_ns), 1_700 * 1_000_000_000);
        let began_s = |since_ns, seen_ns| began(since_ns, seen_ns).map(|b| (b.epoch_s, b.slack_s));
        assert_eq!(
            began_s(5 * SECOND_NS, 5 * SECOND_NS + SECOND_NS / 2),
            Some((1705.0, 0.25))
        );
        assert_eq!(
            began_s(5 * SECOND_NS, 60 * SECOND_NS),
            Some((1705.0, 1.0)),
            "no clock is that far off"
        );
        assert_eq!(began_s(5 * SECOND_NS, 5 * SECOND_NS + 1000), None);
        assert_eq!(began_s(0, 60 * SECOND_NS), None, "unknown");
    }

    #[test]
    fn what_is_compared_is_the_number_or_the_start() {
        let task = task(5 * SECOND_NS, 6 * SECOND_NS);
        let by_number = MysqlCommand::KillQuery.checked_text(&task, None);
        assert!(
            by_number.contains("IF t = 4711 AND q = 99 AND c <> 'Sleep' THEN KILL QUERY 7;"),
            "{by_number}"
        );
        let by_start = MysqlCommand::KillQuery.checked_text(&task, Began::of(&task, 0));
        assert!(
            by_start.contains(
                "IF t = 4711 AND (q = 99 OR ABS(s - 5.000000) < 0.500000) AND c <> 'Sleep' THEN"
            ),
            "{by_start}"
        );
    }

    #[test]
    fn only_a_server_without_room_for_a_temporary_table_is_asked_without_a_comparison() {
        for code in [1, 3, 20, 1005, 1021, 1030, 1114] {
            assert!(is_about_temporary_tables(code), "{code}");
            assert!(!is_about_the_task(code), "{code}");
        }
        // Interrupted, out of memory, a lock wait that timed out, read-only, a syntax that it does not know, a dropped privilege.
        for code in [
            1317,
            1037,
            1205,
            1290,
            1064,
            1045,
            UNKNOWN_QUERY,
            NO_PRIVILEGE,
        ] {
            assert!(!is_about_temporary_tables(code), "{code}");
        }
    }
}
