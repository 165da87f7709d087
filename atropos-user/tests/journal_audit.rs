//! The audit log: complete lines, in order, on disk in time, and never in the way.

#![allow(
    clippy::unwrap_used,
    reason = "in a test an unmet expectation is a failure"
)]

mod common;
mod samples;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use atropos::cancel::{Answer, SentOrder};
use atropos::engine::input::Lost;
use atropos::engine::record::{
    Effect, Level, OrderOutcome, OutcomeKind, OverloadNote, OverloadState,
};
use atropos::engine::settings::Mode;
use atropos::journal::{Audit, AuditClock, Intent, Run};
use samples::{decision, order};
use serde_json::Value;

fn run() -> Run {
    Run {
        version: "0.1.0".into(),
        host: "db1".into(),
        pid: 4711,
        exe: "/usr/sbin/mariadbd".into(),
        build_id: "c0ffee".into(),
        preset: "mariadb".into(),
        mode: Mode::Enforce,
        slo: "p99=20ms".into(),
    }
}

fn open(path: &Path) -> Audit {
    let clock = AuditClock {
        monotonic_ns: common::clock_ns,
        unix_ns: || 1_796_000_000_123_456_789,
    };
    Audit::open(path, run(), clock).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn outcome() -> OrderOutcome {
    OrderOutcome {
        order: 3,
        at_ns: 2_000,
        id: 42,
        result: OutcomeKind::Released,
        time_to_release_ns: Some(900),
        expected_gain_s: 1.5,
        realised_gain_s: Some(1.4),
        summary: "released".into(),
    }
}

#[tokio::test]
async fn a_whole_incident_can_be_told_from_the_lines_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let mut audit = open(&path);
    audit.effect(&Effect::Level(Level::Suspect));
    audit.effect(&Effect::Overload(OverloadNote {
        at_ns: 900,
        state: OverloadState::Resource,
        reason: "p99 80 ms above 20 ms".into(),
    }));
    audit.effect(&Effect::Decision(Box::new(decision())));
    audit.effect(&Effect::Cancel(order()));
    let intent = audit.order(&order(), "KILL QUERY ID 99123").await;
    assert!(!matches!(intent, Intent::Failed(_)), "{intent:?}");
    audit.answer(&SentOrder {
        order: order(),
        command: "KILL QUERY ID 99123".into(),
        sent_at_ns: 1_000,
        answered_at_ns: 1_400,
        answer: Answer::accepted(),
    });
    audit.effect(&Effect::Outcome(outcome()));
    audit.lost(&Lost {
        at_ns: 1,
        count: 17,
    });
    audit.stop("asked to").await;

    let lines = lines(&path);
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "start", "level", "overload", "decision", "order", "answer", "outcome", "lost", "stop"
        ]
    );
    for line in &lines {
        assert_eq!(line["schema"], 1);
        assert_eq!(line["time"], "2026-11-30T00:53:20.123456Z");
        assert!(line["mono_ns"].as_u64().unwrap() > 0);
        assert_eq!(
            line["target"],
            serde_json::json!({"host": "db1", "pid": 4711, "preset": "mariadb", "mode": "enforce"})
        );
    }
    assert_eq!(lines[0]["start"]["slo"], "p99=20ms");
    assert_eq!(
        lines[3]["decision"],
        serde_json::to_value(decision()).unwrap(),
        "the decision is there whole"
    );
    assert_eq!(lines[4]["command"], "KILL QUERY ID 99123");
    assert_eq!(lines[4]["order"]["task"]["id"], 42);
    assert_eq!(lines[5]["result"], "accepted");
    assert_eq!(lines[5]["took_ns"], 400);
    assert_eq!(
        lines[6]["task"]["digest"], "UPDATE t SET a = ?",
        "the outcome repeats whom it was about"
    );
    assert_eq!(lines[7]["event_count"], 17);
    assert_eq!(lines[8]["lost_count"], 0);
}

#[tokio::test]
async fn an_order_is_in_the_file_before_it_may_be_sent() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let mut audit = open(&path);
    // On a disk that is busy with other tests the limit may pass; then the log says so.
    match audit.order(&order(), "KILL CONNECTION 42").await {
        Intent::OnDisk => assert_eq!(
            lines(&path).last().unwrap()["command"],
            "KILL CONNECTION 42"
        ),
        Intent::Late => {}
        Intent::Failed(why) => panic!("{why}"),
    }
}

#[tokio::test]
async fn a_log_is_readable_by_its_owner_alone_and_only_ever_grows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    open(&path).stop("first").await;
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    open(&path).stop("second").await;
    let reasons: Vec<Value> = lines(&path)
        .iter()
        .map(|line| line["reason"].clone())
        .collect();
    assert_eq!(
        reasons,
        [Value::Null, "first".into(), Value::Null, "second".into()]
    );
}

#[tokio::test]
async fn a_line_that_a_killed_agent_left_torn_does_not_spoil_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    std::fs::File::create(&path)
        .unwrap()
        .write_all(b"{\"schema\":1,\"ki")
        .unwrap();
    open(&path).stop("done").await;
    let text = std::fs::read_to_string(&path).unwrap();
    let whole = text
        .lines()
        .filter(|line| serde_json::from_str::<Value>(line).is_ok())
        .count();
    assert_eq!((text.lines().count(), whole), (3, 2));
}

#[tokio::test]
async fn a_full_disk_is_counted_and_said_and_stops_nothing() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return common::skip("this machine has no /dev/full");
    }
    let mut audit = open(full);
    audit.decision(&decision());
    let intent = audit.order(&order(), "KILL QUERY ID 99123").await;
    assert!(
        matches!(&intent, Intent::Failed(why) if why.contains("No space left")),
        "{intent:?}"
    );
    assert_eq!((audit.counts().written, audit.counts().lost), (0, 3));
    assert!(
        audit
            .trouble()
            .unwrap()
            .contains("cannot write the audit log")
    );
}

#[tokio::test]
async fn a_disk_that_never_answers_holds_up_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Opened for reading and never read: once the pipe is full, every write blocks.
    let _reader = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    let mut audit = open(&pipe);
    for _ in 0..3_000 {
        audit.decision(&decision());
    }
    let order = order();
    let ordered = audit.order(&order, "KILL QUERY ID 99123");
    let intent = tokio::time::timeout(common::PATIENCE, ordered)
        .await
        .expect("nobody waits for the disk");
    assert!(
        matches!(intent, Intent::Late | Intent::Failed(_)),
        "{intent:?}"
    );
    assert!(audit.counts().lost > 1_000);
    assert!(audit.trouble().unwrap().contains("too slow"));
}

#[test]
fn a_log_that_cannot_be_opened_is_an_error_of_the_start() {
    let clock = AuditClock {
        monotonic_ns: || 0,
        unix_ns: || 0,
    };
    assert!(Audit::open(Path::new("/nonexistent/audit.jsonl"), run(), clock).is_err());
}
