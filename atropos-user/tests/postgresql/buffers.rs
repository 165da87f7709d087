//! Who takes the buffer pool from whom. Reads are slow here, as from a disk, so that it matters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use atropos::agent::feed::{Eyes, Feed};
use atropos::agent::probes::Probes;
use atropos::agent::resolve::Resolved;
use atropos::agent::run::TICK;
use atropos::engine::input::{Input, SessionState};
use tokio::task::JoinHandle;
use tokio_postgres::Error;

use crate::agent::Agent;
use crate::common::postgresql::Postgres;
use crate::common::{Deadline, clock_ns, eventually, roomy};
use crate::crowd::attach_by;
use crate::probed::everything;
use crate::scene::is_alive;

/// Pages of the pool.
const POOL: &str = "shared_buffers=4MB";

/// Readers, each with a table of its own of about twenty pages: all of them together fit.
const READERS: usize = 12;

/// Between two statements of a reader. A page that was used once goes when the sweep has come past it twice.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads rows of the large table one after another by its index: through the pool, and not through a ring.
const SWEEP: &str = "set enable_seqscan = off; set enable_bitmapscan = off; set max_parallel_workers_per_gather = 0; \
                     do $$ begin for i in 1..100 loop perform sum(length(pad)) from big where id > 0; end loop; end $$";

/// A cluster with the readers' tables and a large one that nobody but a sweep wants.
async fn server() -> Option<Postgres> {
    let server = Postgres::start_on_a_disk(&[POOL, "autovacuum=off"])?;
    for reader in 0..READERS {
        let name = format!("own{reader}");
        server.run(&[
            &format!("create table {name} as select i id, repeat('x', 1000) pad from generate_series(1, 140) i"),
            &format!("vacuum analyze {name}"),
        ]).await;
    }
    server
        .run(&[
            "create table big (id int, pad text)",
            "alter table big alter pad set storage plain",
            "insert into big select i, repeat('x', 6000) from generate_series(1, 12000) i",
            "create index on big (id)",
            "vacuum analyze big",
        ])
        .await;
    server.slow_down();
    Some(server)
}

/// An agent that may end sessions. What the probes may cost is no matter here: the server mostly waits for its disk.
fn attach(server: &Postgres, trace: &str) -> Agent {
    let (_folder, preset) = roomy("postgresql");
    let arguments = ["--preset", &preset, "--slo", "p99=1ms", "--enforce"];
    attach_by(server, Some(trace), &arguments)
}

/// People who read over and over.
struct Readers {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    members: Vec<JoinHandle<Option<Error>>>,
    pids: Vec<u64>,
}

impl Readers {
    /// Reader N runs this statement of N. They come one after another: in step, they would be one burst and a pause.
    async fn gather(
        server: &Postgres,
        statement: impl Fn(usize) -> String,
        pause: Duration,
    ) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (mut members, mut pids) = (Vec::new(), Vec::new());
        for reader in 0..READERS {
            let (client, pid) = server.connect().await;
            pids.push(pid);
            let (stop, done, text) = (Arc::clone(&stop), Arc::clone(&done), statement(reader));
            let late = pause * u32::try_from(reader).unwrap() / u32::try_from(READERS).unwrap();
            members.push(tokio::spawn(async move {
                tokio::time::sleep(late).await;
                while !stop.load(Ordering::Relaxed) {
                    if let Err(error) = client.batch_execute(&text).await {
                        return Some(error);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(pause).await;
                }
                None
            }));
        }
        Self {
            stop,
            done,
            members,
            pids,
        }
    }

    async fn own(server: &Postgres) -> Self {
        let statement = |reader| format!("select sum(length(pad)) from own{reader}");
        Self::gather(server, statement, PAUSE).await
    }

    async fn get_on(&self, statements: u64) {
        let before = self.done.load(Ordering::Relaxed);
        let until = before + statements * READERS as u64;
        eventually("the readers to get on", async || {
            (self.done.load(Ordering::Relaxed) >= until).then_some(())
        })
        .await;
    }

