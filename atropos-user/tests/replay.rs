//! `atropos replay --controller`: what others would have decided in the committed incidents of MariaDB.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// c1: session 125, a backup's FLUSH, queues behind the long UPDATE of 124, and 118 to 123 behind the FLUSH. m01: session 102
/// sleeps in a transaction, and the ALTER of 104 queues behind it with the readers behind that. The agent ended 125, and 102.
fn trace(name: &str) -> PathBuf {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../presets/mariadb/traces");
    traces.join(name).with_extension("rec")
}

fn replay(file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("atropos").unwrap();
    command.arg("replay").arg(file).args(arguments);
    command
}

/// The JSON lines, and the counts of the last.
fn judged(name: &str, arguments: &[&str]) -> (Vec<Value>, Value) {
    let done = replay(&trace(name), arguments)
        .arg("--json")
        .assert()
        .success();
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    let mut lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let summary = lines.pop().unwrap()["summary"].clone();
    (lines, summary)
}

/// Whom a side ended, and how.
fn ended(lines: &[Value], side: &str) -> Vec<(u64, String)> {
    let acts = lines
        .iter()
        .filter(|line| line["side"] == side && line["what"] == "act");
    acts.map(|line| {
        (
            line["id"].as_u64().unwrap(),
            line["how"].as_str().unwrap().to_owned(),
        )
    })
    .collect()
}

#[test]
fn whoever_looks_at_the_root_alone_ends_the_long_update_that_the_engine_let_go_on() {
    for name in ["root-blocker", "paper", "paper-current", "paper-greedy"] {
        let (lines, _) = judged("c1", &["--controller", name]);
        assert_eq!(
            ended(&lines, "would"),
            [(124, "end statement".to_owned())],
            "{name}"
        );
        assert_eq!(
            ended(&lines, "done"),
            [(125, "KILL QUERY ID".to_owned())],
            "{name}"
        );
        let (lines, _) = judged("m01", &["--controller", name]);
        assert_eq!(
            ended(&lines, "would"),
            [(102, "end session".to_owned())],
            "{name}"
        );
        assert_eq!(
            ended(&lines, "done"),
            [(102, "KILL CONNECTION".to_owned())],
            "{name}"
        );
    }
}

#[test]
fn whoever_goes_by_age_ends_the_update_as_well_and_never_reaches_a_sleeper() {
    let by_age = [
        ("pt-kill", "end statement"),
        ("pg-terminate", "end session"),
        ("timeout-any", "end statement"),
        ("tidb-runaway", "end statement"),
    ];
    for (name, how) in by_age {
        let (lines, _) = judged("c1", &["--controller", name]);
        assert_eq!(ended(&lines, "would"), [(124, how.to_owned())], "{name}");
        let (lines, counts) = judged("m01", &["--controller", name]);
        assert_eq!(ended(&lines, "would"), [], "{name}");
        assert_eq!((&counts["done"], &counts["would"]), (&1.into(), &0.into()));
    }
}

#[test]
fn a_lock_timeout_ends_every_victim() {
    for name in ["c1", "m01"] {
        let (_, counts) = judged(name, &["--controller", "timeout-victim"]);
        assert_eq!(
            (&counts["would"], &counts["would_of_waiting"]),
            (&7.into(), &7.into())
        );
    }
}

#[test]
fn the_engine_decides_as_it_did_and_otherwise_with_another_objective() {
    for name in ["c1", "m01"] {
        let (lines, _) = judged(name, &["--controller", "atropos"]);
        assert_eq!(ended(&lines, "would"), ended(&lines, "done"), "{name}");
        assert_eq!(ended(&lines, "would").len(), 1, "{name}");
        let (lines, _) = judged(name, &["--slo", "p99=10s"]);
        assert_eq!(ended(&lines, "would"), [], "{name}");
        assert_eq!(ended(&lines, "done").len(), 1, "{name}");
    }
}

#[test]
fn text_tells_a_line_a_decision_and_counts_at_the_end() {
    let done = replay(&trace("m01"), &["--controller", "root-blocker"])
        .assert()
        .success();
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains(" s  root-blocker "))
        .unwrap();
    assert!(
        line.contains("end session of session 102 (root): idle in a transaction for"),
        "{line}"
    );
    assert!(line.ends_with("behind it at table shop.orders"), "{line}");
    assert_eq!(
        text.lines().last().unwrap(),
        "done: 1 accepted; root-blocker: 1 ended, 0 of them waiting themselves"
    );
}

#[test]
fn what_cannot_be_judged_is_a_mistake_on_the_command_line_and_a_damaged_file_is_damaged() {
    let fails = |file: &Path, arguments: &[&str], code: i32, says: &str| {
        let done = replay(file, arguments).assert().code(code);
        let text = String::from_utf8(done.get_output().stderr.clone()).unwrap();
        assert!(text.contains(says), "{arguments:?}: {text}");
    };
    fails(
        &trace("c1"),
        &["--controller", "breakwater"],
        2,
        "acts at the door",
    );
    fails(
        &trace("c1"),
        &["--controller", "oracle"],
        2,
        "a recording can judge atropos",
    );
    fails(
        &trace("c1"),
        &["--controller", "nobody"],
        2,
        "simulate --list",
    );
    fails(&trace("c1"), &["--slo", "p99"], 2, "--slo p99");
    fails(
        &trace("c1"),
        &["--controller", "pt-kill", "--slo", "p99=+20%"],
        2,
        "--slo p99=50ms",
    );
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("cut.rec");
    let mut bytes = fs::read(trace("c1")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    fails(&file, &["--controller", "pt-kill"], 7, "checksum");
}

#[test]
fn a_recording_that_breaks_off_is_judged_as_far_as_it_goes() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("cut.rec");
    let bytes = fs::read(trace("m01")).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 20]).unwrap();
    let done = replay(&file, &["--controller", "root-blocker"])
        .assert()
        .success();
    let text = String::from_utf8(done.get_output().stderr.clone()).unwrap();
    assert!(text.contains("was not closed"), "{text}");
}
