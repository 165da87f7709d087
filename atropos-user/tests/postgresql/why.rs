//! One look at a stalled server.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::wait_for;
use crate::scene::{blockers, forgotten, preset, resolve, server, starts, waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_names_the_forgotten_transaction_the_alter_behind_it_and_the_readers() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (decoy, _) = server.connect().await;
    decoy
        .batch_execute("begin; select * from other")
        .await
        .unwrap();
    let (client, holder) = forgotten(&server).await;
    let (alter_id, alter) = starts(&server, "alter table t add column c int").await;
    waiting(&resolved, 1);
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(starts(&server, "select * from t where id = 7").await);
    }
    let report = waiting(&resolved, 4);
    assert_eq!(report.roots.len(), 1, "{report:#?}");
    let root = &report.roots[0];
    assert_eq!((root.id, root.waiters_count), (holder, 4));
    assert!(root.doing.starts_with("idle in a transaction"));
    assert!(root.statement.starts_with("begin; select * from t"));
    assert!(root.in_the_way[0].instance.starts_with("table "));
    assert_eq!(root.in_the_way[0].mode, "AccessShare");
    let queued = &root.children[0];
    assert_eq!((queued.id, queued.children.len()), (alter_id, 3));
    assert_eq!(queued.waits_for.as_ref().unwrap().mode, "AccessExclusive");
    let expected: BTreeSet<u64> = readers.iter().map(|(pid, _)| *pid).collect();
    let seen: BTreeSet<u64> = queued.children.iter().map(|node| node.id).collect();
    assert_eq!(seen, expected);
    let report = wait_for("the holder to have been in the way for a while", || {
        let report = waiting(&resolved, 4);
        (report.candidates[0].but.is_none()).then_some(report)
    });
    let best = &report.candidates[0];
    assert_eq!(
        best.command,
        format!("SELECT pg_terminate_backend({holder})")
    );
    assert_eq!((best.frees_count, best.but.as_deref()), (4, None));
    client.batch_execute("commit").await.unwrap();
    alter.await.unwrap().unwrap();
    for (_, reader) in readers {
        reader.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_waiters_blockers_are_those_that_the_server_names() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (first, _) = server.connect().await;
    first
        .batch_execute("begin; update t set v = 1 where id = 1; select pg_advisory_lock(42)")
        .await
        .unwrap();
    let (_reader, _) = forgotten(&server).await;
    let mut waiters = Vec::new();
    for (count, statement) in [
        "update t set v = 2 where id = 1",
        "update t set v = 3 where id = 1",
        "select pg_advisory_lock_shared(42)",
        "select pg_advisory_lock(42)",
        "lock table t in share mode",
        "alter table t add column d int",
        "select count(*) from t",
        "insert into t values (1000, 1)",
        "lock table t in row share mode",
    ]
    .into_iter()
    .enumerate()
    {
        let statement = Box::leak(format!("begin; {statement}; commit").into_boxed_str());
        waiters.push(starts(&server, statement).await);
        waiting(&resolved, count + 1);
    }
    let (admin, _) = server.connect().await;
    let rows = admin
        .query(
            "select pid, pg_blocking_pids(pid) from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0",
            &[],
        )
        .await
        .unwrap();
    let named: BTreeMap<u64, BTreeSet<u64>> = rows
        .iter()
        .map(|row| {
            let by: Vec<i32> = row.get(1);
            let pid = |pid: i32| u64::try_from(pid).unwrap();
            (pid(row.get(0)), by.into_iter().map(pid).collect())
        })
        .collect();
    assert_eq!(named.len(), waiters.len());
    assert_eq!(blockers(&resolved), named);
    for (pid, _) in &waiters {
        admin
            .batch_execute(&format!("select pg_terminate_backend({pid})"))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_is_named_and_nobody_is_advised_to_be_ended() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    server
        .run(&["begin; update t set v = 1 where id = 1; prepare transaction 'left behind'"])
        .await;
    let (waiter, update) = starts(&server, "update t set v = 2 where id = 1").await;
    let report = waiting(&resolved, 1);
    let root = &report.roots[0];
    assert_eq!(
        (root.id, root.principal.as_str()),
        (0, "prepared transaction")
    );
    assert_eq!(root.children[0].id, waiter);
    assert!(
        report.candidates.iter().all(|one| one.but.is_some()),
        "{report:#?}"
    );
    server.run(&["rollback prepared 'left behind'"]).await;
    update.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_free_connection_is_seen_all_the_same() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (client, holder) = forgotten(&server).await;
    let (_, alter) = starts(&server, "alter table t add column c int").await;
    waiting(&resolved, 1);
    let mut others = Vec::new();
    // The default is 100 connections, three of them reserved for superusers, which all of these are.
    for _ in 2..100 {
        others.push(server.connect().await);
    }
    let report = waiting(&resolved, 1);
    assert_eq!(report.roots[0].id, holder);
    client.batch_execute("commit").await.unwrap();
    alter.await.unwrap().unwrap();
}