    async fn disperse(self) {
        self.stop.store(true, Ordering::Relaxed);
        for member in self.members {
            let error = member.await.unwrap();
            assert!(error.is_none(), "{error:?}");
        }
    }
}

/// Runs a statement over and over in the background.
fn begins(
    client: Arc<tokio_postgres::Client>,
    text: &'static str,
) -> JoinHandle<Result<(), Error>> {
    tokio::spawn(async move { client.batch_execute(text).await })
}

/// Cancels what runs there.
async fn cancelled(client: &tokio_postgres::Client, running: JoinHandle<Result<(), Error>>) {
    let cancel = client.cancel_token();
    cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    assert!(running.await.unwrap().is_err());
}

/// What the agent's half of the library would tell the engine, with every probe attached.
struct Onlooker {
    probes: Probes,
    resolved: Resolved,
    feed: Feed,
    /// Buffers taken, and nanoseconds lost, by process.
    spent: BTreeMap<u64, (u64, u64)>,
}

impl Onlooker {
    fn attach(server: &Postgres) -> Self {
        let (probes, resolved) = everything(server);
        let watcher = resolved.watcher().unwrap();
        let feed = Feed::new(Eyes::Memory(Box::new(watcher)), None, resolved.never_seen());
        Self {
            probes,
            resolved,
            feed,
            spent: BTreeMap::new(),
        }
    }

    /// Looks once a tick until enough has been seen.
    async fn look_until(
        &mut self,
        what: &str,
        enough: impl Fn(&BTreeMap<u64, (u64, u64)>) -> bool,
    ) {
        let deadline = Deadline::new();
        while !enough(&self.spent) {
            deadline.check(&format!("{what}: {:?}", self.spent));
            tokio::time::sleep(TICK).await;
            self.look();
        }
    }

    fn look(&mut self) {
        let harvest = self.probes.harvest(clock_ns()).unwrap();
        let memory = &self.resolved.memory;
        let (inputs, view) = self.feed.inputs(&harvest, memory, clock_ns(), &[]);
        let pid = |session| {
            let found = |state: &&SessionState| state.session == session;
            view.sessions.iter().find(found).map(|state| state.id)
        };
        for input in &inputs {
            let Input::Usage(usage) = input else { continue };
            assert!(usage.complete, "nothing is lost");
            for one in &usage.sessions {
                if let Some(pid) = pid(one.session) {
                    let spent = self.spent.entry(pid).or_default();
                    *spent = (spent.0 + one.used, spent.1 + one.lost_ns);
                }
            }
        }
    }
}

