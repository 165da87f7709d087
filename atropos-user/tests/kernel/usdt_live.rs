//! USDT through a config, from its text to counted passings: `PostgreSQL` in single-user mode, and a C program that marks its
//! tasks.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atropos::agent::check::Report;
use atropos::agent::clock;
use atropos_common::op::Op;

use super::attached::{attach, hits, resolve};
use super::common::{self, Started};

const POSTGRESQL: &str = r#"
schema = 1
name = "pg"

[match]
programs = ["postgres"]
symbols = ["pgstat_report_activity"]

[[resource]]
name = "buffers"
kind = "MEMORY"

[[probe]]
name = "query"
level = "calm"
op = "request_begin"
session = "pid"
at = [{ usdt = "postgresql:query_start" }, { usdt = "postgresql:query__start" }]

[[probe]]
name = "read"
level = "calm"
op = "use"
resource = "buffers"
session = "pid"
instance = "arg1"
value = "arg7"
at = [{ usdt = "postgresql:buffer__read__done" }]

[[probe]]
name = "sort"
level = "calm"
op = "progress"
session = "pid"
value = "arg2"
at = [{ usdt = "postgres*:sort__start" }]
"#;

const MARKS: &str = r#"
schema = 1
name = "marks"

[match]
programs = ["marks"]
symbols = ["main"]

[[resource]]
name = "lock"
kind = "LOCK"

[[probe]]
name = "begin"
level = "calm"
op = "request_begin"
session = "arg0"
at = [{ usdt = "atropos:task_begin" }]

[[probe]]
name = "end"
level = "calm"
op = "request_end"
session = "arg0"
at = [{ usdt = "atropos:task_end" }]

[[probe]]
name = "wait"
level = "calm"
op = "wait_begin"
resource = "lock"
session = "arg0"
instance = "arg2"
value = "arg3"
when = "arg1 == 3"
at = [{ usdt = "atropos:wait_begin" }]

[[probe]]
name = "other_wait"
level = "calm"
op = "wait_end"
resource = "lock"
session = "arg0"
instance = "arg2"
when = "arg1 == 4"
at = [{ usdt = "atropos:wait_end" }]

[[probe]]
name = "progress"
level = "calm"
op = "progress"
session = "arg0"
value = "arg1"
at = [{ usdt = "atropos:progress" }]
"#;

/// A server in single-user mode, waiting for SQL on its standard input.
fn postgresql(folder: &Path) -> Option<Started> {
    let program = PathBuf::from("/usr/lib/postgresql/15/bin/postgres");
    let user = nix::unistd::User::from_name("postgres").ok()??;
    if !program.exists() {
        return None;
    }
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    nix::unistd::chown(folder, Some(user.uid), Some(user.gid)).unwrap();
    let data = folder.join("data");
    let made = Command::new(program.with_file_name("initdb"))
        .args(["--no-sync", "--auth=trust", "-D"])
        .arg(&data)
        .current_dir(folder)
        .uid(uid)
        .gid(gid)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success(), "initdb failed");
    let mut command = Command::new(program);
    command.args(["--single", "-D"]).arg(&data).arg("postgres");
    command.current_dir(folder).uid(uid).gid(gid);
    let mut server = Started::new(&mut command);
    prompt(&mut server);
    Some(server)
}

