//! What becomes of orders that are under way when a run ends.

#![allow(
    clippy::unwrap_used,
    reason = "in a test an unmet expectation is a failure"
)]

mod common;
mod samples;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use atropos::agent::carrier::Carrier;
use atropos::cancel::{AnyInitiator, Exec, ExecRung, Ladder, SentOrder};
use atropos::engine::input::OrderResult;
use atropos::engine::settings::Mode;
use common::{PATIENCE, clock_ns, eventually};

/// A carrier whose orders are carried out by this shell script, and two orders handed over to it.
fn carrier(folder: &Path, script: &str) -> Carrier {
    let program = folder.join("end-task");
    // Written by another process: a test beside this one that starts a program at that moment would inherit our descriptor,
    // and a file that is open for writing cannot be run.
    let write = "printf '%s\\n' '#!/bin/sh' \"cd $1\" \"$2\" > \"$1/end-task\"";
    let written = std::process::Command::new("sh")
        .args(["-c", write, "sh"])
        .arg(folder)
        .arg(script)
        .status();
    assert!(written.unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let rung = ExecRung::new(program, vec![], PATIENCE).unwrap();
    let exec = AnyInitiator::Exec(Box::new(Exec::new(vec![rung])));
    let mut carrier = Carrier::start(Ladder::new(exec, Mode::Enforce, clock_ns));
    for number in [1, 2] {
        let mut order = samples::order();
        (order.order, order.rung) = (number, 0);
        assert!(carrier.hand_over(order, "end-task".to_owned()));
    }
    carrier
}

async fn begun(folder: &Path) {
    let begun = folder.join("begun");
    eventually("the first order to leave", async || {
        begun.exists().then_some(())
    })
    .await;
}

fn numbers(ended: &[SentOrder]) -> Vec<u64> {
    ended.iter().map(|sent| sent.order.order).collect()
}

#[tokio::test]
async fn what_has_left_is_waited_for_and_what_waits_does_not_leave() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo >> begun; while [ ! -e go ]; do sleep 0.01; done";
    let carrier = carrier(folder.path(), script);
    begun(folder.path()).await;
    let (ended, ()) = tokio::join!(carrier.finish(), async {
        fs::write(folder.path().join("go"), "").unwrap();
    });
    assert_eq!(numbers(&ended), [1, 2]);
    assert_eq!(ended[0].answer.result, OrderResult::Accepted);
    assert!(matches!(ended[1].answer.result, OrderResult::Unsent(_)));
    let begun = fs::read_to_string(folder.path().join("begun")).unwrap();
    assert_eq!(begun.lines().count(), 1);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_not_waited_for_and_the_order_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let carrier = carrier(folder.path(), "echo >> begun; kill -STOP $$");
    begun(folder.path()).await;
    let ended = tokio::time::timeout(PATIENCE / 2, carrier.finish()).await;
    let ended = ended.expect("the initiator's own limit is longer");
    assert_eq!(numbers(&ended), [1, 2]);
    assert!(matches!(ended[0].answer.result, OrderResult::Unknown(_)));
    assert!(matches!(ended[1].answer.result, OrderResult::Unsent(_)));
}
