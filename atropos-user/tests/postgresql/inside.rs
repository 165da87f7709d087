//! What else is read of the processes: what they wait for within the server, how far they are, whom they keep from what.

use std::collections::BTreeMap;

use atropos::agent::why::{Report, look};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error};

use crate::common::postgresql::Postgres;
use crate::common::{Deadline, clock_ns, wait_for};
use crate::scene::{
    forgotten, looks, preset, resolve, row, server, starts, state, terminated, waiting,
};

/// Sessions that wait for something of a resource that nobody can be told to hold.
fn unowned(report: &Report, resource: &str) -> BTreeMap<String, usize> {
    let waits = report.unowned.iter().filter(|one| one.resource == resource);
    waits
        .map(|one| (one.instance.clone(), one.sessions))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_for_a_standby_are_counted_and_nobody_is_to_blame() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (admin, _) = server.connect().await;
    for statement in [
        "alter system set synchronous_standby_names = 'nobody'",
        "select pg_reload_conf()",
    ] {
        admin.batch_execute(statement).await.unwrap();
    }
    let set =
        "select 1 from pg_settings where name = 'synchronous_standby_names' and setting = 'nobody'";
    row(&admin, set).await;
    let mut commits = Vec::new();
    for _ in 0..3 {
        commits.push(starts(&server, "insert into other values (1, 1)").await.1);
    }
    let report = wait_for("three commits to wait", || {
        let report = look(&resolved).unwrap();
        let waits = unowned(&report, "wal");
        (waits.get("IPC SyncRep") == Some(&3)).then_some(report)
    });
    assert_eq!((report.waiting_count, report.roots.len()), (0, 0));
    assert_eq!(report.candidates.len(), 0, "{report:#?}");
    assert!(report.summary.contains("cannot be told"), "{report:#?}");
    let mut watcher = resolved.watcher().unwrap();
    let view = watcher.look(&resolved.memory, clock_ns(), &[]);
    assert!(view.blind.is_empty(), "{view:#?}");
    let no_reason: Vec<u16> = view.no_reason().iter().map(|one| one.resource.0).collect();
    assert_eq!(
        no_reason,
        [1, 2, 3, 4],
        "told to the engine with every look"
    );
    for statement in [
        "alter system reset synchronous_standby_names",
        "select pg_reload_conf()",
    ] {
        admin.batch_execute(statement).await.unwrap();
    }
    for commit in commits {
        commit.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_within_a_busy_server_have_the_names_that_the_server_gives_them() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let mut crowd = Vec::new();
    for _ in 0..12 {
        let statement = "do $$ begin for i in 1..1000000 loop insert into other values (i, i); commit; end loop; end $$";
        crowd.push(starts(&server, statement).await);
    }
    let seen = wait_for("a wait for an LWLock", || {
        let waits = unowned(&look(&resolved).unwrap(), "lwlock");
        waits.into_keys().next()
    });
    let known = seen.strip_prefix("LWLock ").unwrap_or_default();
    assert!(
        known.starts_with(|first: char| first.is_ascii_uppercase()),
        "{seen}"
    );
    terminated(&server, crowd).await;
}

/// A table whose index takes half a minute to build, and the building of it.
async fn slow_index(server: &Postgres) -> (u64, JoinHandle<Result<(), Error>>) {
    server
        .run(&[
            "create function slow(int) returns int immutable language plpgsql as \
             'begin perform pg_sleep(0.02); return $1; end'",
            "create table big as select i id, repeat('x', 700) pad from generate_series(1, 1500) i",
        ])
        .await;
    starts(server, "create index on big (slow(id))").await
}

/// What the server says of a command's progress: its share, from two columns.
async fn told(admin: &Client, query: &str) -> Option<f64> {
    let rows = admin.query(query, &[]).await.unwrap();
    let row = rows.first()?;
    let (done, total): (i64, i64) = (row.get(0), row.get(1));
    (total > 0).then(|| done as f64 / total as f64)
}

/// Follows a command until a fifth of it is done, and compares each look with what the server says before and after.
async fn follow(server: &Postgres, pid: u64, query: &str, part: f64) {
    let resolved = resolve(server.pid, preset());
    let (admin, _) = server.connect().await;
    let (mut seen, deadline) = (0.0, Deadline::new());
    while seen < 0.2 * part {
        deadline.check(&format!("progress beyond {seen}"));
        let before = told(&admin, query).await;
        let share = state(&resolved, pid).progress;
        let after = told(&admin, query).await;
        if let (Some(before), Some(share), Some(after)) = (before, share, after) {
            assert!(
                before * part - 1e-9 <= share && share <= after * part + 1e-9,
                "{before} {share} {after}"
            );
            seen = share;
        }
    }
    let end = format!("select pg_terminate_backend({pid})");
    admin.batch_execute(&end).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_progress_of_create_index_is_known_of_whoever_keeps_others_waiting() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (pid, index) = slow_index(&server).await;
    let (admin, _) = server.connect().await;
    row(&admin, "select 1 from pg_stat_progress_create_index").await;
    let alone = state(&resolved, pid);
    assert_eq!(alone.progress, None, "read of those in the way only");
    let (_, insert) = starts(&server, "insert into big values (0, 'y')").await;
    waiting(&resolved, 1);
    let query = "select blocks_done, blocks_total from pg_stat_progress_create_index";
    follow(&server, pid, query, 0.5).await;
    assert!(index.await.unwrap().is_err());
    insert.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_progress_of_a_copy_is_that_of_its_file() {
    let Some(server) = server().await else { return };
    let file = server.socket.with_file_name("rows");
    let write = format!(
        "copy (select i, repeat('x', 700) from generate_series(1, 1500) i) to '{}'",
        file.display()
    );
    server
        .run(&[
            "create table big (id int, pad text)",
            "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.02); return new; end'",
            "create trigger slow before insert on big for each row execute function slow()",
            &write,
        ])
        .await;
    let copy = format!("begin; lock table big; copy big from '{}'", file.display());
    let (pid, copy) = starts(&server, Box::leak(copy.into_boxed_str())).await;
    let (admin, _) = server.connect().await;
    row(&admin, "select 1 from pg_stat_progress_copy").await;
    let (_, read) = starts(&server, "select count(*) from big").await;
    waiting(&resolve(server.pid, preset()), 1);
    let query = "select bytes_processed, bytes_total from pg_stat_progress_copy";
    follow(&server, pid, query, 1.0).await;
    assert!(copy.await.unwrap().is_err());
    read.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_snapshot_is_told_and_nobody_is_advised_to_be_ended() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (reader, pid) = server.connect().await;
    reader
        .batch_execute("begin isolation level repeatable read; select * from t")
        .await
        .unwrap();
    assert!(look(&resolved).unwrap().notes.is_empty());
    // Each block with an exception that writes takes a number.
    server
        .run(&["do $$ begin for i in 1..100001 loop begin insert into other values (i, i); exception when others then null; end; end loop; end $$"])
        .await;
    let report = looks(&resolved, "the old snapshot", |report| {
        !report.notes.is_empty()
    });
    assert_eq!(report.notes.len(), 1, "{report:#?}");
    let note = &report.notes[0];
    assert_eq!(note.id, pid);
    assert!(note.doing.starts_with("idle in a transaction"), "{note:?}");
    assert!(note.says.contains("10000"), "{note:?}");
    assert!(report.candidates.is_empty());
    reader.batch_execute("commit").await.unwrap();
    assert!(look(&resolved).unwrap().notes.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_counted_as_the_server_counts_them() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (idle, _) = forgotten(&server).await;
    let mut others = Vec::new();
    for _ in 1..95 {
        others.push(server.connect().await);
    }
    // That of the session that made the tables may still be on its way out.
    let counts = "select count(*), current_setting('max_connections')::int from pg_stat_activity where backend_type = 'client backend' having count(*) = 95";
    let row = row(&others[0].0, counts).await;
    let (taken, limit): (i64, i32) = (row.get(0), row.get(1));
    let report = looks(&resolved, "as many places as the server counts", |report| {
        report.slots.as_ref().is_some_and(|slots| slots.taken == 95)
    });
    let slots = report.slots.unwrap();
    assert_eq!(i64::try_from(slots.taken), Ok(taken));
    assert_eq!(i32::try_from(slots.limit), Ok(limit));
    assert_eq!((slots.taken, slots.idle_in_transaction), (95, 1));
    assert!(slots.is_scarce());
    idle.batch_execute("commit").await.unwrap();
}
