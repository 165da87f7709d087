//! A program that is replaced on disk while it runs.

use std::path::Path;

use atropos::agent::clock;
use atropos::agent::probes::Probes;
use atropos::agent::resolve::Resolved;
use atropos::config;
use atropos::target::Process;

use crate::common::copy_program;
use crate::fixture::Fixture;

const PRESET: &str = r#"
schema = 1
name = "ops"
[match]
programs = ["server"]
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
"#;

#[test]
fn probes_go_to_the_file_that_runs_although_another_took_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (program, next) = (folder.path().join("server"), folder.path().join("next"));
    copy_program(Fixture::ops(), &program);
    copy_program(Path::new("/bin/true"), &next);
    let mut target = Fixture::run(program.clone());
    let preset = config::parse("ops.toml", PRESET).unwrap_or_else(|problems| panic!("{problems}"));
    let process = Process::open(target.pid()).unwrap();
    let resolved = Resolved::new(process, preset).unwrap_or_else(|error| panic!("{error:#}"));
    std::fs::rename(&next, &program).unwrap();
    let mut probes =
        Probes::attach(&resolved, clock::monotonic_ns()).unwrap_or_else(|e| panic!("{e:#}"));
    target.tell("wait 5 7");
    let harvest = probes.harvest(clock::monotonic_ns()).unwrap();
    assert_eq!(harvest.events.len(), 1, "{:?}", harvest.events);
}
