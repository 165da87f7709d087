//! The `mysql` initiator against a real server: who is hit, who is not, and what is said.

#![allow(
    clippy::unwrap_used,
    reason = "in a test an unmet expectation is a failure"
)]

mod common;

use std::time::Duration;

use atropos::cancel::{
    Answer, Credentials, Endpoint, Initiator, Mysql, MysqlCommand, MysqlSettings, Secret,
};
use atropos::engine::input::{Activity, OrderResult, SessionKey};
use atropos::engine::record::Task;
use common::mariadb::MariaDb;
use common::{clock_ns, mariadb};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

const KILL_QUERY_ID: u8 = 0;
const KILL_QUERY: u8 = 1;
const KILL_CONNECTION: u8 = 2;
const LIMIT: Duration = Duration::from_secs(10);

fn credentials(user: &str, password: &str) -> Credentials {
    Credentials {
        user: user.to_owned(),
        secret: Secret::new(password),
    }
}

fn settings(endpoint: Endpoint) -> MysqlSettings {
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

async fn initiator(server: &MariaDb) -> Mysql {
    let endpoint = Endpoint::over_socket(&server.socket, credentials("root", ""));
    Mysql::open(settings(endpoint)).await.unwrap()
}

/// What the server says about a connection: thread, query id, command.
async fn row(watcher: &mut Conn, id: u64) -> Option<(u32, u64, String)> {
    watcher
        .query_first(format!(
            "SELECT TID, QUERY_ID, COMMAND FROM information_schema.PROCESSLIST WHERE ID = {id}"
        ))
        .await
        .unwrap()
}

/// The task behind a connection, once the server shows it in the wanted state.
async fn task(watcher: &mut Conn, id: u64, activity: Activity) -> Task {
    let deadline_ns = clock_ns() + LIMIT.as_nanos() as u64;
    loop {
        assert!(
            clock_ns() < deadline_ns,
            "connection {id} never became {activity:?}"
        );
        if let Some((thread, request, command)) = row(watcher, id).await
            && (command == "Sleep") == (activity != Activity::Busy)
        {
            return Task {
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
            };
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn id_of(conn: &mut Conn) -> u64 {
    conn.query_first("SELECT CONNECTION_ID()")
        .await
        .unwrap()
        .unwrap()
}

/// Starts `SELECT SLEEP(30)`; the handle gives the connection back with what the statement came to.
async fn sleeper(server: &MariaDb) -> (u64, tokio::task::JoinHandle<(Conn, Result<(), u16>)>) {
    let mut conn = server.connect().await;
    let id = id_of(&mut conn).await;
    let handle = tokio::spawn(async move {
        let result = conn.query_drop("SELECT SLEEP(30)").await.map_err(code);
        (conn, result)
    });
    (id, handle)
}

fn code(error: mysql_async::Error) -> u16 {
    match error {
        mysql_async::Error::Server(server) => server.code,
        other => panic!("not an answer of the server: {other}"),
    }
}

fn refusal(answer: &Answer) -> &str {
    match &answer.result {
        OrderResult::Refused(reason) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

macro_rules! server {
    ($($option:expr),*) => {{
        let Some(server) = MariaDb::start_with(&[$($option),*]) else { return };
        server
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_rung_ends_a_running_statement_and_the_check_of_rights_passes() {
    let server = server!();
    let mut watcher = server.connect().await;
    let mut initiator = initiator(&server).await;
    initiator.check_permission().await.unwrap();
    assert!(initiator.server_version().unwrap().contains("MariaDB"));
    for rung in [KILL_QUERY_ID, KILL_QUERY, KILL_CONNECTION] {
        let (id, handle) = sleeper(&server).await;
        let task = task(&mut watcher, id, Activity::Busy).await;
        let before_ns = clock_ns();
        let answer = initiator.send(rung, &task).await;
        assert_eq!(
            answer,
            Answer::accepted(),
            "{}",
            initiator.describe(rung, &task)
        );
        let ended = tokio::time::timeout(LIMIT, handle).await.unwrap();
        if rung == KILL_CONNECTION {
            wait_until_gone(&mut watcher, id).await;
        } else {
            let (mut conn, result) = ended.unwrap();
            assert_eq!(result, Err(1317), "query execution was interrupted");
            assert_eq!(id_of(&mut conn).await, id, "the connection lives on");
        }
        assert!(clock_ns() - before_ns < 1_000_000_000, "took too long");
    }
}

async fn wait_until_gone(watcher: &mut Conn, id: u64) {
    let deadline_ns = clock_ns() + LIMIT.as_nanos() as u64;
    while row(watcher, id).await.is_some() {
        assert!(clock_ns() < deadline_ns, "connection {id} is still there");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The statement ends about when the order arrives, 200 times; the statement behind it must always live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_races_with_the_end_of_its_statement_never_hits_the_next_one() {
    let server = server!();
    let mut watcher = server.connect().await;
    let mut initiator = initiator(&server).await;
    let (mut missed, mut interrupted) = (0, 0);
    for round in 0..200_u32 {
        let mut conn = server.connect().await;
        let id = id_of(&mut conn).await;
        let handle = tokio::spawn(async move {
            let first = conn.query_drop("SELECT SLEEP(0.02)").await;
            let next = conn.query_drop("SELECT SLEEP(0.02)").await;
            (first.map_err(code), next.map_err(code))
        });
        let task = task(&mut watcher, id, Activity::Busy).await;
        // Spread over the end of the statement, in steps of 0.1 ms.
        tokio::time::sleep(Duration::from_micros(16_000 + u64::from(round % 50) * 100)).await;
        let answer = initiator.send(KILL_QUERY_ID, &task).await;
        let (first, next) = handle.await.unwrap();
        assert_eq!(
            next,
            Ok(()),
            "round {round}: the innocent statement was hit; {answer:?}"
        );
        match answer.result {
            OrderResult::Accepted => {}
            OrderResult::Missed => {
                assert_eq!(first, Ok(()), "round {round}: missed, yet hit");
                missed += 1;
            }
            other => panic!("round {round}: {other:?}"),
        }
        interrupted += u32::from(first == Err(1317));
    }
    assert!(
        missed > 0 && interrupted > 0,
        "not a race: {interrupted} interrupted, {missed} missed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_idle_in_a_transaction_is_freed_by_kill_connection_and_by_nothing_less() {
    let server = server!();
    server
        .run(&[
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
        ])
        .await;
    let mut watcher = server.connect().await;
    let mut initiator = initiator(&server).await;
    let mut holder = server.connect().await;
    let id = id_of(&mut holder).await;
    holder.query_drop("BEGIN").await.unwrap();
    holder.query_drop("SELECT * FROM shop.t").await.unwrap();
    let mut waiter = server.connect().await;
    let waiter_id = id_of(&mut waiter).await;
    let alter =
        tokio::spawn(async move { waiter.query_drop("ALTER TABLE shop.t ADD c INT").await });
    task(&mut watcher, waiter_id, Activity::Busy).await;
    let idle = task(&mut watcher, id, Activity::IdleInTransaction).await;

    let answer = initiator.send(KILL_QUERY, &idle).await;
    assert_eq!(answer.result, OrderResult::Accepted);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        !alter.is_finished(),
        "KILL QUERY frees nothing of an idle session"
    );

    assert_eq!(
        initiator.send(KILL_CONNECTION, &idle).await,
        Answer::accepted()
    );
    tokio::time::timeout(LIMIT, alter)
        .await
        .expect("the ALTER goes on")
        .unwrap()
        .unwrap();
    wait_until_gone(&mut watcher, id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_differs_in_thread_query_or_state_is_missed_and_nobody_is_hurt() {
    let server = server!();
    let mut watcher = server.connect().await;
    let mut initiator = initiator(&server).await;
    let (id, handle) = sleeper(&server).await;
    let busy = task(&mut watcher, id, Activity::Busy).await;
    let mut idle_conn = server.connect().await;
    let idle_id = id_of(&mut idle_conn).await;
    let idle = task(&mut watcher, idle_id, Activity::IdleInTransaction).await;
    let wrong = [
        (
            Task {
                thread: busy.thread + 1,
                ..busy.clone()
            },
            "served by thread",
        ),
        (
            Task {
                request: busy.request - 1,
                ..busy.clone()
            },
            "at query id",
        ),
        (
            Task {
                activity: Activity::IdleWithLocks,
                ..busy.clone()
            },
            "in state",
        ),
        (
            Task {
                activity: Activity::Busy,
                ..idle.clone()
            },
            "in state Sleep",
        ),
        (
            Task {
                id: 999_999,
                ..busy.clone()
            },
            "is gone",
        ),
    ];
    for rung in [KILL_QUERY, KILL_CONNECTION] {
        for (task, why) in &wrong {
            let answer = initiator.send(rung, task).await;
            assert_eq!(answer.result, OrderResult::Missed, "{why}");
            assert!(answer.detail.contains(why), "{}", answer.detail);
        }
    }
    let gone = Task {
        request: busy.request + 1_000_000,
        ..busy.clone()
    };
    assert_eq!(
        initiator.send(KILL_QUERY_ID, &gone).await.result,
        OrderResult::Missed
    );
    let unknown = Task {
        request: 0,
        ..busy.clone()
    };
    assert!(refusal(&initiator.send(KILL_CONNECTION, &unknown).await).contains("query id"));
    let own = Task {
        id: initiator.own_ids()[0],
        ..busy.clone()
    };
    assert!(refusal(&initiator.send(KILL_CONNECTION, &own).await).contains("own"));
    assert!(!handle.is_finished(), "the sleeper sleeps on");
    assert_eq!(
        id_of(&mut idle_conn).await,
        idle_id,
        "the idle one lives on"
    );
    assert_eq!(
        initiator.send(KILL_QUERY_ID, &busy).await,
        Answer::accepted()
    );
    handle.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_without_rights_is_refused_with_the_grant_that_it_lacks_and_no_password_is_shown()
 {
    let server = server!();
    server
        .run(&[
            "CREATE USER weak@localhost IDENTIFIED BY 'hush-hush'",
            "CREATE USER seer@localhost IDENTIFIED BY 'hush-hush'",
            "GRANT PROCESS ON *.* TO seer@localhost",
        ])
        .await;
    let mut watcher = server.connect().await;
    let (id, handle) = sleeper(&server).await;
    let task = task(&mut watcher, id, Activity::Busy).await;
    for user in ["weak", "seer"] {
        let endpoint = Endpoint::over_socket(&server.socket, credentials(user, "hush-hush"));
        let mut initiator = Mysql::open(settings(endpoint)).await.unwrap();
        let mut said = vec![
            format!("{initiator:?}"),
            initiator.check_permission().await.unwrap_err(),
        ];
        for rung in [KILL_QUERY_ID, KILL_QUERY, KILL_CONNECTION] {
            said.push(refusal(&initiator.send(rung, &task).await).to_owned());
        }
        for text in &said[1..] {
            assert!(
                text.contains(&format!(
                    "GRANT PROCESS, CONNECTION ADMIN ON *.* TO '{user}'@'localhost'"
                )),
                "{text}"
            );
        }
        for text in &said {
            assert!(
                !text.contains("hush-hush") && !text.contains('*') | text.contains("*.*"),
                "{text}"
            );
        }
    }
    assert!(!handle.is_finished());
    let endpoint = Endpoint::over_socket(&server.socket, credentials("weak", "wrong-pass"));
    let error = Mysql::open(settings(endpoint)).await.unwrap_err();
    assert!(
        error.contains("Access denied") && !error.contains("wrong-pass"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_or_is_gone_refuses_within_the_limit_and_is_found_again() {
    let mut server = server!();
    let mut watcher = server.connect().await;
    let mut initiator = initiator(&server).await;
    let (id, _handle) = sleeper(&server).await;
    let task = task(&mut watcher, id, Activity::Busy).await;

    server.freeze();
    let before_ns = clock_ns();
    let answer = initiator.send(KILL_QUERY_ID, &task).await;
    let took_ns = clock_ns() - before_ns;
    server.thaw();
    assert!(
        refusal(&answer).contains("no answer within 1000 ms"),
        "{answer:?}"
    );
    assert!(took_ns < 1_500_000_000, "{took_ns}");
    assert!(initiator.own_ids().is_empty());

    initiator
        .keep_warm()
        .await
        .expect("the server answers again");
    assert_eq!(initiator.own_ids().len(), 1);

    server.crash();
    let before_ns = clock_ns();
    let answer = initiator.send(KILL_CONNECTION, &task).await;
    assert!(refusal(&answer).contains("connection broke"), "{answer:?}");
    assert!(refusal(&initiator.send(KILL_QUERY, &task).await).contains("no control connection"));
    assert!(clock_ns() - before_ns < 1_500_000_000);
    let first = initiator.keep_warm().await.unwrap_err();
    assert_eq!(
        initiator.keep_warm().await.unwrap_err(),
        first,
        "said in the same words until it changes"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_extra_port_is_used_when_every_ordinary_connection_is_taken() {
    let extra = mariadb::free_port();
    let option = format!("--extra-port={extra}");
    let server = server!(&option, "--extra-max-connections=3", "--max-connections=10");
    let mut watcher = server.connect().await;
    let (id, handle) = sleeper(&server).await;
    let task = task(&mut watcher, id, Activity::Busy).await;
    let mut taken = Vec::new();
    // A privileged account may take one more than max_connections.
    for _ in 0..9 {
        taken.push(server.connect().await);
    }
    let mut endpoint = Endpoint::over_socket(&server.socket, credentials("root", ""));
    assert!(
        Mysql::open(settings(endpoint.clone()))
            .await
            .unwrap_err()
            .contains("Too many connections")
    );
    endpoint.extra_port = Some(extra);
    let mut initiator = Mysql::open(settings(endpoint)).await.unwrap();
    initiator.check_permission().await.unwrap();
    assert_eq!(
        initiator.send(KILL_QUERY_ID, &task).await,
        Answer::accepted()
    );
    assert_eq!(handle.await.unwrap().1, Err(1317));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_orders_work_while_the_global_read_lock_is_held() {
    let server = server!();
    let mut watcher = server.connect().await;
    let mut initiator = initiator(&server).await;
    let mut holder = server.connect().await;
    let id = id_of(&mut holder).await;
    holder
        .query_drop("FLUSH TABLES WITH READ LOCK")
        .await
        .unwrap();
    let idle = task(&mut watcher, id, Activity::IdleWithLocks).await;
    assert_eq!(
        initiator.send(KILL_CONNECTION, &idle).await,
        Answer::accepted()
    );
    wait_until_gone(&mut watcher, id).await;
}

/// Debian's own set-up: the account of the operating system's user, by the socket, without a password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_is_authenticated_by_the_socket_needs_no_password() {
    let server = server!();
    let me = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .unwrap()
        .unwrap()
        .name;
    server
        .run(&[
            &format!("CREATE OR REPLACE USER {me}@localhost IDENTIFIED VIA mysql_native_password USING 'invalid' OR unix_socket"),
            &format!("GRANT PROCESS, CONNECTION ADMIN ON *.* TO {me}@localhost"),
        ])
        .await;
    let endpoint = Endpoint::over_socket(&server.socket, credentials(&me, ""));
    Mysql::open(settings(endpoint))
        .await
        .unwrap()
        .check_permission()
        .await
        .unwrap();
}

/// Over TCP, through a role, with a password from a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_with_its_rights_from_a_role_works_over_tcp() {
    let server = server!();
    server
        .run(&[
            "CREATE ROLE canceller",
            "GRANT PROCESS, CONNECTION ADMIN ON *.* TO canceller",
            "CREATE USER atropos@'127.0.0.1' IDENTIFIED BY 'hush-hush'",
            "GRANT canceller TO atropos@'127.0.0.1'",
            "SET DEFAULT ROLE canceller FOR atropos@'127.0.0.1'",
        ])
        .await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hush-hush\n").unwrap();
    let credentials = Credentials::load("atropos", Some(file.path()), None).unwrap();
    let endpoint = Endpoint::over_tcp("127.0.0.1", server.port, credentials);
    Mysql::open(settings(endpoint))
        .await
        .unwrap()
        .check_permission()
        .await
        .unwrap();
}
