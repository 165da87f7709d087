//! Probes at a site that is passed as often as a core can: what they cost stays within the budget, and it is said.

use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use atropos::agent::clock;
use atropos::agent::probes::Probes;
use atropos::agent::run::TICK;
use atropos::engine::record::Level;
use atropos::governor::{Change, Standing};

use crate::attached::{attach, resolve};
use crate::fixture::Fixture;

/// A hot site that stands for waits, and requests that are few.
const PRESET: &str = r#"
schema = 1
name = "busy"
[budget]
calm = "1%"
suspect = "5%"
[match]
programs = ["busy"]
symbols = ["busy_site_10"]
[[resource]]
name = "lock"
kind = "LOCK"
[[probe]]
name = "wait"
level = "calm"
op = "wait_begin"
resource = "lock"
session = "arg0"
at = [{ symbol = "busy_site_10" }]
[[probe]]
name = "session_end"
level = "calm"
op = "session_end"
session = "arg0"
at = [{ symbol = "busy_site_11" }]
"#;

/// The same site as the begin of requests, which may be sampled.
const REQUESTS: &str = r#"
schema = 1
name = "busy"
[budget]
calm = "1%"
suspect = "5%"
[match]
programs = ["busy"]
symbols = ["busy_site_10"]
[[probe]]
name = "session_end"
level = "calm"
op = "session_end"
session = "arg0"
at = [{ symbol = "busy_site_11" }]
[[probe]]
name = "request"
level = "suspect"
op = "request_begin"
session = "arg0"
hot = true
at = [{ symbol = "busy_site_10" }]
"#;

/// What the fixture has done so far.
#[derive(Clone, Copy)]
struct Work {
    passings: f64,
    site_ns: f64,
    twin_ns: f64,
}

fn work(target: &mut Fixture) -> Work {
    let answer = target.ask("read");
    let mut numbers = answer
        .split(' ')
        .map(|number| number.parse::<f64>().unwrap());
    let mut next = || numbers.next().unwrap();
    Work {
        passings: next(),
        site_ns: next(),
        twin_ns: next(),
    }
}

impl Work {
    /// What was done since.
    fn since(self, before: Self) -> Self {
        Self {
            passings: self.passings - before.passings,
            site_ns: self.site_ns - before.site_ns,
            twin_ns: self.twin_ns - before.twin_ns,
        }
    }

    /// The share of its CPU time that the target spent at the site and not at its twin, which does the same work.
    fn loss(self) -> f64 {
        (self.site_ns - self.twin_ns) / (self.site_ns + self.twin_ns)
    }

    /// Its CPU time.
    fn took(self) -> Duration {
        Duration::from_nanos((self.site_ns + self.twin_ns) as u64)
    }

    /// Passings in a second of work, twin and all.
    fn rate(self) -> f64 {
        self.passings / (self.site_ns + self.twin_ns) * 1e9
    }
}

/// CPU time of the target for which it is watched at the least, and at the most.
const WORK: Range<Duration> = Duration::from_secs(15)..Duration::from_mins(1);

/// Looks at the probes once a tick, as the agent does, until the target has worked for [`WORK`] since the governor first changed
/// something; what it did in that time, what was changed, and the blind resources at the end. On a starved machine the first
/// ticks come late, and until then the probes cost what they cost. Later ones do as well: the target is watched for longer, up
/// to the most, until all is within the budget.
fn watch(
    target: &mut Fixture,
    probes: &mut Probes,
    is_within: impl Fn(Work) -> bool,
) -> (Work, Vec<Change>, usize) {
    let begun = Instant::now();
    let (mut before, mut changes) = (None, Vec::new());
    loop {
        sleep(TICK);
        let harvest = probes
            .harvest(clock::monotonic_ns())
            .unwrap_or_else(|error| panic!("{error:#}"));
        changes.extend(harvest.changes);
        if !changes.is_empty() {
            let now = work(target);
            let done = now.since(*before.get_or_insert(now));
            if done.took() >= WORK.end || (done.took() >= WORK.start && is_within(done)) {
                return (done, changes, harvest.blind.len());
            }
        }
        assert!(
            begun.elapsed() < Duration::from_mins(10),
            "the machine is too busy for this test"
        );
    }
}

/// The loss without any probe, which is noise.
fn noise(target: &mut Fixture) -> f64 {
    target.tell("go");
    let before = work(target);
    let alone = crate::common::wait_for("three seconds of work", || {
        let done = work(target).since(before);
        (done.took() >= Duration::from_secs(3)).then_some(done)
    });
    println!(
        "alone: {:.0} passings in a second of work, loss {:+.2} %",
        alone.rate(),
        alone.loss() * 100.0
    );
    alone.loss()
}

#[test]
fn a_site_passed_half_a_million_times_a_second_is_let_go_and_the_target_loses_less_than_the_budget()
{
    let mut target = Fixture::busy();
    let noise = noise(&mut target);
    let mut probes = attach(&resolve(target.pid(), PRESET));
    let is_within = |work: Work| work.loss() - noise <= 0.01;
    let (watched, changes, blind) = watch(&mut target, &mut probes, is_within);
    let loss = watched.loss() - noise;
    println!("watched: loss {:+.2} %, {changes:?}", loss * 100.0);
    assert_eq!(
        changes[0].probes,
        ["wait"],
        "what nobody passes is left alone"
    );
    assert_eq!(changes[0].to, Standing::Shed);
    assert!(
        changes[0].share > 0.1,
        "or it was not what this is about: {changes:?}"
    );
    assert_eq!(blind, 1, "a resource whose probes are shed is blind");
    assert!(
        is_within(watched),
        "the budget of calm is 1 %, the loss {:.2} %",
        loss * 100.0
    );
}

#[test]
fn requests_over_budget_are_sampled_and_no_resource_goes_blind() {
    let mut target = Fixture::busy();
    let noise = noise(&mut target);
    let mut probes = attach(&resolve(target.pid(), REQUESTS));
    probes
        .set_level(Level::Suspect, clock::monotonic_ns())
        .unwrap_or_else(|error| panic!("{error:#}"));
    let is_within = |work: Work| work.loss() - noise <= 0.05;
    let (watched, changes, blind) = watch(&mut target, &mut probes, is_within);
    let loss = watched.loss() - noise;
    println!("watched: loss {:+.2} %, {changes:?}", loss * 100.0);
    assert!(
        changes
            .iter()
            .any(|change| matches!(change.to, Standing::Halved(_))),
        "{changes:?}"
    );
    assert_eq!(blind, 0);
    assert!(
        is_within(watched),
        "the budget of suspect is 5 %, the loss {:.2} %",
        loss * 100.0
    );
}
