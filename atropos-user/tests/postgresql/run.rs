//! The whole loop: the right backend is ended, everybody else gets on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::agent::Agent;
use crate::common::postgresql::Postgres;
use crate::scene::{forgotten, is_alive, server, starts};

pub(crate) const READ: &str = "select v from t where id = 7";

fn attach(server: &Postgres) -> Agent {
    let (pid, socket) = (server.pid.to_string(), server.socket.display().to_string());
    let mut agent = Agent::start(&[
        "--pid",
        &pid,
        "--socket",
        &socket,
        "--user",
        "postgres",
        "--slo",
        "p99=20ms",
        "--enforce",
    ]);
    agent.wait_for("attached", |line| line["event"] == "attached");
    agent
}

/// Innocents who use the server over and over; each error counts.
pub(crate) struct Crowd {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    errors: Arc<AtomicU64>,
    members: Vec<JoinHandle<()>>,
}

impl Crowd {
    pub(crate) async fn gather(server: &Postgres, statement: &'static str, count: usize) -> Self {
        let (stop, done, errors) = (
            Arc::<AtomicBool>::default(),
            Arc::<AtomicU64>::default(),
            Arc::<AtomicU64>::default(),
        );
        let mut members = Vec::new();
        for _ in 0..count {
            let (client, _) = server.connect().await;
            let (stop, done, errors) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&errors));
            members.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    match client.batch_execute(statement).await {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(_) => errors.fetch_add(1, Ordering::Relaxed),
                    };
                    // A pause between requests, as a client that thinks makes it; nothing is waited for.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }));
        }
        Self {
            stop,
            done,
            errors,
            members,
        }
    }

    /// Waits until everybody has got on.
    pub(crate) async fn gets_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        tokio::time::timeout(Duration::from_secs(20), async {
            while self.done.load(Ordering::Relaxed) < before + 4 * self.members.len() as u64 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("the crowd gets on");
    }

    pub(crate) async fn disperse(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for member in self.members {
            member.await.unwrap();
        }
        self.errors.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_transaction_that_an_alter_table_queues_behind_is_ended_and_nobody_else() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server);
    let crowd = Crowd::gather(&server, READ, 8).await;
    let (decoy, _) = server.connect().await;
    decoy
        .batch_execute("begin; select * from other")
        .await
        .unwrap();
    let (client, pid) = forgotten(&server).await;
    let idle = "select extract(epoch from now() - state_change)::float8 from pg_stat_activity where pid = $1";
    let (admin, _) = server.connect().await;
    // More than the agent grants a transaction.
    while admin
        .query_one(idle, &[&i32::try_from(pid).unwrap()])
        .await
        .unwrap()
        .get::<_, f64>(0)
        < 4.0
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    crowd.gets_on().await;
    let (_, alter) = starts(&server, "alter table t add column c int").await;
    let decision = agent.decision(|d| d["orders"][0].is_object());
    assert_eq!(decision["orders"][0]["task"]["id"], pid, "{decision:#}");
    assert_eq!(decision["orders"][0]["rung_name"], "pg_terminate_backend");
    assert_eq!(agent.outcome()["result"], "released");
    alter.await.unwrap().unwrap();
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0, "no innocent saw an error");
    assert!(!is_alive(&client).await);
    assert!(
        is_alive(&decoy).await,
        "who holds what nobody wants is left alone"
    );
    assert_eq!(agent.sent().len(), 1, "one order, no second");
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_in_the_way_is_told_and_nobody_is_ended() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server);
    let crowd = Crowd::gather(&server, READ, 4).await;
    crowd.gets_on().await;
    server
        .run(&["begin; lock table t in access exclusive mode; prepare transaction 'left behind'"])
        .await;
    let decision = agent.decision(|d| d["candidates"][0].is_object() || d["orders"].is_array());
    assert!(
        decision["orders"].as_array().is_none_or(Vec::is_empty),
        "{decision:#}"
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(agent.sent().len(), 0, "nothing is sent");
    server.run(&["rollback prepared 'left behind'"]).await;
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_equal_small_writers_of_one_row_are_left_alone() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server);
    let crowd = Crowd::gather(&server, "update t set v = v + 1 where id = 7", 24).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    assert!(agent.stop().success());
}
