//! The whole loop by the exact way: a statement at work that holds a lock is cancelled from inside the kernel.

use std::fs;

use crate::agent::Agent;
use crate::common::PATIENCE;
use crate::common::postgresql::Postgres;
use crate::crowd::{Crowd, READ};
use crate::scene::{is_alive, server, with_tables};

/// A busy machine may keep the backend from its processor for longer than the preset waits.
const PATIENT: &str = r#"
schema = 1
name = "patient"
extends = "postgresql"

[cancel.exact]
within = "800ms"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_at_work_that_holds_a_lock_is_ended_by_its_own_backend() {
    if let Some(server) = server().await {
        ends_by_its_own_backend(&server).await;
    }
}

/// What the server and its memory call a process is not what the kernel and we call it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_is_in_a_container_that_counts_its_own_processes() {
    if let Some(server) = Postgres::start_contained() {
        let server = with_tables(server).await;
        ends_by_its_own_backend(&server).await;
    }
}

async fn ends_by_its_own_backend(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("patient.toml");
    fs::write(&config, PATIENT).unwrap();
    let mut agent = Agent::start(&[
        "--pid",
        &server.pid.to_string(),
        "--socket",
        &server.socket.display().to_string(),
        "--user",
        "postgres",
        "--preset",
        &config.display().to_string(),
        "--slo",
        "p99=20ms",
        "--enforce",
    ]);
    agent.wait_for("attached", |line| line["event"] == "attached");
    let crowd = Crowd::gather(server, READ, 8).await;
    crowd.gets_on().await;
    let (client, pid) = server.connect().await;
    let culprit = tokio::spawn(async move {
        let result = client
            .batch_execute("lock table t; select count(*) from generate_series(1, 2000000000)")
            .await;
        (client, result)
    });
    let decision = agent.decision(|d| d["orders"][0].is_object());
    assert_eq!(decision["orders"][0]["task"]["id"], pid, "{decision:#}");
    assert_eq!(decision["orders"][0]["rung_name"], "pg_cancel_backend");
    assert_eq!(agent.outcome()["result"], "released");
    let (client, result) = tokio::time::timeout(PATIENCE, culprit)
        .await
        .unwrap()
        .unwrap();
    assert!(result.is_err());
    assert!(is_alive(&client).await, "the session stays");
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0, "no innocent saw an error");
    let sent = agent.sent();
    let how = sent[0]["detail"].as_str().unwrap();
    assert!(how.starts_with("SIGINT inside the kernel"), "{sent:#?}");
    assert_eq!(sent.len(), 1);
    assert!(agent.stop().success());
}
