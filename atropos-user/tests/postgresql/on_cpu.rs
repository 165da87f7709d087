//! Backends that want more processor time than there is: it is said, with who uses most, and nobody is ended for it.

use std::process::Command;
use std::time::Duration;

use crate::common::clock_ns;
use crate::crowd::attach_with;
use crate::scene::{server, starts};

/// Works until it is stopped, and waits for nothing.
const WORK: &str =
    "do $$ begin loop perform count(*) from generate_series(1, 20000); end loop; end $$";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_that_share_one_processor_are_told_of_and_left_alone() {
    let Some(server) = server().await else { return };
    // Backends inherit it: all of them together have one processor.
    let bound = Command::new("taskset")
        .args(["-p", "-c", "0", &server.pid.to_string()])
        .output();
    if !bound.is_ok_and(|done| done.status.success()) {
        crate::common::skip("taskset is not installed (apt-get install util-linux)");
        return;
    }
    let mut agent = attach_with(&server, "left_alone_one_processor", "p99=20ms");
    let mut working = Vec::new();
    for _ in 0..5 {
        working.push(starts(&server, WORK).await);
    }
    let said = agent.wait_for("a hand-off", |line| {
        line["effect"]["overload"]["state"] == "regular"
    });
    let reason = said["effect"]["overload"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("were lost to processor in this window"),
        "{reason}"
    );
    let (_, named) = reason.split_once("; session ").expect(reason);
    let (id, _) = named.split_once(" used most of processor").expect(reason);
    let id: u64 = id.parse().unwrap();
    assert!(working.iter().any(|(pid, _)| *pid == id), "{reason}");
    // Time in which somebody could be ended; nothing is waited for.
    let begun_ns = clock_ns();
    while clock_ns() - begun_ns < 3_000_000_000 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    }
    let (admin, _) = server.connect().await;
    for (pid, running) in working {
        assert!(!running.is_finished());
        admin
            .batch_execute(&format!("select pg_cancel_backend({pid})"))
            .await
            .unwrap();
        assert!(running.await.unwrap().is_err());
    }
    assert!(agent.stop().success());
}
