//! Orders to a private `MariaDB`, and what the server says of the sessions that they name.

use std::time::Duration;

use atropos::cancel::{Answer, Credentials, Endpoint, Mysql, MysqlCommand, MysqlSettings, Secret};
use atropos::engine::input::{Activity, OrderResult, SessionKey};
use atropos::engine::record::Task;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::clock_ns;
use super::mariadb::MariaDb;

pub const KILL_QUERY_ID: u8 = 0;
pub const KILL_QUERY: u8 = 1;
pub const KILL_CONNECTION: u8 = 2;
const WHO_AM_I: &str = "SELECT CONNECTION_ID()";
pub const LIMIT: Duration = Duration::from_secs(10);

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
        timeout: MysqlSettings::TIMEOUT,
        clock: clock_ns,
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
    let deadline_ns = clock_ns() + LIMIT.as_nanos() as u64;
    loop {
        assert!(
            clock_ns() < deadline_ns,
            "connection {id} never became {activity:?}"
        );
        if settled(watcher, id).await
            && let Some((thread, request, command)) = row(watcher, id).await
            && (command == "Sleep") == (activity != Activity::Busy)
        {
            return Some(Task {
                session: SessionKey(1),
                id,
                thread,
                request,
                activity,
                class: String::new(),
                principal: "root".to_owned(),
                fingerprint: 0,
                digest: String::new(),
                doing: format!("{activity:?}"),
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

/// Starts `SELECT SLEEP(30)`; the handle gives the connection back with what the statement came to.
pub async fn sleeper(server: &MariaDb) -> (u64, tokio::task::JoinHandle<(Conn, Result<(), u16>)>) {
    let mut conn = server.connect().await;
    let id = id_of(&mut conn).await;
    let handle = tokio::spawn(async move {
        let result = conn.query_drop("SELECT SLEEP(30)").await.map_err(code);
        (conn, result)
    });
    (id, handle)
}

pub fn code(error: mysql_async::Error) -> u16 {
    match error {
        mysql_async::Error::Server(server) => server.code,
        other => panic!("not an answer of the server: {other}"),
    }
}

pub fn refusal(answer: &Answer) -> &str {
    match &answer.result {
        OrderResult::Refused(reason) => reason,
        other => panic!("not refused: {other:?} {}", answer.detail),
    }
}

pub async fn wait_until_gone(watcher: &mut Conn, id: u64) {
    let deadline_ns = clock_ns() + LIMIT.as_nanos() as u64;
    while row(watcher, id).await.is_some() {
        assert!(clock_ns() < deadline_ns, "connection {id} is still there");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
