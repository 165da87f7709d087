//! People at the sample server, and what the agent's half of the library sees of them.

use std::collections::BTreeSet;

use atropos::agent::resolve::Resolved;
use atropos::agent::why::{Report, look};
use atropos::config::{self, Preset};
use atropos::engine::input::BlockKind;
use usdt_probes::client::Client;
use usdt_probes::server::Server;

pub(crate) use crate::common::resolve;
use crate::common::{PATIENCE, wait_for};

/// A server with people at it.
pub(crate) struct Scene {
    /// Who is to blame.
    pub(crate) culprit: Client,
    /// Who queued for the table alone.
    pub(crate) queued: Client,
    /// Who only wants to read.
    pub(crate) readers: Vec<Client>,
    /// Last, so that the server outlives its clients.
    pub(crate) server: Server,
}

/// One edge of the wait-for graph: waiter, instance, mode, blocker with its mode and kind.
pub(crate) type Edges = BTreeSet<(u64, u64, u32, u64, u32, bool)>;

impl Scene {
    /// A session read `t` in a transaction and forgot it; `EXCLUSIVE t` is queued behind it, and readers behind that.
    pub(crate) fn forgotten_transaction(readers: usize) -> Self {
        let server = crate::program::start();
        let mut culprit = person(&server, "batch");
        for line in ["PUT t k 1", "BEGIN", "GET t k"] {
            culprit.command(line).unwrap().result.unwrap();
        }
        Self::gather(server, culprit, readers)
    }

    /// A long scan of `t` runs; the same behind it.
    pub(crate) fn long_scan(readers: usize) -> Self {
        let server = crate::program::start();
        let mut culprit = person(&server, "report");
        culprit.send("SCAN t 60000").unwrap();
        Self::gather(server, culprit, readers)
    }

    fn gather(server: Server, culprit: Client, readers: usize) -> Self {
        let resolved = resolve(server.pid(), sample());
        wait_for("the culprit to be in place", || {
            let view =
                resolved
                    .watcher()
                    .unwrap()
                    .look(&resolved.memory, crate::common::clock_ns(), &[]);
            view.sessions
                .iter()
                .find(|state| state.id == culprit.session())
                .map(drop)
        });
        let mut queued = person(&server, "admin");
        queued.send("EXCLUSIVE t 100").unwrap();
        waiting(&resolved, 1);
        let mut readers: Vec<Client> = (0..readers).map(|_| person(&server, "web")).collect();
        for reader in &mut readers {
            reader.send("GET t k").unwrap();
        }
        waiting(&resolved, readers.len() + 1);
        Self {
            culprit,
            queued,
            readers,
            server,
        }
    }
}

/// A connection that gives up rather than hang.
pub(crate) fn person(server: &Server, user: &str) -> Client {
    let mut client = server.connect(user).unwrap();
    client.set_patience(Some(PATIENCE)).unwrap();
    client
}

/// The preset as it ships.
pub(crate) fn sample() -> Preset {
    config::load("sample").unwrap_or_else(|problems| panic!("{problems}"))
}

/// Looks until so many sessions wait.
pub(crate) fn waiting(resolved: &Resolved, count: usize) -> Report {
    wait_for(&format!("{count} sessions to wait"), || {
        let report = look(resolved).unwrap();
        (report.waiting_count == count).then_some(report)
    })
}

/// What a look at the process sees: the edges, or why there are none to be had.
pub(crate) fn edges(resolved: &Resolved) -> Result<Edges, String> {
    let mut watcher = resolved.watcher().map_err(|error| format!("{error:#}"))?;
    // As often as it takes for a walk that fails to be called blind.
    for _ in 0..8 {
        let view = watcher.look(&resolved.memory, crate::common::clock_ns(), &[]);
        if let Some(blind) = view.blind.first() {
            assert!(view.snapshots.is_empty(), "what is blind shows nothing");
            return Err(blind.reason.clone());
        }
        if let Some(snapshot) = view.snapshots.first() {
            let edge = |wait: &atropos::engine::input::Wait| {
                let (waiter, instance, mode) = (wait.waiter.0, wait.instance.0, wait.mode);
                let edge = move |blocker: &atropos::engine::input::Blocker| {
                    (
                        waiter,
                        instance,
                        mode,
                        blocker.session.0,
                        blocker.mode,
                        blocker.kind == BlockKind::Queued,
                    )
                };
                wait.blockers.iter().map(edge).collect::<Vec<_>>()
            };
            return Ok(snapshot.waits.iter().flat_map(edge).collect());
        }
    }
    panic!("neither seen nor blind after eight looks")
}
