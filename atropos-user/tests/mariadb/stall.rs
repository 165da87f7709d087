//! Stalls that begin while the agent watches: the right one is ended, everybody else gets on.

use mysql_async::prelude::Queryable as _;

use crate::agent::{Agent, atropos};
use crate::common::crowd::Crowd;
use crate::common::eventually;
use crate::scene::{Person, server};

const READ: &str = "select v from w.t where id = 7";
const WRITE: &str = "update w.t set v = v + 1 where id = 7";
const SLO: &str = "p99=20ms";

/// Takes some seconds, whatever the machine: far longer than a decision.
const LONG_UPDATE: &str = "update w.big set v = v + 1 + benchmark(40, md5(id))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_transaction_that_an_alter_table_queues_behind_is_ended_and_nobody_else() {
    let Some(server) = server().await else { return };
    let mut agent = Agent::attach(&server, &["--slo", SLO, "--enforce"]);
    let crowd = Crowd::gather(&server, READ, 8).await;
    let mut decoy = Person::new(&server).await;
    decoy.does("begin").await;
    decoy.does("select * from w.other").await;
    let mut forgotten = Person::new(&server).await;
    forgotten.forgets_a_transaction(&server).await;
    crowd.gets_on().await;
    let alter = Person::new(&server)
        .await
        .starts("alter table w.t add c int");
    let decision = agent.decision(|d| d["orders"][0].is_object());
    assert_eq!(
        decision["orders"][0]["task"]["id"], forgotten.id,
        "{decision:#}"
    );
    assert_eq!(decision["orders"][0]["rung_name"], "KILL CONNECTION");
    assert_eq!(agent.outcome()["result"], "released");
    assert_eq!(alter.await.unwrap(), Ok(()), "the ALTER goes on");
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0, "no innocent saw an error");
    assert!(!forgotten.is_alive().await);
    assert!(
        decoy.is_alive().await,
        "who holds what nobody wants is left alone"
    );
    assert_eq!(agent.sent().len(), 1, "one order, no second");
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_lock_queued_behind_a_long_update_is_ended_and_the_update_finishes() {
    let Some(server) = server().await else { return };
    let mut agent = Agent::attach(&server, &["--slo", SLO, "--enforce"]);
    let crowd = Crowd::gather(&server, WRITE, 8).await;
    crowd.gets_on().await;
    let update = Person::new(&server).await.starts(LONG_UPDATE);
    let backup = Person::new(&server).await;
    let backup_id = backup.id;
    let mut watcher = server.connect().await;
    let runs = "select id from information_schema.processlist where info like 'update w.big%' and time_ms > 200";
    let _id: u64 = eventually("the update to run", async || {
        watcher.query_first(runs).await.unwrap()
    })
    .await;
    let backup = backup.starts("flush tables with read lock");
    let decision = agent.decision(|d| d["orders"][0].is_object());
    assert_eq!(
        decision["orders"][0]["task"]["id"], backup_id,
        "{decision:#}"
    );
    assert_eq!(agent.outcome()["result"], "released");
    assert_eq!(
        backup.await.unwrap(),
        Err(1317),
        "the backup's statement was interrupted"
    );
    assert_eq!(update.await.unwrap(), Ok(()), "the update keeps its work");
    assert_eq!(crowd.disperse().await, 0, "no innocent saw an error");
    assert_eq!(agent.sent().len(), 1, "one order, no second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observe_and_dry_run_name_the_same_task_and_send_nothing() {
    let Some(server) = server().await else { return };
    for mode in [&[][..], &["--dry-run"]] {
        let mut agent = Agent::attach(&server, &[&["--slo", SLO], mode].concat());
        let crowd = Crowd::gather(&server, READ, 4).await;
        let mut forgotten = Person::new(&server).await;
        forgotten.forgets_a_transaction(&server).await;
        let alter = Person::new(&server).await.starts("alter table w.t force");
        let decision = agent.decision(|d| d["orders"][0].is_object());
        assert_eq!(
            decision["orders"][0]["task"]["id"], forgotten.id,
            "{decision:#}"
        );
        assert_eq!(agent.outcome()["result"], "not_sent");
        assert!(
            forgotten.is_alive().await,
            "nobody was hurt in mode {mode:?}"
        );
        forgotten.does("commit").await;
        assert_eq!(alter.await.unwrap(), Ok(()));
        assert_eq!(crowd.disperse().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_incident_replays_to_the_decisions_that_were_made() {
    let Some(server) = server().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (recording, audit) = (folder.path().join("r"), folder.path().join("audit.jsonl"));
    let files = [
        "--record",
        recording.to_str().unwrap(),
        "--audit",
        audit.to_str().unwrap(),
    ];
    let mut agent = Agent::attach(
        &server,
        &[&["--slo", SLO, "--enforce"][..], &files].concat(),
    );
    let crowd = Crowd::gather(&server, READ, 4).await;
    let mut forgotten = Person::new(&server).await;
    forgotten.forgets_a_transaction(&server).await;
    let alter = Person::new(&server).await.starts("alter table w.t force");
    agent.outcome();
    let live: Vec<_> = agent
        .said
        .iter()
        .filter(|line| line["event"] == "effect")
        .map(|l| l["effect"].clone())
        .collect();
    assert!(agent.stop().success());
    alter.await.unwrap().unwrap();
    crowd.disperse().await;
    let output = atropos()
        .args(["replay", "--json"])
        .arg(&recording)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let replayed: Vec<serde_json::Value> = output
        .stdout
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    let replayed: Vec<_> = replayed
        .into_iter()
        .map(|line| line["effect"].clone())
        .collect();
    assert_eq!(
        replayed[..live.len()],
        live[..],
        "the same inputs give the same effects"
    );
    // The audit log tells the whole story by itself: the decision, the order with its command before the answer, the fate.
    let log = std::fs::read_to_string(&audit).unwrap();
    let kinds: Vec<String> = log
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .filter(|kind| {
            ["start", "decision", "order", "answer", "outcome", "stop"].contains(&kind.as_str())
        })
        .collect();
    assert_eq!(
        kinds,
        ["start", "decision", "order", "answer", "outcome", "stop"]
    );
    assert!(log.contains(&format!("KILL CONNECTION {}", forgotten.id)));
    assert!(
        !log.contains("= 7"),
        "no literal of a statement is in the log"
    );
}
