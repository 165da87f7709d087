//! People at the server, and what the agent's half of the library sees of them.

use atropos::agent::resolve::Resolved;
use atropos::agent::why::{Report, look};
use atropos::config::{self, Preset};
use atropos::engine::input::{BlockKind, SessionState};
use std::collections::{BTreeMap, BTreeSet};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, Row};

use crate::common::postgresql::Postgres;
pub(crate) use crate::common::resolve;
use crate::common::{PATIENCE, Started, clock_ns, eventually, wait_for};

/// A cluster with table `t`, which everybody wants, and `other`, which nobody wants.
pub(crate) async fn server() -> Option<Postgres> {
    Some(with_tables(Postgres::start()?).await)
}

/// Gives a cluster the tables.
pub(crate) async fn with_tables(server: Postgres) -> Postgres {
    server
        .run(&[
            "create table t (id int primary key, v int)",
            "insert into t select i, 0 from generate_series(1, 100) i",
            "create table other as select * from t",
        ])
        .await;
    server
}

/// The preset as it ships.
pub(crate) fn preset() -> Preset {
    config::load("postgresql").unwrap_or_else(|problems| panic!("{problems}"))
}

/// The session as the engine would be told of it.
pub(crate) fn state(resolved: &Resolved, pid: u64) -> SessionState {
    let mut watcher = resolved.watcher().unwrap();
    wait_for(&format!("a look at session {pid}"), || {
        let view = watcher.look(&resolved.memory, clock_ns(), &[]);
        view.sessions.into_iter().find(|state| state.id == pid)
    })
}

/// Looks until so many sessions wait.
pub(crate) fn waiting(resolved: &Resolved, count: usize) -> Report {
    looks(resolved, &format!("{count} sessions to wait"), |report| {
        report.waiting_count == count
    })
}

/// Looks until what is seen is as it should be.
pub(crate) fn looks(resolved: &Resolved, what: &str, is_so: impl Fn(&Report) -> bool) -> Report {
    wait_for(what, || {
        let report = look(resolved).unwrap();
        is_so(&report).then_some(report)
    })
}

/// Runs a statement on a connection of its own, in the background; gives the connection's process as well.
pub(crate) async fn starts(
    server: &Postgres,
    statement: &'static str,
) -> (u64, JoinHandle<Result<(), Error>>) {
    let (client, pid) = server.connect().await;
    (
        pid,
        tokio::spawn(async move { client.batch_execute(statement).await }),
    )
}

/// Ends the sessions of statements that were started, each of which then fails.
#[cfg_attr(
    not(feature = "ebpf"),
    allow(dead_code, reason = "only the whole loop needs it")
)]
pub(crate) async fn terminated(
    server: &Postgres,
    crowd: Vec<(u64, JoinHandle<Result<(), Error>>)>,
) {
    let (admin, _) = server.connect().await;
    for (pid, _) in &crowd {
        let end = format!("select pg_terminate_backend({pid})");
        admin.batch_execute(&end).await.unwrap();
    }
    for (_, member) in crowd {
        assert!(member.await.unwrap().is_err());
    }
}

/// A transaction that read `t` and went away.
pub(crate) async fn forgotten(server: &Postgres) -> (Client, u64) {
    let (client, pid) = server.connect().await;
    client
        .batch_execute("begin; select * from t where id = 7")
        .await
        .unwrap();
    (client, pid)
}

/// Waits until a process holds a lock on `t`.
pub(crate) async fn holds(watcher: &Client, pid: u64) {
    let text = format!(
        "select 1 from pg_locks where pid = {pid} and relation = 't'::regclass and granted"
    );
    row(watcher, &text).await;
}

/// The first row of a query, once it has one.
pub(crate) async fn row(admin: &Client, query: &str) -> Row {
    eventually(&format!("a row of {query}"), async || {
        admin.query(query, &[]).await.unwrap().into_iter().next()
    })
    .await
}

/// A client that asks for more than it will ever read, while it holds a lock on `t` that an `ALTER TABLE` has to wait for.
#[cfg_attr(
    not(feature = "ebpf"),
    allow(dead_code, reason = "only the whole loop needs it")
)]
pub(crate) async fn deaf(server: &Postgres) -> (Started, u64) {
    let statement = "begin; lock table t in row exclusive mode; select repeat('x', 1000) from generate_series(1, 100000000)";
    let client = Started::new(
        Postgres::program("psql")
            .unwrap()
            .args(["-U", "postgres", "-p", &server.port.to_string(), "-h"])
            .arg(server.socket.parent().unwrap())
            .args(["-c", statement, "postgres"])
            .current_dir("/"),
    );
    let (admin, _) = server.connect().await;
    let running = "select pid from pg_stat_activity where application_name = 'psql' and state = 'active' and query like '%repeat%'";
    let pid: i32 = row(&admin, running).await.get(0);
    let stopped = nix::unistd::Pid::from_raw(client.pid().cast_signed());
    nix::sys::signal::kill(stopped, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let stuck =
        format!("select 1 from pg_stat_activity where pid = {pid} and wait_event = 'ClientWrite'");
    row(&admin, &stuck).await;
    (client, u64::try_from(pid).unwrap())
}

/// Whether the session still answers.
pub(crate) async fn is_alive(client: &Client) -> bool {
    tokio::time::timeout(PATIENCE, client.batch_execute("select 1"))
        .await
        .is_ok_and(|result| result.is_ok())
}

/// One edge of the wait-for graph: waiter, instance, mode, blocker with its mode and kind.
pub(crate) type Edges = BTreeSet<(u64, u64, u32, u64, u32, bool)>;

/// What a look at the process sees: the edges, or why there are none to be had.
pub(crate) fn edges(resolved: &Resolved) -> Result<Edges, String> {
    let mut watcher = resolved.watcher().map_err(|error| format!("{error:#}"))?;
    // As often as it takes for a walk that fails to be called blind.
    for _ in 0..8 {
        let view = watcher.look(&resolved.memory, clock_ns(), &[]);
        if let Some(blind) = view.blind.first() {
            return Err(blind.reason.clone());
        }
        if let Some(snapshot) = view.snapshots.iter().find(|seen| seen.resource.0 == 0) {
            let mut edges = Edges::new();
            for wait in &snapshot.waits {
                for blocker in &wait.blockers {
                    edges.insert((
                        wait.waiter.0,
                        wait.instance.0,
                        wait.mode,
                        blocker.session.0,
                        blocker.mode,
                        blocker.kind == BlockKind::Queued,
                    ));
                }
            }
            return Ok(edges);
        }
    }
    panic!("neither seen nor blind after eight looks")
}

/// Processes that block each waiter, as the first whole look sees it.
pub(crate) fn blockers(resolved: &Resolved) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut watcher = resolved.watcher().unwrap();
    let view = wait_for("a look at the locks", || {
        let view = watcher.look(&resolved.memory, clock_ns(), &[]);
        let whole = view.snapshots.iter().any(|seen| seen.resource.0 == 0);
        whole.then_some(view)
    });
    let id = |key: u64| {
        view.sessions
            .iter()
            .find(|state| state.session.0 == key)
            .map_or(0, |state| state.id)
    };
    let mut found: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let owned = view.snapshots.iter().filter(|seen| seen.resource.0 == 0);
    for wait in owned.flat_map(|snapshot| &snapshot.waits) {
        found
            .entry(id(wait.waiter.0))
            .or_default()
            .extend(wait.blockers.iter().map(|blocker| id(blocker.session.0)));
    }
    found
}
