//! Statements that fail: the server leaves them by `longjmp`, past every end of a function, and none may be missed for it.

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

/// Runs a statement that fails, over and over, on a connection of its own, which stays.
async fn fail(server: &Postgres) -> impl Future<Output = Client> + use<> {
    let (client, _) = server.connect().await;
    async move {
        for _ in 0..STATEMENTS {
            let error = client.batch_execute("select 1 / (id - id) from t").await;
            let error = error.unwrap_err();
            assert_eq!(error.code(), Some(&SqlState::DIVISION_BY_ZERO), "{error}");
        }
        client
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_failing_statements_are_all_counted() {
    let Some(server) = server().await else { return };
    let mut probed = Probed::attach(&server);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(fail(&server).await);
    }
    probed.harvest();
    let (before, began_ns) = (probed.request_count, clock_ns());
    let sessions: JoinSet<Client> = sessions.into_iter().collect();
    let _sessions = probed.harvest_during(sessions.join_all()).await;
    let seconds = (clock_ns() - began_ns) as f64 / 1e9;
    let errors = SESSIONS * STATEMENTS;
    println!("{:.0} errors a second", f64::from(errors) / seconds);
    probed.harvest();
    assert_eq!(probed.lost_count, 0);
    assert_eq!(probed.request_count - before, u64::from(errors));
}
