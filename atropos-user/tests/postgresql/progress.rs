//! How far plain statements are, read in the backends' own memory. Each statement stops at a row of the test's choice, so
//! that what it has done is known.

use atropos::agent::resolve::Resolved;
use atropos::config;
use atropos::config::expr::Expr;
use atropos::memory::Memory as _;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error};

use crate::common::postgresql::Postgres;
use crate::common::wait_for;
use crate::scene::{preset, resolve, row, server, starts, state};

/// Rows of the table `big`.
const ROWS: f64 = 20_000.0;

/// What has to wait for everybody who has used `big` in a transaction that goes on.
const ALONE: &str = "begin; lock table big in access exclusive mode; commit";

/// Layout numbers of what a backend keeps to itself.
pub(crate) const OWN: [&str; 15] = [
    "portal_context",
    "portal_status",
    "portal_at_start",
    "context_parent",
    "context_child",
    "context_first",
    "estate_planned",
    "estate_context",
    "planned_tree",
    "plan_costs",
    "plan_left",
    "node_context",
    "node_estate",
    "node_planned",
    "node_modify_table",
];

/// A cluster with a large table whose rows have been counted.
async fn big() -> Option<Postgres> {
    Some(with_big(Postgres::start()?).await)
}

async fn with_big(server: Postgres) -> Postgres {
    server
        .run(&[
            "create table big as select i id, 0 v, repeat('x', 20) pad from generate_series(1, 20000) i",
            "analyze big",
        ])
        .await;
    server
}

/// Somebody at work.
struct AtWork {
    pid: u64,
    work: JoinHandle<Result<(), Error>>,
    admin: Client,
}

impl AtWork {
    /// A statement that comes to a row for which it sleeps.
    async fn until_it_sleeps(server: &Postgres, statement: &str) -> Self {
        let (pid, work) = starts(server, Box::leak(statement.to_owned().into_boxed_str())).await;
        let (admin, _) = server.connect().await;
        sleeps(&admin, pid).await;
        Self { pid, work, admin }
    }

    /// The statement is over, by force.
    async fn ends(self) {
        let end = format!("select pg_terminate_backend({})", self.pid);
        self.admin.batch_execute(&end).await.unwrap();
        assert!(self.work.await.unwrap().is_err());
    }
}

async fn sleeps(admin: &Client, pid: u64) {
    let asleep =
        format!("select 1 from pg_stat_activity where pid = {pid} and wait_event = 'PgSleep'");
    row(admin, &asleep).await;
}

/// Somebody who waits for what others have locked of `big`.
async fn waits(server: &Postgres, statement: &'static str) -> JoinHandle<Result<(), Error>> {
    let (pid, waiter) = starts(server, statement).await;
    let (admin, _) = server.connect().await;
    let waiting =
        format!("select 1 from pg_stat_activity where pid = {pid} and wait_event_type = 'Lock'");
    row(&admin, &waiting).await;
    waiter
}

/// How far the session is told to be, once it is seen to be in somebody's way.
fn progress(resolved: &Resolved, pid: u64) -> Option<f64> {
    let state = wait_for("a whole look at the session", || {
        // What is involved in a wait has its statement read.
        let state = state(resolved, pid);
        (!state.digest.is_empty()).then_some(state)
    });
    state.progress
}

/// By how much more is left than done.
fn left(progress: f64) -> f64 {
    (1.0 - progress) / progress
}

/// What the planner expects of a statement: cost before the first row, cost, rows.
async fn plan(admin: &Client, statement: &str) -> (f64, f64, f64) {
    let explain = format!("explain (format json) {statement}");
    let rows = admin.simple_query(&explain).await.unwrap();
    let text = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    let plan: Value = serde_json::from_str(&text.unwrap()).unwrap();
    let number = |name: &str| plan[0]["Plan"][name].as_f64().unwrap();
    (
        number("Startup Cost"),
        number("Total Cost"),
        number("Plan Rows"),
    )
}

