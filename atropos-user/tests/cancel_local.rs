//! The ladder, and the initiator that runs programs.

#![allow(
    clippy::unwrap_used,
    reason = "in a test an unmet expectation is a failure"
)]

mod common;
mod samples;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use atropos::cancel::{Answer, AnyInitiator, Exec, ExecRung, Initiator, Ladder, exec};
use atropos::engine::input::OrderResult;
use atropos::engine::record::Task;
use atropos::engine::settings::Mode;
use common::{PATIENCE, wait_for};
use samples::{order, task};

/// Remembers what it was asked to do.
#[derive(Default)]
struct Fake {
    sent: Vec<(u8, u64)>,
}

impl Initiator for Fake {
    fn describe(&self, rung: u8, task: &Task) -> String {
        format!("end {} by {rung}", task.id)
    }

    async fn send(&mut self, rung: u8, task: &Task) -> Answer {
        self.sent.push((rung, task.id));
        Answer::missed("it had ended")
    }

    async fn check_permission(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn own_ids(&self) -> Vec<u64> {
        vec![7]
    }

    async fn keep_warm(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A clock that ticks at each look.
fn ticking() -> u64 {
    static NOW: AtomicU64 = AtomicU64::new(100);
    NOW.fetch_add(1, Ordering::Relaxed)
}

#[tokio::test]
async fn enforce_sends_and_reports_with_both_times() {
    let mut ladder = Ladder::new(Fake::default(), Mode::Enforce, ticking);
    let sent = ladder.carry_out(order()).await;
    assert_eq!(ladder.initiator().sent, [(0, 42)]);
    assert_eq!(sent.command, "end 42 by 0");
    assert!(sent.answered_at_ns > sent.sent_at_ns);
    let report = sent.report();
    assert_eq!(
        (report.order, report.rung, report.at_ns),
        (3, 0, sent.answered_at_ns)
    );
    assert_eq!(report.result, OrderResult::Missed);
    assert_eq!(sent.answer.detail, "it had ended");
    assert_eq!(ladder.own_ids(), [7]);
}

#[tokio::test]
async fn an_order_that_could_not_leave_before_its_deadline_is_not_sent() {
    let late = |deadline_ns| {
        Ladder::new(Fake::default(), Mode::Enforce, || 1_000).with_deadlines(vec![deadline_ns])
    };
    let mut order = order();
    (order.rung, order.at_ns) = (0, 400);
    let mut ladder = late(600);
    let sent = ladder.carry_out(order.clone()).await;
    assert!(
        matches!(sent.answer.result, OrderResult::Unsent(_)),
        "{sent:?}"
    );
    assert!(ladder.initiator().sent.is_empty());
    let mut ladder = late(601);
    ladder.carry_out(order).await;
    assert_eq!(ladder.initiator().sent, [(0, 42)]);
}

#[tokio::test]
async fn observe_and_dry_run_write_the_command_and_send_nothing() {
    for mode in [Mode::Observe, Mode::DryRun] {
        let mut ladder = Ladder::new(Fake::default(), mode, ticking);
        let sent = ladder.carry_out(order()).await;
        assert_eq!(sent.report().result, OrderResult::NotSent);
        assert_eq!(sent.command, "end 42 by 0");
        assert!(ladder.initiator().sent.is_empty());
    }
}

#[tokio::test]
async fn without_a_way_in_every_order_is_refused_with_the_reason() {
    let mut ladder = Ladder::new(
        AnyInitiator::None("no socket was given".into()),
        Mode::Enforce,
        ticking,
    );
    let sent = ladder.carry_out(order()).await;
    assert_eq!(sent.answer, Answer::refused("no socket was given"));
}

/// A directory for programs that only this user can write.
fn programs() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn script(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("end-task");
    // Written by another process: a test beside this one that starts a program at that moment would inherit our descriptor,
    // and a file that is open for writing cannot be run.
    let write = "printf '%s\\n' '#!/bin/sh' \"$1\" > \"$2\" && chmod 700 \"$2\"";
    let written = std::process::Command::new("sh")
        .args(["-c", write, "sh", text])
        .arg(&path)
        .status();
    assert!(written.unwrap().success());
    path
}

async fn outcome(text: &str) -> Answer {
    let directory = programs();
    let rung = ExecRung::new(
        script(directory.path(), text),
        vec!["{id}".into(), "{thread}".into(), "{request}".into()],
        PATIENCE,
    );
    Exec::new(vec![rung.unwrap()]).send(0, &task(42)).await
}

#[tokio::test]
async fn a_program_says_by_its_exit_code_what_came_of_the_order() {
    assert_eq!(outcome("exit 0").await, Answer::accepted());
    assert_eq!(
        outcome("echo gone >&2; exit 3").await,
        Answer::missed("gone")
    );
    let refused = outcome("echo no right >&2; exit 1").await;
    assert!(refused.detail.contains("no right"), "{refused:?}");
    assert!(matches!(refused.result, OrderResult::Refused(_)));
    let shot = outcome("kill -9 $$").await;
    assert!(matches!(shot.result, OrderResult::Unknown(_)), "{shot:?}");
}

#[test]
fn what_a_program_is_given_is_shown_with_the_tasks_numbers() {
    let argv = ["/usr/bin/end-task", "{id}", "--thread", "{thread}"].map(str::to_owned);
    assert_eq!(
        exec::command_line(&argv, &task(42)),
        "/usr/bin/end-task 42 --thread 4711"
    );
}

#[tokio::test]
async fn a_program_gets_the_task_as_arguments_and_an_empty_environment() {
    let answer = outcome(
        r#"[ "$1 $2 $3" = "42 4711 99123" ] && [ -z "$HOME$CARGO" ] || { env >&2; exit 1; }"#,
    )
    .await;
    assert_eq!(answer, Answer::accepted());
}

#[tokio::test]
async fn arguments_are_never_given_to_a_shell() {
    let directory = programs();
    let path = script(directory.path(), "[ \"$1\" = '; exit 9; $(id)' ]");
    let rung = ExecRung::new(
        &path,
        vec!["; exit 9; $(id)".into(), "{id}".into()],
        PATIENCE,
    )
    .unwrap();
    let mut exec = Exec::new(vec![rung]);
    assert_eq!(
        exec.describe(0, &task(42)),
        format!("{} ; exit 9; $(id) 42", path.display())
    );
    assert_eq!(exec.send(0, &task(42)).await, Answer::accepted());
    assert!(
        ExecRung::new(&path, vec!["--id={id}".into()], PATIENCE)
            .unwrap_err()
            .contains("argument of their own")
    );
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_and_nobody_knows_what_came_of_it() {
    let directory = programs();
    // It stops itself, so that its command line goes on to name it.
    let path = script(directory.path(), "kill -STOP $$");
    let rung = ExecRung::new(&path, vec![], Duration::from_secs(1)).unwrap();
    let mut exec = Exec::new(vec![rung]);
    let answer = tokio::time::timeout(PATIENCE, exec.send(0, &task(42))).await;
    let answer = answer.expect("a program that hangs is given up");
    assert!(
        answer.detail.contains("no answer within 1000 ms"),
        "{answer:?}"
    );
    assert!(
        matches!(answer.result, OrderResult::Unknown(_)),
        "{answer:?}"
    );
    wait_for("the program to be gone", || (!runs(&path)).then_some(()));
}

/// Whether a process has this file in its command line.
fn runs(program: &Path) -> bool {
    let program = program.display().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok())
        .any(|words| words.contains(&program))
}

#[tokio::test]
async fn a_program_that_others_could_change_is_not_run_neither_at_the_start_nor_later() {
    let directory = programs();
    let path = script(directory.path(), "exit 0");
    let rung = ExecRung::new(&path, vec![], PATIENCE).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o722)).unwrap();
    assert!(
        ExecRung::new(&path, vec![], PATIENCE)
            .unwrap_err()
            .contains("written by others")
    );
    let mut exec = Exec::new(vec![rung]);
    assert!(matches!(
        exec.send(0, &task(42)).await.result,
        OrderResult::Refused(_)
    ));
    assert!(exec.check_permission().await.is_err());

    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(
        ExecRung::new(&path, vec![], PATIENCE).is_err(),
        "its directory could be used to exchange it"
    );
    assert!(
        ExecRung::new("end-task", vec![], PATIENCE)
            .unwrap_err()
            .contains("absolute path")
    );
    assert!(
        ExecRung::new("/nonexistent/end-task", vec![], PATIENCE)
            .unwrap_err()
            .contains("cannot use")
    );
}
