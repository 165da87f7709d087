//! Orders that the backend finds by itself: every sort of running statement comes past a place where it can, and a statement
//! that follows the one that is meant is never hit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atropos::agent::initiator;
use atropos::agent::probes::Probes;
use atropos::agent::resolve::Resolved;
use atropos::cancel::exact::{Attempt, Desk as _, Exact, Found, Note};
use atropos::config::Preset;
use atropos::engine::input::{Activity, OrderResult, SessionKey};
use atropos::engine::record::Task;
use atropos::kernel::Orders;
use nix::sys::signal::Signal;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::common::postgresql::Postgres;
use crate::common::{Deadline, PATIENCE, clock_ns, wait_for};
use crate::scene::{preset, resolve, server, starts};

/// Rung of the preset that has an exact way.
const CANCEL: u8 = 0;

/// The desk as the agent makes it, with the kernel half that it needs.
fn desk(resolved: &Resolved) -> (Orders, Probes) {
    let mut probes =
        Probes::attach(resolved, clock_ns()).unwrap_or_else(|error| panic!("{error:#}"));
    let desk = probes
        .desk(resolved)
        .unwrap_or_else(|error| panic!("{error:#}"))
        .expect("the preset names places that this server has");
    (desk, probes)
}

/// The exact way as the agent makes it.
fn exact(resolved: &Resolved) -> (Exact, Probes) {
    let (desk, probes) = desk(resolved);
    let mut exact = initiator::exact(resolved).expect("the preset has an exact way");
    exact.equip(Box::new(desk));
    (exact, probes)
}

/// The preset with time for a backend to come past a place: on a busy machine one that compiles its query first takes
/// seconds. What is asked here is where statements come past, and not how soon.
fn patient() -> Preset {
    let mut preset = preset();
    let cancel = preset.cancel.as_mut();
    cancel.unwrap().exact.as_mut().unwrap().within = PATIENCE;
    preset
}

/// The task of a backend at the request with this number.
fn task(pid: u64, request: u64) -> Task {
    Task {
        id: pid,
        thread: u32::try_from(pid).unwrap(),
        request,
        ..Task::new(SessionKey(pid), Activity::Busy)
    }
}

/// What a backend runs: the text of its statement and the statement's number, once it runs one.
async fn running(watcher: &Client, pid: u64) -> Option<(String, u64)> {
    let text = format!(
        "select query, ((extract(epoch from query_start) - 946684800) * 1000000)::bigint from pg_stat_activity \
         where pid = {pid} and state = 'active'"
    );
    let messages = watcher.simple_query(&text).await.unwrap();
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((row.get(0)?.to_owned(), row.get(1)?.parse().unwrap()))
        }
        _ => None,
    })
}

/// The same, once it runs what begins like this.
async fn runs(watcher: &Client, pid: u64, statement: &str) -> u64 {
    let deadline = Deadline::new();
    loop {
        if let Some((text, request)) = running(watcher, pid).await
            && text.starts_with(statement)
        {
            return request;
        }
        deadline.pause(&format!("{pid} to run {statement}")).await;
    }
}

/// Statements that run for ever, or nearly so, each in another part of the server.
const LONG: [(&str, &str); 14] = [
    ("asleep", "select pg_sleep(60)"),
    (
        "a function that counts",
        "select count(*) from generate_series(1, 1000000000)",
    ),
    (
        "rows of a function, one by one",
        "select max(i) from (select generate_series(1, 1000000000) i) s where i < 0",
    ),
    (
        "reading a table over and over",
        "select count(*) from t a, t b, t c, t d, t e",
    ),
    (
        "a join that finds nothing",
        "select 1 from big a, big b where a.id + b.id = -1",
    ),
    (
        "a join by hashes",
        "select count(*) from big a join big b using (v) join big c using (v) join big d using (v)",
    ),
    (
        "sorting",
        "select * from (select a.id + b.id s from big a, big b) q order by s desc offset 1000000000",
    ),
    (
        "by an index",
        "select sum((select v from big x where x.id = a.id % 1000)) from big a, big b",
    ),
    (
        "writing",
        "insert into other select i, 0 from generate_series(1, 1000000000) i",
    ),
    (
        "changing",
        "update big set v = v + (select count(*) from big b where b.id <> big.id)",
    ),
    (
        "a loop of a procedure",
        "do $$ declare x int := 0; begin loop x := (x + 1) % 1000; end loop; end $$",
    ),
    (
        "queries of a procedure",
        "do $$ begin loop perform 1 from t; end loop; end $$",
    ),
    (
        "a recursive query",
        "with recursive r(i) as (select 1 union all select i + 1 from r) select count(*) from r",
    ),
    (
        "building an index",
        "create index on big ((v + (select_slowly(id))))",
    ),
];

