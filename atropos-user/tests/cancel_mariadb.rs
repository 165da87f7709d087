//! The `mysql` initiator against a real server: ways in, rights, trouble, and what is said of them.

#![allow(
    clippy::unwrap_used,
    reason = "in a test an unmet expectation is a failure"
)]

mod common;

use atropos::cancel::{Answer, Credentials, Endpoint, Initiator, Mysql, MysqlSettings};
use atropos::engine::input::{Activity, OrderResult};
use common::mariadb::MariaDb;
use common::orders::{
    KILL_CONNECTION, KILL_QUERY, KILL_QUERY_ID, credentials, id_of, initiator, refusal, settings,
    sleeper, task, unknown, wait_until_gone,
};
use common::{PATIENCE, eventually};

macro_rules! server {
    () => {
        server!(start)
    };
    ($start:ident $(, $options:expr)?) => {{
        let Some(server) = MariaDb::$start($($options)?) else { return };
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
        let answer = initiator.send(rung, &task).await;
        assert_eq!(
            answer,
            Answer::accepted(),
            "{}",
            initiator.describe(rung, &task)
        );
        let ended = tokio::time::timeout(PATIENCE, handle).await;
        let (mut conn, result) = ended.expect("it ends before its time").unwrap();
        if rung == KILL_CONNECTION {
            // Told why or not, as the server gets to it.
            assert!(result.is_err(), "{result:?}");
            wait_until_gone(&mut watcher, id).await;
        } else {
            assert_eq!(result, Err(1317), "query execution was interrupted");
            assert_eq!(id_of(&mut conn).await, id, "the connection lives on");
        }
    }
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
async fn of_a_server_that_hangs_or_is_gone_no_answer_is_waited_for_beyond_the_limit_and_it_is_found_again()
 {
    let mut server = server!();
    let mut watcher = server.connect().await;
    let endpoint = Endpoint::over_socket(&server.socket, credentials("root", ""));
    let mut impatient = Mysql::new(MysqlSettings {
        timeout: MysqlSettings::TIMEOUT,
        ..settings(endpoint)
    });
    warm(&mut impatient).await;
    let mut patient = initiator(&server).await;
    let (id, _handle) = sleeper(&server).await;
    let task = task(&mut watcher, id, Activity::Busy).await;

    server.freeze();
    let answer = tokio::time::timeout(PATIENCE, impatient.send(KILL_QUERY_ID, &task)).await;
    server.thaw();
    let answer = answer.expect("a server that hangs is given up");
    assert!(
        unknown(&answer).contains("no answer within 1000 ms"),
        "{answer:?}"
    );
    assert!(impatient.own_ids().is_empty());
    warm(&mut impatient).await;
    assert_eq!(impatient.own_ids().len(), 1);

    server.crash();
    let answer = patient.send(KILL_CONNECTION, &task).await;
    assert!(unknown(&answer).contains("connection broke"), "{answer:?}");
    let unsent = patient.send(KILL_QUERY, &task).await;
    assert!(
        matches!(&unsent.result, OrderResult::Unsent(why) if why.contains("no control connection")),
        "{unsent:?}"
    );
    let first = patient.keep_warm().await.unwrap_err();
    assert_eq!(
        patient.keep_warm().await.unwrap_err(),
        first,
        "said in the same words until it changes"
    );
}

/// Waits until the control connection is open.
async fn warm(initiator: &mut Mysql) {
    eventually("the server to answer in time", async || {
        initiator.keep_warm().await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_comparison_finds_no_room_only_the_command_that_names_a_statement_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let option = format!("--tmpdir={}", folder.path().display());
    let server = server!(start_with, &[&option]);
    let mut watcher = server.connect().await;
    let mut initiator = initiator(&server).await;
    let (id, handle) = sleeper(&server).await;
    let task = task(&mut watcher, id, Activity::Busy).await;
    folder.close().unwrap();
    for rung in [KILL_QUERY, KILL_CONNECTION] {
        let answer = initiator.send(rung, &task).await;
        refusal(&answer);
        assert!(!handle.is_finished(), "{answer:?}");
    }
    assert_eq!(
        initiator.send(KILL_QUERY_ID, &task).await,
        Answer::accepted()
    );
    assert_eq!(handle.await.unwrap().1, Err(1317));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_extra_port_is_used_when_every_ordinary_connection_is_taken() {
    let server = server!(
        start_listening,
        &["--extra-max-connections=3", "--max-connections=10"]
    );
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
    endpoint.extra_port = server.ports.map(|ports| ports.extra);
    let mut initiator = Mysql::open(settings(endpoint)).await.unwrap();
    initiator.check_permission().await.unwrap();
    assert_eq!(
        initiator.send(KILL_QUERY_ID, &task).await,
        Answer::accepted()
    );
    assert_eq!(handle.await.unwrap().1, Err(1317));
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
    let server = server!(start_listening, &[]);
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
    let port = server.ports.unwrap().port;
    let endpoint = Endpoint::over_tcp("127.0.0.1", port, credentials);
    Mysql::open(settings(endpoint))
        .await
        .unwrap()
        .check_permission()
        .await
        .unwrap();
}
