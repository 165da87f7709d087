//! An old snapshot, where the user has set a limit to its age: its session is ended, and nobody else.

use std::fs;

use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error};

use crate::common::postgresql::Postgres;
use crate::crowd::{Crowd, attach_by};
use crate::scene::{is_alive, row, server, starts};

/// A config with a limit; the folder that it lies in.
fn limit(above: u64, after: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limit.toml");
    let text = format!(
        "schema = 1\nname = \"limit\"\nextends = \"postgresql\"\n\n[[sessions.note]]\nname = \"old_snapshot\"\n\
         least = 100\nend_above = {above}\nend_after = \"{after}\"\n"
    );
    fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap().to_owned();
    (folder, path)
}

/// A transaction with a snapshot that it keeps, of a client that calls itself so.
async fn reader(server: &Postgres, name: &str) -> (Client, u64) {
    let (client, pid) = server.connect().await;
    let begin = format!(
        "set application_name = '{name}'; begin isolation level repeatable read; select * from t"
    );
    client.batch_execute(&begin).await.unwrap();
    (client, pid)
}

/// Takes so many transaction numbers, as a queue that rows come to and go from does.
async fn queue_moves(server: &Postgres, numbers: u64) {
    // Each block with an exception that writes takes one.
    let moves = format!(
        "do $$ begin for i in 1..{numbers} loop begin insert into other values (i, i); exception when others then null; end; end loop; delete from other; end $$"
    );
    server.run(&[&moves]).await;
}

/// How old the process's snapshot is, in transactions, as the server says.
async fn age(admin: &Client, pid: u64) -> i64 {
    let age = format!("select age(backend_xmin)::bigint from pg_stat_activity where pid = {pid}");
    row(admin, &age).await.get(0)
}

/// Writes first and goes on for long.
const WRITE: &str = "begin isolation level repeatable read; insert into other values (-1, -1); select pg_sleep(120) from t limit 1";

/// A statement that has come to where it sleeps.
async fn at_work(
    server: &Postgres,
    statement: &'static str,
) -> (u64, JoinHandle<Result<(), Error>>) {
    let (pid, work) = starts(server, statement).await;
    let (admin, _) = server.connect().await;
    let asleep =
        format!("select 1 from pg_stat_activity where pid = {pid} and wait_event = 'PgSleep'");
    row(&admin, &asleep).await;
    (pid, work)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_snapshot_beyond_the_limit_that_was_set_is_ended_and_nobody_else() {
    let Some(server) = server().await else { return };
    let (_folder, config) = limit(5000, "2s");
    let mut agent = attach_by(
        &server,
        Some("old_snapshot_beyond_its_limit"),
        &[
            "--preset",
            &config,
            "--protect-user",
            "billing",
            "--slo",
            "p99=20ms",
            "--enforce",
        ],
    );
    let crowd = Crowd::gather(&server, "select v from t where id = 7", 4).await;
    let (forgotten, pid) = reader(&server, "report").await;
    let (report, reads) = at_work(&server, "select pg_sleep(120) from t limit 1").await;
    queue_moves(&server, 10).await;
    // Nearly as old, and not to be ended: a backup, a protected application, a writer at work.
    let (backup, _) = reader(&server, "pg_dump").await;
    let (protected, _) = reader(&server, "billing").await;
    let (writer, writes) = at_work(&server, WRITE).await;
    queue_moves(&server, 6000).await;
    // It has only just begun, and sees nothing younger than the writer either.
    let (fresh, fresh_pid) = reader(&server, "report").await;
    // The one that is idle, and the one that has only read and still does.
    for ended in [pid, report] {
        let decision = agent.decision(|d| d["orders"][0]["task"]["id"] == ended);
        assert_eq!(decision["orders"].as_array().unwrap().len(), 1);
        assert_eq!(decision["orders"][0]["rung_name"], "pg_terminate_backend");
        let limit = &decision["limit"];
        assert_eq!(
            (&limit["name"], &limit["most"], &limit["longest_s"]),
            (&"old_snapshot".into(), &5000.into(), &2.0.into())
        );
        assert!(limit["value"].as_u64().unwrap() > 5000, "{limit:#}");
        assert!(limit["open_s"].as_f64().unwrap() > 2.0, "{limit:#}");
        agent.wait_for("release", |line| {
            let outcome = &line["effect"]["outcome"];
            outcome["id"] == ended && outcome["result"] == "released"
        });
    }
    assert!(!is_alive(&forgotten).await);
    assert!(reads.await.unwrap().is_err());
    for spared in ["protected_class", "protected_principal"] {
        agent.decision(|d| d["candidates"][0]["passed_over"] == spared);
    }
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0, "no innocent saw an error");
    let (admin, _) = server.connect().await;
    for old in [fresh_pid, writer] {
        assert!(
            age(&admin, old).await > 5000,
            "nearly as old as those that went"
        );
    }
    for alive in [&backup, &protected, &fresh] {
        assert!(is_alive(alive).await);
    }
    assert_eq!(agent.sent().len(), 2, "{:#?}", agent.sent());
    assert!(!writes.is_finished());
    let end = format!("select pg_terminate_backend({writer})");
    admin.batch_execute(&end).await.unwrap();
    assert!(writes.await.unwrap().is_err());
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_ends_nobody_where_orders_are_only_written_down() {
    let Some(server) = server().await else { return };
    let (_folder, config) = limit(1000, "1s");
    let mut agent = attach_by(
        &server,
        None,
        &["--preset", &config, "--slo", "p99=20ms", "--dry-run"],
    );
    let (reader, pid) = reader(&server, "report").await;
    queue_moves(&server, 2000).await;
    let decision = agent.decision(|d| d["orders"][0].is_object());
    assert_eq!(decision["orders"][0]["task"]["id"], pid, "{decision:#}");
    assert_eq!(agent.outcome()["result"], "not_sent");
    assert!(is_alive(&reader).await);
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_not_old_enough_is_left_alone_however_old_its_snapshot() {
    let Some(server) = server().await else { return };
    let (_folder, config) = limit(1000, "1h");
    let mut agent = attach_by(
        &server,
        None,
        &["--preset", &config, "--slo", "p99=20ms", "--enforce"],
    );
    let (reader, pid) = reader(&server, "report").await;
    queue_moves(&server, 2000).await;
    let (admin, _) = server.connect().await;
    assert!(age(&admin, pid).await > 1000);
    let crowd = Crowd::gather(&server, "select v from t where id = 7", 4).await;
    for _ in 0..10 {
        crowd.gets_on().await;
    }
    assert_eq!(crowd.disperse().await, 0);
    assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    assert!(is_alive(&reader).await);
    assert!(agent.stop().success());
}
