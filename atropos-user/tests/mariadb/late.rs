//! Stalls that were there before the agent came, with every connection of the pool blocked.

use std::process::Output;

use serde_json::Value;

use crate::agent::{Agent, atropos};
use crate::common::crowd::Crowd;
use crate::common::mariadb::MariaDb;
use crate::common::wait_for;
use crate::scene::{Person, server, waiting};

const READ: &str = "select v from w.t where id = 7";

/// A server that has stalled: who caused it, and everybody who waits.
async fn stalled(server: &MariaDb) -> (Person, Crowd, tokio::task::JoinHandle<Result<(), u16>>) {
    // Writes leave work for the purge threads, which take locks as well and stand in no list of sessions.
    let writers = Crowd::gather(server, "update w.t set v = v + 1 where id = 9", 4).await;
    let mut forgotten = Person::new(server).await;
    forgotten.forgets_a_transaction(server).await;
    assert_eq!(writers.disperse().await, 0);
    let alter = Person::new(server).await.starts("alter table w.t force");
    waiting(server, 1).await;
    let crowd = Crowd::gather(server, READ, 12).await;
    waiting(server, 13).await;
    (forgotten, crowd, alter)
}

/// What the binary reports of the server when it is asked in these words.
fn report(server: &MariaDb, words: &[&str]) -> Value {
    let output: Output = atropos()
        .args(words)
        .args(["--json", "--pid", &server.pid.to_string()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_names_the_holder_of_a_stall_that_is_older_than_itself() {
    let Some(server) = server().await else { return };
    let (mut forgotten, crowd, alter) = stalled(&server).await;
    let report = report(&server, &["why"]);
    assert_eq!(report["waiting_count"], 13, "{report:#}");
    assert_eq!(report["roots"].as_array().unwrap().len(), 1, "{report:#}");
    let root = &report["roots"][0];
    assert_eq!(root["id"], forgotten.id);
    assert_eq!(root["waiters_count"], 13);
    assert_eq!(root["in_the_way"][0]["instance"], "table w.t");
    assert_eq!(
        root["children"][0]["children"].as_array().unwrap().len(),
        12,
        "the readers stand behind the ALTER"
    );
    assert_eq!(
        report["candidates"][0]["command"],
        format!("KILL CONNECTION {}", forgotten.id)
    );
    assert_eq!(
        report["unseen"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|u| u.as_str().unwrap().contains("could not"))
            .count(),
        0
    );
    forgotten.does("commit").await;
    alter.await.unwrap().unwrap();
    assert_eq!(crowd.disperse().await, 0, "a look changes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_sees_the_waits_in_two_independent_ways() {
    let Some(server) = server().await else { return };
    let (mut forgotten, crowd, alter) = stalled(&server).await;
    // A thread is on its way into or out of its one-second nap now and then.
    wait_for("all thirteen to be asleep in their locks", || {
        let report = report(&server, &["check", "--seconds", "0"]);
        let resource = &report["resources"][0];
        let all = [&resource["waiting"], &resource["confirmed_by_futex"]];
        all.iter().all(|count| **count == 13).then_some(())
    });
    forgotten.does("commit").await;
    alter.await.unwrap().unwrap();
    crowd.disperse().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_ends_the_holder_of_a_stall_that_is_older_than_itself() {
    let Some(server) = server().await else { return };
    let (mut forgotten, crowd, alter) = stalled(&server).await;
    let mut agent = Agent::attach(&server, &["--slo", "p99=20ms", "--enforce"]);
    let decision = agent.decision(|d| d["orders"][0].is_object());
    assert_eq!(
        decision["orders"][0]["task"]["id"], forgotten.id,
        "{decision:#}"
    );
    assert_eq!(agent.outcome()["result"], "released");
    alter.await.unwrap().unwrap();
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    assert!(!forgotten.is_alive().await);
    assert_eq!(agent.sent().len(), 1);
}
