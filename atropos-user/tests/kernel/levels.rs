//! The probe sets of the two levels, through a config.

use atropos::agent::clock::monotonic_ns;
use atropos::engine::record::Level;

use super::attached::{attach, hits, resolve};
use super::common::wait_for;
use super::fixture::Fixture;

pub(super) const OPS: &str = r#"
schema = 1
name = "ops"

[match]
programs = ["ops"]
symbols = ["op_wait"]

[[resource]]
name = "lock"
kind = "LOCK"

[[probe]]
name = "wait"
level = "calm"
op = "wait_begin"
resource = "lock"
session = "arg0"
instance = "arg1"
at = [{ symbol = "op_wait" }]

[[probe]]
name = "sampled"
level = "suspect"
op = "request_begin"
session = "arg0"
at = [{ symbol = "op_begin" }]
sample = { every = "1h", for = "30m" }

[[probe]]
name = "not_sampled"
level = "suspect"
op = "acquire"
resource = "lock"
session = "arg0"
instance = "arg1"
value = "arg2"
at = [{ symbol = "op_acquire" }]
"#;

/// Passes each site once.
fn pass(target: &mut Fixture) {
    for line in ["wait 1 2", "begin 1", "acquire 1 2 3"] {
        target.tell(line);
    }
}

#[test]
fn a_process_whose_main_thread_has_left_the_others_alone_stays_in_scope_and_that_is_a_loss() {
    let mut target = Fixture::start();
    let mut probes = attach(&resolve(target.pid(), OPS));
    target.tell("headless");
    let lost = wait_for("the exit to be seen", || {
        let harvest = probes.harvest(monotonic_ns());
        let lost = harvest.unwrap_or_else(|error| panic!("{error:#}")).lost;
        (lost > 0).then_some(lost)
    });
    assert_eq!(lost, 1);
    let before = hits(&probes)[0];
    target.tell("wait 1 2");
    assert_eq!(hits(&probes)[0], before + 1);
}

#[test]
fn suspicion_during_a_sample_brings_the_probes_that_are_not_sampled_and_ends_with_calm() {
    let mut target = Fixture::start();
    let mut probes = attach(&resolve(target.pid(), OPS));
    // Hits of each: wait, sampled, not sampled.
    pass(&mut target);
    assert_eq!(hits(&probes), [1, 0, 0], "calm");
    // The first harvest begins a sample.
    probes.harvest(monotonic_ns()).unwrap();
    probes.wait().unwrap();
    pass(&mut target);
    assert_eq!(hits(&probes), [2, 1, 0], "a sample in calm");
    probes.set_level(Level::Suspect, monotonic_ns()).unwrap();
    probes.wait().unwrap();
    pass(&mut target);
    assert_eq!(hits(&probes), [3, 2, 1], "suspect");
    // Said again, it changes nothing: no probe is there twice.
    probes.set_level(Level::Suspect, monotonic_ns()).unwrap();
    probes.wait().unwrap();
    pass(&mut target);
    assert_eq!(hits(&probes), [4, 3, 2], "suspect, said again");
    let harvest = probes.harvest(monotonic_ns()).unwrap();
    assert!(harvest.covered_ns > 0);
    probes.set_level(Level::Calm, monotonic_ns()).unwrap();
    // What is sampled may stay for its time.
    super::common::wait_for("what is not sampled to go", || {
        probes.wait().unwrap();
        let before = hits(&probes);
        pass(&mut target);
        let after = hits(&probes);
        (after[2] == before[2] && after[0] == before[0] + 1).then_some(())
    });
}

#[test]
fn a_probe_that_the_kernel_refuses_is_told_its_resource_is_blind_and_the_rest_goes_on() {
    let mut target = Fixture::start();
    let mut resolved = resolve(target.pid(), OPS);
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("ops");
    resolved.probes[2].place.as_mut().unwrap().file = missing.clone();
    let mut probes = attach(&resolved);
    probes.set_level(Level::Suspect, monotonic_ns()).unwrap();
    probes.wait().unwrap();
    let harvest = probes.harvest(monotonic_ns()).unwrap();
    assert_eq!(harvest.refused.len(), 1, "{:?}", harvest.refused);
    assert!(
        harvest.refused[0].contains("not_sampled"),
        "{:?}",
        harvest.refused
    );
    assert_eq!(harvest.blind.len(), 1);
    assert!(harvest.blind[0].reason.starts_with("lock: cannot attach"));
    pass(&mut target);
    assert_eq!(hits(&probes), [1, 1, 0], "what is not refused is there");
    // It is tried again after a while, and not before.
    std::os::unix::fs::symlink(target.program(), &missing).unwrap();
    probes.harvest(monotonic_ns()).unwrap();
    probes.wait().unwrap();
    assert_eq!(probes.refused().count(), 1);
    probes.harvest(monotonic_ns() + 6_000_000_000).unwrap();
    probes.wait().unwrap();
    assert_eq!(probes.refused().count(), 0);
    pass(&mut target);
    assert_eq!(hits(&probes), [2, 2, 1]);
}