fn update_until(row: u64) -> String {
    format!(
        "update big set v = case when id = {row} and pg_sleep(60) is null then 0 else v + 1 end"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_of_a_large_table_is_half_way_at_half_its_rows() {
    if let Some(server) = big().await {
        is_half_way(&server).await;
    }
}

/// What the server calls its backend is not what the kernel calls it, and it is the kernel that reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_is_in_a_container_that_counts_its_own_processes() {
    if let Some(server) = Postgres::start_contained() {
        is_half_way(&with_big(server).await).await;
    }
}

async fn is_half_way(server: &Postgres) {
    let resolved = resolve(server.pid, preset());
    let update = AtWork::until_it_sleeps(server, &update_until(10_001)).await;
    let alone = state(&resolved, update.pid);
    assert_eq!(alone.progress, None, "read of those in the way only");
    let waiter = waits(server, "update big set v = 0 where id = 1").await;
    assert_eq!(progress(&resolved, update.pid), Some(0.5));
    update.ends().await;
    waiter.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_update_that_has_begun_counts_as_an_estimate_does() {
    let Some(server) = big().await else { return };
    let resolved = resolve(server.pid, preset());
    let (client, pid) = server.connect().await;
    let work = tokio::spawn(async move {
        let prepared = client.prepare(&update_until(2001)).await?;
        client.execute(&prepared, &[]).await
    });
    let (admin, _) = server.connect().await;
    sleeps(&admin, pid).await;
    let waiter = waits(&server, "update big set v = 0 where id = 1").await;
    // A tenth is done: nine times as much is left by the plan, as much again where nothing is known, and between them
    let told = progress(&resolved, pid).unwrap();
    assert!((left(told) - 3.0).abs() < 1e-6, "{told}");
    let end = format!("select pg_terminate_backend({pid})");
    admin.batch_execute(&end).await.unwrap();
    assert!(work.await.unwrap().is_err());
    waiter.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_scan_that_has_outrun_its_estimate_nothing_is_known() {
    let Some(server) = big().await else { return };
    let resolved = resolve(server.pid, preset());
    let scan = |stop: u64| {
        format!(
            "select id, case when id = {stop} then pg_sleep(60)::text end from big where v % 2 = 0"
        )
    };
    let (admin, _) = server.connect().await;
    let (_, _, rows) = plan(&admin, &scan(0)).await;
    assert!(
        rows < ROWS / 100.0,
        "every row fits, of which {rows} are expected"
    );
    let early = AtWork::until_it_sleeps(&server, &scan(11)).await;
    let waiter = waits(&server, ALONE).await;
    let told = progress(&resolved, early.pid).unwrap();
    let (by_plan, done) = (rows / 10.0 - 1.0, 10.0);
    assert!(
        (left(told) - by_plan.sqrt()).abs() < 1e-6,
        "{told} of {rows}"
    );
    assert!(told > done / ROWS, "by the truth it would be less");
    early.ends().await;
    waiter.await.unwrap().unwrap();
    let late = AtWork::until_it_sleeps(&server, &scan(5000)).await;
    let waiter = waits(&server, ALONE).await;
    assert_eq!(progress(&resolved, late.pid), None);
    late.ends().await;
    waiter.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_before_the_first_row_is_a_part_of_the_work() {
    let Some(server) = big().await else { return };
    let resolved = resolve(server.pid, preset());
    let sorted = "select id, case when id = 10000 then pg_sleep(60)::text end \
                  from (select id, pad from big order by pad, -id offset 0) sorted";
    let (admin, _) = server.connect().await;
    let (first, cost, rows) = plan(&admin, sorted).await;
    assert!(first > 0.5 * cost && rows == ROWS, "{first} {cost} {rows}");
    let sort = AtWork::until_it_sleeps(&server, sorted).await;
    let waiter = waits(&server, ALONE).await;
    let told = progress(&resolved, sort.pid).unwrap();
    let by_plan = (first + (cost - first) * 10_000.0 / ROWS) / cost;
    // The costs are cut to whole numbers.
    let differ = left(told) / left(by_plan).sqrt();
    assert!((0.98..1.02).contains(&differ), "{told} {by_plan}");
    sort.ends().await;
    waiter.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_whole_is_not_known_nothing_is_told() {
    let Some(server) = big().await else { return };
    let resolved = resolve(server.pid, preset());
    server
        .run(&["create function work() returns int language plpgsql as \
                'begin update big set v = case when id = 10001 and pg_sleep(60) is null then 0 else v + 1 end; return 1; end'"])
        .await;
    let slow = "case when id = 10000 then pg_sleep(60)::text end";
    for statement in [
        "select count(case when id = 10000 then pg_sleep(60)::text end) from big".to_owned(),
        "select work()".to_owned(),
        format!(
            "begin; declare c cursor for select id, {slow} from big; fetch 9000 c; fetch 9000 c"
        ),
        format!("copy (select id, {slow} from big) to '/dev/null'"),
        "begin; lock table big in access exclusive mode; select pg_sleep(60)".to_owned(),
    ] {
        let work = AtWork::until_it_sleeps(&server, &statement).await;
        let waiter = waits(&server, ALONE).await;
        let told = progress(&resolved, work.pid);
        assert_eq!(told, None, "{statement}");
        work.ends().await;
        waiter.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_number_of_a_backends_own_memory_tells_no_progress() {
    let Some(server) = big().await else { return };
    let update = AtWork::until_it_sleeps(&server, &update_until(2001)).await;
    let waiter = waits(&server, "update big set v = 0 where id = 1").await;
    let truth = progress(&resolve(server.pid, preset()), update.pid);
    assert!(truth.is_some());
    let mut misled = Vec::new();
    for number in OWN {
        for by in [8, -8, 4, -4] {
            let text = format!(
                "schema = 1\nname = \"shifted\"\nextends = \"postgresql\"\n[layout]\nas_it_was = {}\n\
                 {number} = {{ after = \"as_it_was\", add = {by} }}\n",
                value(number)
            );
            let shifted = config::parse("shifted.toml", &text).unwrap_or_else(|p| panic!("{p}"));
            let told = progress(&resolve(server.pid, shifted), update.pid);
            if told.is_some() {
                misled.push((number, by, told));
            }
        }
    }
    assert!(misled.is_empty(), "{misled:?}; it is {truth:?}");
    update.ends().await;
    waiter.await.unwrap().unwrap();
}

/// A number of the preset's layout, as it stands there.
fn value(number: &str) -> String {
    let (_, text) = config::embedded()
        .iter()
        .find(|(name, _)| *name == "postgresql")
        .unwrap();
    let entry = text
        .lines()
        .filter_map(|line| line.split('#').next()?.split_once(" = "))
        .find(|(name, _)| *name == number);
    entry.unwrap().1.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_servers_own_processes_are_read() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (_client, pid) = server.connect().await;
    let pid = u32::try_from(pid).unwrap();
    let of_backend = resolved.memory.of_child(pid).unwrap();
    let own_pid = Expr::parse("u32(*symbol(MyProc) + @proc_pid)").unwrap();
    let own_pid = own_pid.bind(&resolved.names).unwrap();
    assert_eq!(own_pid.eval(&[], of_backend.as_ref()), Ok(u64::from(pid)));
    assert!(
        own_pid.eval(&[], &resolved.memory).is_err(),
        "nobody's in the postmaster"
    );
    assert!(resolved.memory.of_child(std::process::id()).is_none());
    assert!(resolved.memory.of_child(server.pid).is_none());
    assert!(resolved.memory.of_child(0).is_none());
}
