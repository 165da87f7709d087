//! Statements that fail: the server leaves them by `longjmp`, past every end of a function, and nothing may stay open behind them.

use tokio::task::JoinSet;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::common::clock_ns;
use crate::common::postgresql::Postgres;
use crate::probed::Probed;
use crate::scene::server;

/// Statements of each session.
const STATEMENTS: u32 = 1500;
/// Sessions.
const SESSIONS: u32 = 4;

/// Runs a statement that fails, over and over, on a connection of its own, which stays: with it would go what it left open.
async fn fail(
    server: &Postgres,
    first: &str,
    statement: &'static str,
    count: u32,
    with: SqlState,
) -> impl Future<Output = Client> + use<> {
    let (client, _) = server.connect().await;
    client.batch_execute(first).await.unwrap();
    async move {
        for _ in 0..count {
            let error = client.batch_execute(statement).await.unwrap_err();
            assert_eq!(error.code(), Some(&with), "{error}");
        }
        client
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_failing_statements_leave_no_interval_open_and_each_is_counted() {
    let Some(server) = server().await else { return };
    let mut probed = Probed::attach(&server);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let wrong = "select 1 / (id - id) from t";
        let state = SqlState::DIVISION_BY_ZERO;
        sessions.push(fail(&server, "select 1", wrong, STATEMENTS, state).await);
    }
    probed.keeps("quiet", |kept| kept.open.is_empty());
    let (before, began_ns) = (probed.request_count, clock_ns());
    let sessions: JoinSet<Client> = sessions.into_iter().collect();
    let _sessions = probed.harvest_during(sessions.join_all()).await;
    let seconds = (clock_ns() - began_ns) as f64 / 1e9;
    let errors = SESSIONS * STATEMENTS;
    println!("{:.0} errors a second", f64::from(errors) / seconds);
    probed.keeps("quiet", |kept| kept.open.is_empty());
    assert_eq!(probed.lost_count, 0);
    assert_eq!(probed.request_count - before, u64::from(errors));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_for_locks_that_end_in_an_error_leave_no_interval_open() {
    let Some(server) = server().await else { return };
    let (holder, _) = server.connect().await;
    holder
        .batch_execute("begin; update t set v = v + 1 where id in (1, 2); lock table other")
        .await
        .unwrap();
    let mut probed = Probed::attach(&server);
    let mut sessions = JoinSet::new();
    for statement in [
        "update t set v = 0 where id = 1",
        "update t set v = 0 where id = 2",
        "select * from other",
    ] {
        let impatient = "set lock_timeout = '5ms'";
        sessions.spawn(
            fail(
                &server,
                impatient,
                statement,
                40,
                SqlState::LOCK_NOT_AVAILABLE,
            )
            .await,
        );
    }
    let impatient = "set statement_timeout = '5ms'";
    sessions.spawn(
        fail(
            &server,
            impatient,
            "select * from other",
            40,
            SqlState::QUERY_CANCELED,
        )
        .await,
    );
    let _sessions = probed.harvest_during(sessions.join_all()).await;
    probed.keeps("empty", |kept| kept.open.is_empty());
    assert_eq!(probed.lost_count, 0);
    holder.batch_execute("commit").await.unwrap();
}