/// Tables that [`LONG`] is about.
async fn furnish(server: &Postgres) {
    server
        .run(&[
            "create table big as select i id, i % 7 v from generate_series(1, 30000) i",
            "create index on big (id)",
            "create function select_slowly(i int) returns int immutable language plpgsql as \
             $$ begin for k in 1..100000 loop i := (i + k) % 1000; end loop; return i; end $$",
            "analyze big",
        ])
        .await;
}

fn is_cancelled(result: &Result<(), tokio_postgres::Error>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.code() == Some(&SqlState::QUERY_CANCELED))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sort_of_running_statement_finds_its_order() {
    let Some(server) = server().await else { return };
    furnish(&server).await;
    let resolved = resolve(server.pid, patient());
    let (mut exact, _probes) = exact(&resolved);
    let (watcher, _) = server.connect().await;
    let mut unfound = Vec::new();
    for (sort, statement) in LONG {
        let (pid, ended) = starts(&server, statement).await;
        let request = runs(&watcher, pid, statement.get(..20).unwrap_or(statement)).await;
        let attempt = exact.attempt(CANCEL, &task(pid, request)).await;
        println!("{sort}: {attempt:?}");
        match &attempt {
            Attempt::Done(answer) if answer.result == OrderResult::Accepted => {
                let result = tokio::time::timeout(PATIENCE, ended)
                    .await
                    .unwrap_or_else(|_| panic!("{sort}: it goes on"))
                    .unwrap();
                assert!(is_cancelled(&result), "{sort}: {result:?}");
            }
            _ => unfound.push((sort, attempt)),
        }
    }
    assert!(unfound.is_empty(), "{unfound:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_a_lock_finds_its_order_and_whoever_is_idle_is_left_alone() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, patient());
    let (mut exact, _probes) = exact(&resolved);
    let (watcher, _) = server.connect().await;
    let (holder, holder_pid) = server.connect().await;
    holder
        .batch_execute("begin; lock table t in access share mode")
        .await
        .unwrap();
    let (pid, ended) = starts(&server, "alter table t add column c int").await;
    let request = runs(&watcher, pid, "alter").await;
    let attempt = exact.attempt(CANCEL, &task(pid, request)).await;
    assert!(
        matches!(&attempt, Attempt::Done(answer) if answer.result == OrderResult::Accepted),
        "{attempt:?}"
    );
    assert!(is_cancelled(&ended.await.unwrap()));
    // The holder sits idle in its transaction, whose last statement is the one that the order names.
    let text = format!(
        "select ((extract(epoch from query_start) - 946684800) * 1000000)::bigint from pg_stat_activity where pid = {holder_pid}"
    );
    let request: i64 = watcher.query_one(&text, &[]).await.unwrap().get(0);
    let idle = task(holder_pid, u64::try_from(request).unwrap());
    let attempt = exact.attempt(CANCEL, &idle).await;
    assert!(
        matches!(&attempt, Attempt::Done(answer) if answer.result == OrderResult::Missed),
        "{attempt:?}"
    );
    holder.batch_execute("commit").await.unwrap();
}

/// What became of the statements of a session, by their numbers.
#[derive(Default)]
struct Diary {
    ended: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
}

/// A session that runs one short numbered statement behind the other, without a pause.
fn busy_session(client: Client, stop: Arc<AtomicBool>, prepared: bool) -> JoinHandle<Diary> {
    tokio::spawn(async move {
        let mut diary = Diary::default();
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            // Between a tenth of a millisecond and some.
            let rows = 200 + number * 7919 % 12000;
            let text = format!("select {number}, count(*) from generate_series(1, {rows})");
            let result = if prepared {
                client.query(&text, &[]).await.map(|_| ())
            } else {
                client.simple_query(&text).await.map(|_| ())
            };
            match result {
                Ok(()) => diary.ended.insert(number),
                Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                    diary.cancelled.insert(number)
                }
                Err(error) => panic!("statement {number}: {error}"),
            };
        }
        diary
    })
}

