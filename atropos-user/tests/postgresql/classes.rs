//! Who is who: kinds of process and their protection, and parallel workers as part of their leader.

use std::collections::BTreeMap;

use atropos::agent::clock;
use atropos::agent::resolve::Resolved;
use tokio_postgres::Client;

use crate::common::postgresql::Postgres;
use crate::common::{Started, wait_for};
use crate::scene::{blockers, looks, preset, resolve, row, server, starts};

/// Every process with what it is called and whether its class is protected, as the preset sees it.
fn seen(resolved: &Resolved) -> BTreeMap<u64, (String, bool)> {
    let list = resolved.sessions.as_ref().unwrap().as_ref().unwrap();
    let offset_ns = clock::epoch_minus_monotonic_ns();
    let views = wait_for("a whole list", || {
        list.read(&resolved.memory, offset_ns).ok()
    });
    views
        .iter()
        .map(|view| {
            let principal = list.principal(view.key, &resolved.memory);
            let class = resolved.preset.classify(&principal, "");
            let protected = class
                .is_some_and(|class| resolved.preset.classes[usize::from(class)].class.protected);
            (view.id, (principal, protected))
        })
        .collect()
}

/// Every process with what the server calls it.
async fn named(admin: &Client) -> BTreeMap<u64, String> {
    let rows = admin
        .query("select pid, backend_type from pg_stat_activity", &[])
        .await
        .unwrap();
    rows.iter()
        .map(|row| (u64::try_from(row.get::<_, i32>(0)).unwrap(), row.get(1)))
        .collect()
}

/// What the preset calls a kind of process of the server.
fn principal(kind: &str) -> &str {
    match kind {
        "client backend" => "person",
        "walsender" => "WAL sender",
        // Those have no number of a backend, by which a status is found.
        "checkpointer" | "walwriter" | "background writer" => {
            "a process of the server, or a session that starts"
        }
        // Workers, those of logical replication among them.
        "logical replication launcher" | "logical replication worker" => "background worker",
        other => other,
    }
}

/// Waits until the server shows a process of that kind.
async fn shows(admin: &Client, kind: &str) {
    let there = format!("select 1 from pg_stat_activity where backend_type = '{kind}'");
    row(admin, &there).await;
}

/// A program that streams the WAL.
fn standby(server: &Postgres) -> Started {
    let directory = server.socket.parent().unwrap();
    Started::new(
        Postgres::program("pg_receivewal")
            .unwrap()
            .args(["-U", "postgres", "-p", &server.port.to_string(), "-h"])
            .arg(directory)
            .arg("-D")
            .arg(directory)
            .current_dir(directory),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_the_server_are_what_the_server_calls_them_and_protected() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (admin, _) = server.connect().await;
    server
        .run(&[
            "create table dirty with (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1) as select i, repeat('x', 500) pad from generate_series(1, 20000) i",
            "delete from dirty",
            "alter system set autovacuum_naptime = '1s'",
            "select pg_reload_conf()",
        ])
        .await;
    let _standby = standby(&server);
    for kind in [
        "autovacuum worker",
        "walsender",
        "checkpointer",
        "walwriter",
    ] {
        shows(&admin, kind).await;
    }
    // A worker may end between the two looks.
    let (before, seen, after) = (named(&admin).await, seen(&resolved), named(&admin).await);
    let mut kinds = Vec::new();
    for (pid, kind) in &before {
        if after.get(pid) != Some(kind) {
            continue;
        }
        let (called, protected) = &seen[pid];
        assert_eq!(called, principal(kind), "{pid}");
        assert_eq!(*protected, kind != "client backend", "{kind}");
        kinds.push(kind.as_str());
    }
    for kind in [
        "autovacuum launcher",
        "autovacuum worker",
        "background writer",
        "checkpointer",
        "logical replication launcher",
        "walsender",
        "walwriter",
    ] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_workers_of_a_logical_subscription_are_protected() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (admin, _) = server.connect().await;
    // A publisher that takes connections and never answers: the worker stays until the test ends.
    let publisher = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let subscribe = format!(
        "create subscription mine connection 'host=127.0.0.1 port={} user=postgres dbname=postgres' publication theirs with (connect = false, slot_name = none, enabled = false)",
        publisher.local_addr().unwrap().port()
    );
    for statement in [
        subscribe.as_str(),
        "alter subscription mine set (slot_name = 'nobody')",
        "alter subscription mine enable",
    ] {
        admin.batch_execute(statement).await.unwrap();
    }
    shows(&admin, "logical replication worker").await;
    let workers = seen(&resolved)
        .into_values()
        .filter(|(called, _)| called == "background worker");
    let workers: Vec<_> = workers.collect();
    assert_eq!(workers.len(), 2, "the worker beside the launcher");
    assert!(workers.iter().all(|(_, protected)| *protected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parallel_query_is_one_task_and_its_leader_is_who_would_be_ended() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let statement = "set force_parallel_mode = on; select count(*) from t, generate_series(1, 200) where pg_sleep(0.001)::text is not null";
    let (leader, query) = starts(&server, statement).await;
    let (admin, _) = server.connect().await;
    shows(&admin, "parallel worker").await;
    // The leader and its worker, which is shown before it holds anything.
    row(&admin, "select count(*) from pg_locks where relation = 't'::regclass and granted and pid <> pg_backend_pid() having count(*) = 2").await;
    let (alter_id, alter) = starts(&server, "alter table t add column c int").await;
    // A wait of a few milliseconds is no reason to end anybody.
    let report = looks(&resolved, "a wait that is worth a thought", |report| {
        report.waiting_count == 1 && !report.candidates.is_empty()
    });
    assert_eq!(report.roots.len(), 1, "{report:#?}");
    assert_eq!(report.roots[0].id, leader);
    assert_eq!(blockers(&resolved)[&alter_id], [leader].into());
    assert!(
        report
            .candidates
            .iter()
            .any(|one| one.command == format!("SELECT pg_cancel_backend({leader})")),
        "{report:#?}"
    );
    let end = format!("select pg_cancel_backend({leader})");
    admin.batch_execute(&end).await.unwrap();
    assert!(query.await.unwrap().is_err());
    alter.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_calls_itself_something_else_is_called_so_from_then_on() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let mut watcher = resolved.watcher().unwrap();
    let (client, pid) = server.connect().await;
    let called = "set application_name = 'first'; begin; select * from t where id = 7";
    client.batch_execute(called).await.unwrap();
    let mut principal = || {
        wait_for("the session to be seen", || {
            let view = watcher.look(&resolved.memory, clock::monotonic_ns(), &[]);
            let state = view.sessions.into_iter().find(|state| state.id == pid)?;
            Some((state.principal, state.digest))
        })
    };
    assert_eq!(principal().0, "first");
    let (_, alter) = starts(&server, "alter table t add column c int").await;
    // It takes part in a wait from here on, with a request that does not change.
    wait_for("the other to wait", || {
        (!principal().1.is_empty()).then_some(())
    });
    let called = "set application_name = 'second'";
    client.batch_execute(called).await.unwrap();
    assert_eq!(principal().0, "second");
    client.batch_execute("commit").await.unwrap();
    alter.await.unwrap().unwrap();
}
