//! Who woke whom, of a fixture whose child waits for it.

use atropos::agent::clock;
use atropos::agent::probes::{Probes, WakeLook};
use atropos::agent::resolve::Resolved;
use atropos::agent::run::TICK;
use atropos::config;
use atropos::engine::record::Level;
use atropos::kernel::{Wake, Wakes};
use atropos::target::Process;
use atropos_common::wake::WAKES_SITE;

use super::Bench;
use super::common::wait_for;
use crate::fixture::Fixture;

/// Begins a watch and waits until it has begun.
fn begin(wakes: &mut Wakes) {
    wakes.begin().unwrap_or_else(|e| panic!("{e:#}"));
    wait_for("the watch to begin", || {
        wakes
            .is_on()
            .unwrap_or_else(|e| panic!("{e:#}"))
            .then_some(())
    });
}

#[test]
fn a_process_in_scope_that_wakes_another_is_told_and_nobody_else() {
    let mut bench = Bench::start();
    let mut stranger = Fixture::start();
    let mut wakes = bench.kernel.wakes().unwrap_or_else(|e| panic!("{e:#}"));
    begin(&mut wakes);
    let child: u32 = bench.target.ask("fork").parse().unwrap();
    // The child waits on a pipe; each line may come before it does.
    let wake = wait_for("the child to be woken", || {
        bench.target.tell("child");
        stranger.tell("begin 1");
        wakes.seen().into_iter().find(|wake| wake.woken == child)
    });
    assert_eq!(wake.waker, bench.target.pid());
    assert!(wake.count > 0 && wake.last_ns <= super::common::clock_ns());
    let counted = bench.hits(WAKES_SITE);
    assert!(counted >= wake.count, "counted like the passings of a site");
    let wakers: Vec<u32> = wakes.seen().iter().map(|wake| wake.waker).collect();
    assert!(!wakers.contains(&stranger.pid()), "it is not in scope");
    bench.target.tell("reap");
}

#[test]
fn each_look_begins_with_nothing_and_between_two_nothing_is_seen() {
    let mut bench = Bench::start();
    let mut wakes = bench.kernel.wakes().unwrap_or_else(|e| panic!("{e:#}"));
    let child: u32 = bench.target.ask("fork").parse().unwrap();
    let to_child = |wakes: &Wakes| {
        let seen = wakes.seen().into_iter();
        seen.filter(|wake| wake.woken == child)
            .map(|wake| wake.count)
            .sum::<u64>()
    };
    bench.target.tell("child");
    assert_eq!(to_child(&wakes), 0, "nobody watches yet");
    begin(&mut wakes);
    wait_for("the child to be woken", || {
        bench.target.tell("child");
        (to_child(&wakes) > 2).then_some(())
    });
    wakes.end();
    assert!(!wakes.is_on().unwrap());
    // Detaching takes the kernel a while: the watch is over when a line wakes the child unseen.
    wait_for("the watch to end", || {
        let before = to_child(&wakes);
        for _ in 0..20 {
            bench.target.tell("child");
        }
        (to_child(&wakes) == before).then_some(())
    });
    assert!(to_child(&wakes) > 2, "what was seen can still be asked for");
    begin(&mut wakes);
    assert!(to_child(&wakes) <= 2, "the next look begins with nothing");
    bench.target.tell("reap");
}

const PRESET: &str = r#"
schema = 1
name = "fixture"
[match]
programs = ["fixture"]
symbols = ["op_begin"]
[[probe]]
name = "session_end"
level = "calm"
op = "session_end"
session = "arg0"
at = [{ symbol = "op_end" }]
"#;

/// Lets the parent wake its child for some ticks, harvesting as the agent does; the looks that came of it.
fn looks(target: &mut Fixture, probes: &mut Probes, wanted: bool, ticks: u32) -> Vec<WakeLook> {
    let mut looks = Vec::new();
    for _ in 0..ticks {
        target.tell("child");
        std::thread::sleep(TICK);
        probes
            .harvest(clock::monotonic_ns())
            .unwrap_or_else(|e| panic!("{e:#}"));
        let look = probes.look_at_wakes(wanted, clock::monotonic_ns());
        looks.extend(look.unwrap_or_else(|e| panic!("{e:#}")));
    }
    looks
}

#[test]
fn looks_are_taken_while_suspect_and_asked_for_and_no_more_than_one_a_second() {
    let mut target = Fixture::start();
    let preset =
        config::parse("fixture.toml", PRESET).unwrap_or_else(|problems| panic!("{problems}"));
    let resolved = Resolved::new(Process::open(target.pid()).unwrap(), preset).unwrap();
    let mut probes = Probes::attach(&resolved, clock::monotonic_ns()).unwrap();
    let child: u32 = target.ask("fork").parse().unwrap();
    assert!(looks(&mut target, &mut probes, true, 10).is_empty(), "calm");
    probes
        .set_level(Level::Suspect, clock::monotonic_ns())
        .unwrap();
    assert!(looks(&mut target, &mut probes, false, 10).is_empty());
    let begun_ns = clock::monotonic_ns();
    let seen = wait_for("two looks", || {
        let seen = looks(&mut target, &mut probes, true, 40);
        (seen.len() >= 2).then_some(seen)
    });
    let passed_s = (clock::monotonic_ns() - begun_ns) as f64 / 1e9;
    assert!(
        seen.len() as f64 <= passed_s + 1.0,
        "{} in {passed_s} s",
        seen.len()
    );
    for look in &seen {
        assert!(look.until_ns - look.since_ns >= 100_000_000, "{look:?}");
        let told = |wake: &&Wake| (wake.waker, wake.woken) == (target.pid(), child);
        let wake = look.wakes.iter().find(told);
        let wake = wake.unwrap_or_else(|| panic!("the child was woken all the time: {look:?}"));
        assert!(
            (look.since_ns..=look.until_ns).contains(&wake.last_ns),
            "{look:?}"
        );
    }
    target.tell("reap");
}
