//! Orders to a private `MariaDB`, and what the server says of the sessions that they name.

use std::time::Duration;

use atropos::cancel::{Answer, Credentials, Endpoint, Mysql, MysqlCommand, MysqlSettings, Secret};
use atropos::engine::input::{Activity, OrderResult, SessionKey};
use atropos::engine::record::Task;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::task::JoinHandle;

use super::mariadb::{MariaDb, code};
use super::{Deadline, PATIENCE, clock_ns, eventually};

pub const KILL_QUERY_ID: u8 = 0;
pub const KILL_QUERY: u8 = 1;
pub const KILL_CONNECTION: u8 = 2;
const WHO_AM_I: &str = "SELECT CONNECTION_ID()";
/// Longer than any test waits for its end.
const SLEEP: &str = "SELECT SLEEP(300)";

pub fn credentials(user: &str, password: &str) -> Credentials {
    Credentials {
        user: user.to_owned(),
        secret: Secret::new(password),
    }
}

pub fn settings(endpoint: Endpoint) -> MysqlSettings {
    MysqlSettings {
        endpoint,
        commands: vec![
            MysqlCommand::KillQueryId,
            MysqlCommand::KillQuery,
            MysqlCommand::KillConnection,
        ],
        // A busy server answers late; only a test of what is late has less patience.
        timeout: PATIENCE,
        clock: clock_ns,
        epoch_minus_monotonic_ns: atropos::agent::clock::epoch_minus_monotonic_ns,
    }
}

pub async fn initiator(server: &MariaDb) -> Mysql {
    let endpoint = Endpoint::over_socket(&server.socket, credentials("root", ""));
    Mysql::open(settings(endpoint)).await.unwrap()
}

/// What the server says about a connection: thread, query id, command.
pub async fn row(watcher: &mut Conn, id: u64) -> Option<(u32, u64, String)> {
    watcher
        .query_first(format!(
            "SELECT TID, QUERY_ID, COMMAND FROM information_schema.PROCESSLIST WHERE ID = {id}"
        ))
        .await
        .unwrap()
}

/// The task behind a connection, once the server shows it in the wanted state.
pub async fn task(watcher: &mut Conn, id: u64, activity: Activity) -> Task {
    task_unless(watcher, id, activity, || false).await.unwrap()
}

/// The same, or `None` once it is `over`.
pub async fn task_unless(
    watcher: &mut Conn,
    id: u64,
    activity: Activity,
    over: impl Fn() -> bool,
) -> Option<Task> {
    let deadline = Deadline::new();
    loop {
        deadline.check(&format!("connection {id} to be {activity:?}"));
        if settled(watcher, id).await
            && let Some((thread, request, command)) = row(watcher, id).await
            && (command == "Sleep") == (activity != Activity::Busy)
        {
            return Some(Task {
                id,
                thread,
                request,
                principal: "root".to_owned(),
                doing: format!("{activity:?}"),
                ..Task::new(SessionKey(1), activity)
            });
        }
        if over() {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The statement of [`id_of`] is over: the server shows it for a moment after its answer.
async fn settled(watcher: &mut Conn, id: u64) -> bool {
    let text = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id} AND INFO = '{WHO_AM_I}'"
    );
    watcher.query_first(text).await.unwrap() == Some(0_u8)
}

pub async fn id_of(conn: &mut Conn) -> u64 {
    conn.query_first(WHO_AM_I).await.unwrap().unwrap()
}

/// A statement that sleeps on; the handle gives the connection back with what the statement came to.
pub async fn sleeper(server: &MariaDb) -> (u64, JoinHandle<(Conn, Result<(), u16>)>) {
    let mut conn = server.connect().await;
    let id = id_of(&mut conn).await;
    (id, sleeps(conn))
}

/// The same on this connection.
pub fn sleeps(mut conn: Conn) -> JoinHandle<(Conn, Result<(), u16>)> {
    tokio::spawn(async move {
        let result = conn.query_drop(SLEEP).await.map_err(code);
        (conn, result)
    })
}

pub fn refusal(answer: &Answer) -> &str {
    match &answer.result {
        OrderResult::Refused(reason) => reason,
        other => panic!("not refused: {other:?} {}", answer.detail),
    }
}

pub fn unknown(answer: &Answer) -> &str {
    match &answer.result {
        OrderResult::Unknown(reason) => reason,
        other => panic!("an answer came: {other:?} {}", answer.detail),
    }
}

pub async fn wait_until_gone(watcher: &mut Conn, id: u64) {
    eventually(&format!("connection {id} to go"), async || {
        row(watcher, id).await.is_none().then_some(())
    })
    .await;
}
