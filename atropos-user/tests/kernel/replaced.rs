//! A program that is replaced on disk while it runs.

use std::path::Path;

use atropos::agent::clock;

use crate::attached::{attach, resolve};
use crate::common::copy_program;
use crate::fixture::Fixture;
use crate::levels::OPS;

#[test]
fn probes_go_to_the_file_that_runs_although_another_took_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (program, next) = (folder.path().join("server"), folder.path().join("next"));
    copy_program(Fixture::ops(), &program);
    copy_program(Path::new("/bin/true"), &next);
    let mut target = Fixture::run(program.clone());
    let resolved = resolve(target.pid(), OPS);
    std::fs::rename(&next, &program).unwrap();
    let mut probes = attach(&resolved);
    target.tell("wait 5 7");
    let harvest = probes.harvest(clock::monotonic_ns()).unwrap();
    assert_eq!(harvest.events.len(), 1, "{:?}", harvest.events);
}
