//! Orders reach the session that they name, as it was when it was chosen, or nobody.

use atropos::agent::why::look;
use atropos::cancel::{
    Answer, Credentials, Initiator as _, PgCommand, PgEndpoint, Postgres as Control,
    PostgresSettings, Secret,
};
use atropos::engine::input::{Activity, OrderResult, SessionState};
use atropos::engine::record::Task;

use crate::common::postgresql::Postgres;
use crate::common::{PATIENCE, clock_ns, wait_for};
use crate::scene::{forgotten, is_alive, preset, resolve, row, server, starts, waiting};

/// A control connection that is open.
async fn control(server: &Postgres, user: &str) -> Control {
    let (directory, port) = PgEndpoint::of_socket(server.socket.clone(), 0);
    let mut control = Control::new(PostgresSettings {
        endpoint: PgEndpoint {
            socket_directory: Some(directory),
            host: String::new(),
            port,
            credentials: Credentials {
                user: user.to_owned(),
                secret: Secret::default(),
            },
        },
        commands: vec![PgCommand::Cancel, PgCommand::Terminate],
        timeout: PATIENCE,
        clock: clock_ns,
    });
    control.keep_warm().await.unwrap();
    control
}

/// A session as the agent would name it in an order.
fn task(server: &Postgres, pid: u64) -> Task {
    let resolved = resolve(server.pid, preset());
    let mut watcher = resolved.watcher().unwrap();
    let state: SessionState = wait_for(&format!("a look at session {pid}"), || {
        let view = watcher.look(&resolved.memory, clock_ns(), &[]);
        view.sessions.into_iter().find(|state| state.id == pid)
    });
    Task {
        id: state.id,
        thread: state.thread,
        request: state.request,
        principal: state.principal,
        doing: "as it was".to_owned(),
        ..Task::new(state.session, state.activity)
    }
}

const CANCEL: u8 = 0;
const TERMINATE: u8 = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_idle_in_a_transaction_is_ended_and_its_lock_is_free() {
    let Some(server) = server().await else { return };
    let mut control = control(&server, "postgres").await;
    control.check_permission().await.unwrap();
    let (client, pid) = forgotten(&server).await;
    let (_, alter) = starts(&server, "alter table t add column c int").await;
    waiting(&resolve(server.pid, preset()), 1);
    let task = task(&server, pid);
    assert_eq!(task.activity, Activity::IdleInTransaction);
    assert_eq!(control.send(TERMINATE, &task).await, Answer::accepted());
    alter.await.unwrap().unwrap();
    assert!(!is_alive(&client).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_comes_too_late_hits_nobody() {
    let Some(server) = server().await else { return };
    let mut control = control(&server, "postgres").await;
    let (client, pid) = forgotten(&server).await;
    let before = task(&server, pid);
    client
        .batch_execute("commit; begin; select 1")
        .await
        .unwrap();
    let answer = control.send(TERMINATE, &before).await;
    assert_eq!(answer.result, OrderResult::Missed, "{answer:?}");
    assert!(is_alive(&client).await, "it runs another statement");
    let mut busy = task(&server, pid);
    busy.activity = Activity::Busy;
    let answer = control.send(CANCEL, &busy).await;
    assert_eq!(answer.result, OrderResult::Missed, "{answer:?}");
    let mut gone = busy.clone();
    gone.id = 4_000_000;
    let answer = control.send(CANCEL, &gone).await;
    assert_eq!(answer.result, OrderResult::Missed, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_its_own_processes_and_the_agent_are_never_signalled() {
    let Some(server) = server().await else { return };
    let mut control = control(&server, "postgres").await;
    let (client, pid) = forgotten(&server).await;
    let own = control.own_ids()[0];
    let launcher = "select pid from pg_stat_activity where backend_type = 'autovacuum launcher'";
    let launcher: i32 = row(&client, launcher).await.get(0);
    let model = task(&server, pid);
    for id in [0, own, u64::try_from(launcher).unwrap()] {
        let task = Task {
            id,
            ..model.clone()
        };
        for rung in [CANCEL, TERMINATE] {
            let answer = control.send(rung, &task).await;
            assert!(
                matches!(answer.result, OrderResult::Refused(_)),
                "{id}: {answer:?}"
            );
        }
    }
    assert!(is_alive(&client).await);
    assert!(look(&resolve(server.pid, preset())).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_without_rights_is_told_what_it_lacks() {
    let Some(server) = server().await else { return };
    server
        .run(&[
            "create role small login",
            "create role enough login in role pg_signal_backend, pg_read_all_stats",
        ])
        .await;
    let (client, pid) = forgotten(&server).await;
    let task = task(&server, pid);
    let mut small = control(&server, "small").await;
    let answer = small.send(TERMINATE, &task).await;
    let OrderResult::Refused(reason) = answer.result else {
        panic!("{answer:?}")
    };
    assert!(reason.contains("GRANT pg_signal_backend"), "{reason}");
    assert!(is_alive(&client).await);
    control(&server, "enough")
        .await
        .check_permission()
        .await
        .unwrap();
}