/// Waits for the server's prompt: it has carried out what was sent.
fn prompt(server: &mut Started) {
    let stdout = server.0.stdout.as_mut().unwrap();
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"backend> ") {
        let count = stdout.read(&mut byte).unwrap();
        assert_eq!(count, 1, "ended after: {}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
}

#[test]
fn postgresql_s_own_probes_are_seen_through_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = postgresql(folder.path()) else {
        return common::skip("there is no PostgreSQL 15 with its user here");
    };
    let resolved = resolve(server.pid(), POSTGRESQL);
    let report = Report::of_process(&resolved);
    let sites: Vec<_> = report
        .probes
        .iter()
        .map(|probe| {
            let place = probe.place.as_ref().unwrap().as_ref().unwrap();
            (
                place.symbol.as_str(),
                place.alternative,
                place.site_count,
                place.cost,
            )
        })
        .collect();
    let wanted = [
        ("postgresql:query__start", 2, 1, "cheap"),
        ("postgresql:buffer__read__done", 1, 2, "cheap"),
        ("postgresql:sort__start", 1, 4, "cheap"),
    ];
    assert_eq!(sites, wanted);
    let text = atropos::ui::check::text(&report);
    assert!(
        text.contains("postgresql:sort__start 4 sites, the first at"),
        "{text}"
    );

    let mut probes = attach(&resolved);
    let sql = "select a, b, c from (values (1, 2, 3), (3, 2, 1)) v (a, b, c) order by c, b, a\n";
    let ask = |server: &mut Started| {
        server
            .0
            .stdin
            .as_mut()
            .unwrap()
            .write_all(sql.as_bytes())
            .unwrap();
        prompt(server);
    };
    ask(&mut server);
    let harvest = probes.harvest(clock::monotonic_ns()).unwrap();
    let [queries, reads, sorts] = hits(&probes)[..] else {
        panic!("three probes")
    };
    assert_eq!((queries, sorts), (1, 1));
    assert!(
        harvest
            .events
            .iter()
            .all(|decoded| decoded.op == Op::RequestBegin)
    );
    // Neither takes the way of a record: what was read and what was sorted by is summed beside.
    let kept = probes.kept().sessions;
    assert_eq!(kept[0].1.done, 3, "three columns to sort by, -4@%ecx");
    let used = harvest.uses.sums;
    assert_eq!(used.len(), 1);
    assert_eq!(used[0].0.session, u64::from(server.pid()));
    assert!(reads > 0 && used[0].1.used <= reads, "found: 0 or 1 each");

    drop(probes);
    ask(&mut server);
}

#[test]
fn a_probe_that_is_missing_is_answered_with_the_closest() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = marks(folder.path());
    let resolved = resolve(
        program.pid(),
        &MARKS.replace("atropos:progress", "atropos:progres"),
    );
    let reason = resolved.probes[4].place.as_ref().unwrap_err().join("; ");
    let wanted = "no USDT note `atropos:progres` (14 others; closest: `atropos:progress`) in ";
    assert!(reason.starts_with(wanted), "{reason}");
    let resolved = resolve(
        program.pid(),
        &MARKS.replace("value = \"arg3\"", "value = \"arg4\""),
    );
    let reason = resolved.probes[2].place.as_ref().unwrap_err().join("; ");
    assert!(reason.starts_with("atropos:wait_begin at 0x"), "{reason}");
    assert!(
        reason.ends_with("the site has no arg4: it has 4 arguments"),
        "{reason}"
    );
    task(&mut program);
}

/// The C program with marks, waiting for a command.
fn marks(folder: &Path) -> Started {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../usdt-probes/include");
    let source = include_str!("../fixtures/marks.c");
    let object = folder.join("other.o");
    common::compile(source, &object, &["-O2", "-c", "-DOTHER", include]);
    let to = folder.join("marks");
    let flags = ["-O2", "-rdynamic", include, object.to_str().unwrap()];
    let program = common::compile(source, &to, &flags);
    fs::remove_file(to.with_extension("c")).unwrap();
    let mut started = Started::new(&mut Command::new(program));
    assert_eq!(started.line(), "ready");
    started
}

/// Lets the program pass the marks of two tasks.
fn task(program: &mut Started) {
    program.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(program.line(), "done");
}

#[test]
fn a_program_with_the_header_s_marks_is_seen_through_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = marks(folder.path());
    task(&mut program);
    let resolved = resolve(program.pid(), MARKS);
    let mut probes = attach(&resolved);
    task(&mut program);
    let events = probes.harvest(clock::monotonic_ns()).unwrap().events;
    assert_eq!(
        hits(&probes),
        [2, 2, 1, 1, 1],
        "two tasks, from two source files"
    );
    let seen: Vec<_> = events
        .iter()
        .map(|d| (d.op, d.record.session, d.record.instance, d.record.value))
        .collect();
    assert_eq!(seen, [(Op::WaitBegin, 101, 70, 2)]);
    let kept = probes.kept().sessions;
    let told = kept.iter().find(|(key, _)| key.session == 101).unwrap();
    assert_eq!(told.1.done, 1000);
    drop(probes);
    task(&mut program);
}
