//! The sample server's cache: who sweeps it is ended while others need it, and of many who thrash it together nobody is. Needs
//! root and the kernel half.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use atropos::agent::probes::Probes;
use atropos::agent::told::Told;
use atropos::config;
use atropos::engine::input::Activity;
use atropos::engine::record::Level;
use usdt_probes::server::Server;

use crate::agent::Agent;
use crate::common::{clock_ns, roomy, wait_for};
use crate::scene::{person, resolve};

/// Values that the cache has room for.
const ROOM: &str = "256";

/// Values that each reader wants: all of them together fit.
const WANTED: u64 = 20;

/// Readers.
const READERS: u64 = 10;

/// Between two statements of a reader: so short that most of their time is lost while a sweep goes on, and long enough for the sweep
/// to bring in more meanwhile than there is room for beside what all of them want.
const PAUSE: Duration = Duration::from_millis(100);

/// A server whose store takes a millisecond for a value.
pub(crate) fn server(program: &std::path::Path) -> Server {
    Server::start(program, &["--cache", ROOM, "--load-us", "1000"]).unwrap()
}

/// Lets readers read the same values over and over while something happens; errors and statements done. Reader N begins its
/// statements at value `first(N, how many it has done)`.
pub(crate) fn with_readers(
    server: &Server,
    first: impl Fn(u64, u64) -> u64 + Sync,
    pause: Duration,
    happens: impl FnOnce(&AtomicU64),
) -> u64 {
    let (stop, done, errors) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (stop, first) = (&stop, &first);
    std::thread::scope(|scope| {
        let (done, errors) = (&done, &errors);
        for reader in 0..READERS {
            scope.spawn(move || {
                let mut client = person(server, "web");
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    let line = format!("READ {} {WANTED}", first(reader, count));
                    let answered = client
                        .command(&line)
                        .is_ok_and(|reply| reply.result.is_ok());
                    if answered { done } else { errors }.fetch_add(1, Ordering::Relaxed);
                    count += 1;
                    // A client that thinks; nothing is waited for.
                    std::thread::sleep(pause);
                }
            });
        }
        let _stop = Stop(stop);
        happens(done);
    });
    errors.into_inner()
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each reader has values of its own.
fn own(reader: u64, _: u64) -> u64 {
    1000 * reader
}

/// An agent with a preset that extends this one. The server spends what it takes asleep, so that of its processor time probes
/// take a large share: what they may take is no matter here.
fn attach(server: &Server, extends: &str) -> Agent {
    let (_folder, file) = roomy(extends);
    let pid = server.pid().to_string();
    let arguments = ["--pid", &pid, "--preset", &file, "--slo", "p99=10ms"];
    let mut agent = Agent::start(&[&arguments[..], &["--enforce"]].concat());
    agent.wait_for("attached", |line| line["event"] == "attached");
    agent
}

fn gets_on(done: &AtomicU64, statements: u64) {
    let before = done.load(Ordering::Relaxed);
    wait_for("the readers to get on", || {
        (done.load(Ordering::Relaxed) > before + statements).then_some(())
    });
}

/// A sweep among readers whose values fit the cache: it is the one to go, and its session goes on.
fn the_sweep_goes(server: &Server, preset: &str) {
    let mut agent = attach(server, preset);
    let errors = with_readers(server, own, PAUSE, |done| {
        gets_on(done, 2 * READERS);
        let mut sweep = person(server, "report");
        sweep.send("READ 1000000 1000000").unwrap();
        let decision = agent.decision(|decision| decision["orders"][0].is_object());
        let order = &decision["orders"][0];
        assert_eq!(order["task"]["id"], sweep.session(), "{decision:#}");
        assert_eq!(decision["orders"].as_array().unwrap().len(), 1);
        let by = &decision["resources"][decision["candidates"][0]["gains"][0]["resource"]
            .as_u64()
            .unwrap() as usize];
        assert_eq!(by["name"], "cache", "{decision:#}");
        let words = order["task"]["digest"].as_str().unwrap();
        assert!(words.starts_with("read"), "{decision:#}");
        assert!(
            sweep.receive().unwrap().is_cancelled(),
            "the statement was cancelled"
        );
        assert_eq!(agent.outcome()["result"], "released");
        assert!(sweep.command("READ 0 1").unwrap().result.is_ok());
        gets_on(done, 2 * READERS);
    });
    assert_eq!(errors, 0);
    assert_eq!(agent.sent().len(), 1, "one order, no second");
    assert!(agent.stop().success());
}

#[test]
fn whoever_sweeps_the_cache_while_others_need_it_is_cancelled() {
    the_sweep_goes(&server(crate::program::program()), "sample");
}

#[test]
fn the_same_in_an_application_that_is_known_by_its_marks_alone() {
    let stranger = crate::marks::stranger(server);
    the_sweep_goes(&stranger.server, "atropos");
}

/// Readers that together want more than there is room for, and no sweep.
fn nobody_goes(server: &Server, preset: &str) {
    let mut agent = attach(server, preset);
    let elsewhere = |reader: u64, count: u64| 1000 * reader + count % 5 * WANTED;
    let errors = with_readers(server, elsewhere, Duration::from_millis(20), |_| {
        agent.wait_for("overload", |line| {
            line["effect"]["overload"]["state"].is_string()
        });
        let begun_ns = clock_ns();
        wait_for("some seconds of overload", || {
            agent.listen();
            assert!(agent.sent().is_empty(), "{:#?}", agent.said);
            (clock_ns() - begun_ns > 4_000_000_000).then_some(())
        });
    });
    assert_eq!(errors, 0);
    agent.answers();
    let orders = |line: &&serde_json::Value| line["effect"]["decision"]["orders"][0].is_object();
    agent.listen();
    assert_eq!(agent.said.iter().find(orders), None);
    assert!(agent.stop().success());
}

#[test]
fn of_equal_readers_that_drive_each_other_out_nobody_is_ended() {
    nobody_goes(&server(crate::program::program()), "sample");
}

#[test]
fn nor_in_an_application_that_is_known_by_its_marks_alone() {
    let stranger = crate::marks::stranger(server);
    nobody_goes(&stranger.server, "atropos");
}

#[test]
fn a_task_that_says_how_far_it_is_is_seen_to_be_that_far() {
    let stranger = crate::marks::stranger(server);
    let preset = config::load("atropos").unwrap_or_else(|problems| panic!("{problems}"));
    let resolved = resolve(stranger.server.pid(), preset);
    let mut probes = Probes::attach(&resolved, clock_ns()).unwrap();
    probes.set_level(Level::Suspect, clock_ns()).unwrap();
    probes.wait().unwrap();
    let mut told = Told::new(&resolved.preset);
    let mut client = person(&stranger.server, "report");
    client.send("READ 5000 600").unwrap();
    let id = client.session();
    let mut last = 0.0;
    wait_for("the task to be more than half done", || {
        let harvest = probes.harvest(clock_ns()).unwrap();
        let view = told.look(&harvest.kept.unwrap(), clock_ns());
        let state = view.sessions.into_iter().find(|one| one.id == id)?;
        assert_eq!(state.activity, Activity::Busy);
        let progress = state.progress?;
        assert!((last..=1.0).contains(&progress), "{last}, then {progress}");
        last = progress;
        (progress > 0.5).then_some(())
    });
    assert!(client.receive().unwrap().result.is_ok());
}
