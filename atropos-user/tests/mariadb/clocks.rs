//! Clocks that somebody sets: one session's, by `SET TIMESTAMP`.

use crate::agent::Agent;
use crate::common::crowd::Crowd;
use crate::scene::{Person, server, waiting};

const READ: &str = "select v from w.t where id = 7";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sets_its_own_clock_hides_nobody_else() {
    let Some(server) = server().await else { return };
    let mut traveller = Person::new(&server).await;
    traveller.does("set timestamp = 1").await;
    traveller.does("select 1").await;
    let mut agent = Agent::attach(&server, &["--slo", "p99=20ms", "--enforce"]);
    let crowd = Crowd::gather(&server, READ, 4).await;
    let mut forgotten = Person::new(&server).await;
    forgotten.forgets_a_transaction(&server).await;
    let alter = Person::new(&server).await.starts("alter table w.t force");
    let decision = agent.decision(|d| d["orders"][0].is_object());
    assert_eq!(
        decision["orders"][0]["task"]["id"], forgotten.id,
        "{decision:#}"
    );
    assert_eq!(agent.outcome()["result"], "released");
    alter.await.unwrap().unwrap();
    assert_eq!(crowd.disperse().await, 0);
    assert!(traveller.is_alive().await);
    assert!(agent.said.iter().all(|line| line["event"] != "blind"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sets_its_own_clock_cannot_be_told_the_age_of_and_is_never_ended() {
    let Some(server) = server().await else { return };
    let mut agent = Agent::attach(&server, &["--slo", "p99=20ms", "--enforce"]);
    let mut traveller = Person::new(&server).await;
    traveller.does("set timestamp = 1").await;
    traveller.forgets_a_transaction(&server).await;
    let alter = Person::new(&server).await.starts("alter table w.t force");
    waiting(&server, 1).await;
    let crowd = Crowd::gather(&server, READ, 4).await;
    let is_it = |candidate: &serde_json::Value| {
        candidate["task"]["principal"] == "" && candidate["task"]["id"] == 0
    };
    let decision = agent.decision(|d| {
        let candidates = d["candidates"].as_array();
        candidates.is_some_and(|all| all.iter().any(is_it))
    });
    let candidates = decision["candidates"].as_array().unwrap();
    let seen = candidates.iter().find(|c| is_it(c)).unwrap();
    assert_eq!(seen["passed_over"], "weak_evidence", "{decision:#}");
    assert!(traveller.is_alive().await);
    traveller.does("commit").await;
    let _ = alter.await.unwrap();
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    assert!(traveller.is_alive().await, "nobody ended it");
}