/// Longer than any of the statements takes on a machine that is not overloaded.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Aims so many orders at the ends of statements, and compares who was named with who was hit.
async fn aim_at_ends(orders: usize, prepared: bool) {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (mut desk, _probes) = desk(&resolved);
    let (watcher, _) = server.connect().await;
    let (client, pid) = server.connect().await;
    let pid32 = u32::try_from(pid).unwrap();
    // Once for all orders: what is tried is the moment of the order, and it should come as quickly as it can.
    desk.open(pid32).unwrap();
    let stop = Arc::<AtomicBool>::default();
    let session = busy_session(client, Arc::clone(&stop), prepared);
    // Longer after an order that found its statement, shorter after one that was late: most come about the very end.
    let mut pause = Duration::from_micros(200);
    let mut delivered: BTreeSet<u64> = BTreeSet::new();
    let (mut found, mut missed) = (0, 0);
    while found + missed < orders {
        let Some((text, request)) = running(&watcher, pid).await else {
            continue;
        };
        let number = text
            .strip_prefix("select ")
            .and_then(|rest| rest.split(',').next())
            .and_then(|number| number.parse().ok());
        let Some(number) = number else { continue };
        spin(pause);
        let note = Note {
            pid: pid32,
            tid: pid32,
            request,
            signal: Signal::SIGINT as u32,
            deadline_ns: clock_ns() + PATIENCE.as_nanos() as u64,
        };
        desk.put(&note).unwrap();
        let outcome = wait_for("the order to be found", || {
            match desk.look(&note).unwrap() {
                Found::Waiting { .. } => None,
                outcome => Some(outcome),
            }
        });
        desk.take_back(&note);
        match outcome {
            Found::Delivered { .. } => {
                delivered.insert(number);
                found += 1;
                pause = pause.mul_f64(1.3).min(LONGEST_PAUSE);
            }
            Found::Missed { .. } => {
                missed += 1;
                pause = pause.mul_f64(0.8);
            }
            other => panic!("{other:?}"),
        }
    }
    stop.store(true, Ordering::Relaxed);
    let diary = session.await.unwrap();
    desk.close();
    let in_vain = delivered.intersection(&diary.ended).count();
    println!(
        "{orders} orders: {found} found their statement, {missed} missed; {in_vain} came when nothing of the statement was \
         left to cancel; {} statements in all",
        diary.ended.len() + diary.cancelled.len()
    );
    let unnamed: Vec<_> = diary.cancelled.difference(&delivered).collect();
    assert!(unnamed.is_empty(), "hit without being named: {unnamed:?}");
    assert!(
        found.min(missed) >= orders / 10,
        "the aim is off: {found} found, {missed} missed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_at_the_very_end_of_a_statement_never_hits_the_next_one() {
    aim_at_ends(1000, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_at_the_very_end_of_a_prepared_statement_never_hits_the_next_one() {
    aim_at_ends(1000, true).await;
}

/// A pause too short for a timer.
fn spin(pause: Duration) {
    let until_ns = clock_ns() + pause.as_nanos() as u64;
    while clock_ns() < until_ns {
        std::hint::spin_loop();
    }
}
