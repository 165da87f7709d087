//! The marks that an application puts into itself: one note for each event, however often and from wherever it is passed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atropos::agent::declared::Declared;
use atropos::config;
use atropos::elf::operand::Machine;
use atropos::elf::{Cost, Image};
use atropos::engine::settings::Kind;

use super::common;

/// Every event with its number of arguments.
const EVENTS: [(&str, usize); 14] = [
    ("acquire", 4),
    ("dequeue", 3),
    ("enqueue", 3),
    ("evict", 4),
    ("label", 2),
    ("progress", 2),
    ("release", 3),
    ("session_end", 1),
    ("task_begin", 1),
    ("task_end", 1),
    ("use", 4),
    ("wait_begin", 4),
    ("wait_end", 3),
    ("work", 2),
];

/// Checks the notes of a program: each event once, a five-byte `nop`, arguments that can be evaluated, a semaphore in the file.
fn check(program: &Path) {
    let bytes = std::fs::read(program).unwrap();
    let image = Image::parse(&bytes).unwrap();
    let mut found = BTreeMap::new();
    for site in image.usdt().unwrap() {
        if site.provider != "atropos" {
            continue;
        }
        let place = image.usdt_site(site.vaddr).unwrap();
        assert_eq!(
            (place.cost, place.why.as_str()),
            (Cost::Cheap, "`nop` of 5 bytes")
        );
        let semaphore = image.layout().file_offset(site.semaphore_vaddr.unwrap());
        let semaphore = usize::try_from(semaphore.unwrap()).unwrap();
        assert_eq!(&bytes[semaphore..semaphore + 2], [0, 0]);
        let operands = site.operands(Machine::X86_64);
        for operand in &operands {
            operand.start(site.vaddr, &|_| None).unwrap();
        }
        let twice = found.insert(site.name.clone(), operands.len());
        assert_eq!(twice, None, "{} has two notes", site.name);
    }
    let wanted: BTreeMap<_, _> = EVENTS
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    assert_eq!(found, wanted, "{}", program.display());
}

/// Compiles the fixture's two source files.
fn build(compiler: &str, to: &Path, flags: &[&str]) -> Option<PathBuf> {
    let here = env!("CARGO_MANIFEST_DIR");
    let object = to.with_extension("o");
    let include = format!("-I{here}/../usdt-probes/include");
    let source = format!("{here}/tests/fixtures/marks.c");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(compiler);
        command.args(flags).arg(&include).args(arguments);
        let done = command.output().ok()?;
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        Some(())
    };
    let (object, program) = (object.to_str().unwrap(), to.to_str().unwrap());
    run(&["-DOTHER", "-c", "-o", object, &source])?;
    // The language is said for sources alone: an object that follows is one again.
    let language = if compiler == "c++" { "c++" } else { "c" };
    run(&["-x", language, &source, "-x", "none", object, "-o", program])?;
    Some(to.to_owned())
}

#[test]
fn the_header_leaves_one_note_for_each_event() {
    let folder = tempfile::tempdir().unwrap();
    for (index, flags) in [
        &["-O2", "-Wall", "-Wextra", "-Werror"][..],
        &["-O0"],
        &["-O3", "-s", "-ffunction-sections", "-Wl,--gc-sections"],
        &["-O2", "-static", "-no-pie"],
        &["-O2", "-shared", "-fPIC", "-s"],
    ]
    .iter()
    .enumerate()
    {
        let to = folder.path().join(format!("marks-{index}"));
        check(&build("cc", &to, flags).expect("a C compiler is installed"));
    }
}

#[test]
fn the_header_is_c_plus_plus_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-x", "c++"];
    match build("c++", &folder.path().join("marks"), &flags) {
        Some(program) => check(&program),
        None => common::skip("there is no C++ compiler here"),
    }
}

/// Passes every mark twice, from two places.
#[inline(never)]
fn pass_all(session: u64) {
    use usdt_probes::mark;
    mark::task_begin(session);
    mark::enqueue(session, 2, 0);
    mark::dequeue(session, 2, 0);
    mark::wait_begin(session, 3, 70, 2);
    mark::wait_end(session, 3, 70);
    mark::acquire(session, 3, 70, 2);
    mark::use_units(session, 1, 0, 16);
    mark::evict(session, 1, 0, 4);
    mark::work(session, 5000);
    mark::progress(session, 1000);
    mark::release(session, 3, 70);
    mark::task_end(session);
    mark::session_end(session);
    mark::task_begin(session);
    mark::task_end(session);
}

#[test]
fn the_crate_leaves_one_note_for_each_event() {
    pass_all(5);
    check(&std::env::current_exe().unwrap());
}

/// A program in C that declares two resources and how its work is ended.
const DECLARING: &str = r#"
#include <signal.h>
#define ATROPOS_IMPLEMENTATION
#include "atropos.h"
ATROPOS_RESOURCE(0, LOCK, "table_lock")
ATROPOS_RESOURCE(1, QUEUE, "workers")
ATROPOS_CANCELS_TASK(SIGUSR1)
ATROPOS_ENDS_SESSION(SIGUSR2)
int main(void) { atropos_task_begin(1); atropos_task_end(1); return 0; }
"#;

#[test]
fn what_a_program_in_c_declares_completes_the_preset() {
    let folder = tempfile::tempdir().unwrap();
    let include = format!("-I{}/../usdt-probes/include", env!("CARGO_MANIFEST_DIR"));
    for flags in [
        &["-O2", "-Wall", "-Wextra", "-Werror", "-Wpedantic"][..],
        &["-O0", "-s", "-ffunction-sections", "-Wl,--gc-sections"],
    ] {
        let flags = [flags, &[include.as_str()]].concat();
        let program = common::compile(DECLARING, &folder.path().join("declaring"), &flags);
        let bytes = std::fs::read(program).unwrap();
        let notes = Image::parse(&bytes).unwrap().usdt().unwrap();
        let base = config::load("atropos").unwrap_or_else(|problems| panic!("{problems}"));
        let preset = Declared::read(&notes).unwrap().complete(base).unwrap();
        let resources: Vec<_> = preset
            .resources
            .iter()
            .map(|resource| (resource.name.as_str(), resource.kind))
            .collect();
        assert_eq!(
            resources,
            [("table_lock", Kind::Lock), ("workers", Kind::Queue)]
        );
        let rungs: Vec<_> = preset
            .cancel
            .iter()
            .flat_map(|cancel| &cancel.rungs)
            .map(|rung| rung.name.as_str())
            .collect();
        assert_eq!(rungs, ["cancel the task", "end the session"]);
    }
}