/// Sums over these processes.
fn sum(spent: &BTreeMap<u64, (u64, u64)>, pids: &[u64]) -> (u64, u64) {
    let of = |pid| spent.get(pid).copied().unwrap_or_default();
    let all = pids.iter().map(of);
    all.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_takes_the_buffers_and_what_that_costs_the_others_is_known_page_by_page() {
    let Some(server) = server().await else { return };
    let readers = Readers::own(&server).await;
    readers.get_on(2).await;
    let mut onlooker = Onlooker::attach(&server);
    let (client, sweep) = server.connect().await;
    let client = Arc::new(client);
    let running = begins(Arc::clone(&client), SWEEP);
    let (pids, all) = (readers.pids.clone(), readers.pids.clone());
    onlooker
        .look_until("readers lose time", move |spent| {
            sum(spent, &pids).1 > 200_000_000 && sum(spent, &[sweep]).0 > 2000
        })
        .await;
    let (used, lost_ns) = sum(&onlooker.spent, &[sweep]);
    let (readers_used, readers_lost_ns) = sum(&onlooker.spent, &all);
    assert!(used > readers_used, "{:?}", onlooker.spent);
    assert!(lost_ns * 10 < readers_lost_ns, "{:?}", onlooker.spent);
    cancelled(&client, running).await;
    readers.disperse().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_scan_in_a_ring_of_its_own_takes_next_to_nothing() {
    let Some(server) = server().await else { return };
    let readers = Readers::own(&server).await;
    readers.get_on(2).await;
    let mut onlooker = Onlooker::attach(&server);
    let (client, scan) = server.connect().await;
    let client = Arc::new(client);
    let text = "set max_parallel_workers_per_gather = 0; select sum(length(pad)) from big";
    let running = begins(Arc::clone(&client), text);
    for _ in 0..100 {
        tokio::time::sleep(TICK).await;
        onlooker.look();
    }
    assert!(!running.is_finished(), "it has been reading all the time");
    let (used, _) = sum(&onlooker.spent, &[scan]);
    let (_, lost_ns) = sum(&onlooker.spent, &readers.pids);
    assert!(used < 100, "{:?}", onlooker.spent);
    assert!(lost_ns < 200_000_000, "{:?}", onlooker.spent);
    cancelled(&client, running).await;
    readers.disperse().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_of_the_buffer_pool_is_cancelled_and_no_reader_is() {
    let Some(server) = server().await else { return };
    let readers = Readers::own(&server).await;
    readers.get_on(2).await;
    let mut agent = attach(&server, "buffers_swept");
    let (client, sweep) = server.connect().await;
    let client = Arc::new(client);
    let running = begins(Arc::clone(&client), SWEEP);
    let decision = agent.decision(|decision| decision["orders"][0].is_object());
    assert_eq!(decision["orders"][0]["task"]["id"], sweep, "{decision:#}");
    assert_eq!(decision["orders"].as_array().unwrap().len(), 1);
    let resource = |name: &str| {
        let all = decision["resources"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["level"]
            .as_f64()
            .unwrap()
    };
    assert!(resource("buffers") > 0.1, "{decision:#}");
    let words = decision["orders"][0]["task"]["digest"].as_str().unwrap();
    assert!(words.contains("do"), "what it runs is known: {decision:#}");
    assert!(running.await.unwrap().is_err(), "it was cancelled");
    assert!(is_alive(&client).await);
    readers.get_on(2).await;
    readers.disperse().await;
    assert_eq!(agent.sent().len(), 1, "one order, no second");
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_equal_readers_who_want_more_than_there_is_room_for_nobody_is_ended() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server, "left_alone_equal_readers");
    let statement = |reader: usize| {
        format!(
            "select sum(length(pad)) from big where id = any(array(select {} + (random() * 900)::int from generate_series(1, 30)))",
            1000 * reader
        )
    };
    let readers = Readers::gather(&server, statement, Duration::from_millis(50)).await;
    agent.wait_for("overload", |line| {
        line["effect"]["overload"]["state"].is_string()
    });
    readers.get_on(8).await;
    readers.disperse().await;
    assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_protected_statement_that_sweeps_the_buffer_pool_is_named_and_left_alone() {
    let Some(server) = server().await else { return };
    let readers = Readers::own(&server).await;
    readers.get_on(2).await;
    let mut agent = attach(&server, "left_alone_buffers_ddl");
    let (client, copy) = server.connect().await;
    let client = Arc::new(client);
    client
        .batch_execute("set enable_seqscan = off; set enable_bitmapscan = off; set max_parallel_workers_per_gather = 0")
        .await
        .unwrap();
    let text = "create table away as select id from big where id > 0 and length(pad) > 0 union all select id from big where id > 1 and length(pad) > 0";
    let running = begins(Arc::clone(&client), text);
    let decision =
        agent.decision(|decision| decision["candidates"][0]["passed_over"] == "protected_class");
    assert_eq!(
        decision["candidates"][0]["task"]["id"], copy,
        "{decision:#}"
    );
    assert_eq!(decision["candidates"][0]["task"]["class"], "ddl");
    readers.get_on(2).await;
    readers.disperse().await;
    let cancelled = client
        .cancel_token()
        .cancel_query(tokio_postgres::NoTls)
        .await;
    cancelled.unwrap();
    // It may have come to its end before.
    let _ = running.await.unwrap();
    assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    assert!(agent.stop().success());
}
