//! What must never happen: a changed answer, a probe left behind, an order that may not be, a half attached agent.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

use aya::programs::loaded_programs;
use mysql_async::prelude::Queryable as _;
use nix::sys::signal::Signal;

use crate::agent::{Agent, atropos};
use crate::common::crowd::Crowd;
use crate::common::mariadb::MariaDb;
use crate::common::{eventually, wait_for};
use crate::scene::{Person, server, waiting};

const READ: &str = "select v from w.t where id = 7";
const SCAN: &str =
    "select sum(crc32(concat(a.id, a.v, b.id))) from w.big a join w.big b on b.id = a.id";

/// Ids of the programs that a process holds, as the kernel tells of its descriptors: others on the machine do not count.
fn programs_held_by(pid: u32) -> BTreeSet<u32> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten();
    descriptors
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok())
        .filter_map(|text| {
            let id = text
                .lines()
                .find_map(|line| line.strip_prefix("prog_id:"))?;
            id.trim().parse().ok()
        })
        .collect()
}

/// Whether the kernel still has one of these programs.
fn any_is_loaded(ids: &BTreeSet<u32>) -> bool {
    loaded_programs()
        .filter_map(Result::ok)
        .any(|program| ids.contains(&program.id()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_leaves_no_probe_and_the_server_goes_on() {
    let Some(server) = server().await else { return };
    let crowd = Crowd::gather(&server, READ, 4).await;
    for _ in 0..50 {
        let mut agent = Agent::attach(&server, &["--slo", "p99=20ms"]);
        let held = programs_held_by(agent.pid());
        assert!(any_is_loaded(&held), "the agent is attached");
        agent.kill();
        eventually("the kernel to drop the programs", async || {
            (!any_is_loaded(&held)).then_some(())
        })
        .await;
        crowd.gets_on().await;
    }
    assert_eq!(crowd.disperse().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_under_full_probing_equal_those_without() {
    let Some(server) = server().await else { return };
    let mut conn = server.connect().await;
    let plain: Option<f64> = conn.query_first(SCAN).await.unwrap();
    let pid = server.pid.to_string();
    let mut probing = atropos()
        .args(["check", "--seconds", "5", "--pid", &pid])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let held = || programs_held_by(probing.id());
    eventually("the probes", async || (!held().is_empty()).then_some(())).await;
    let mut compared = 0;
    while probing.try_wait().unwrap().is_none() {
        let probed: Option<f64> = conn.query_first(SCAN).await.unwrap();
        assert_eq!(probed, plain);
        compared += 1;
    }
    assert!(
        compared > 0,
        "at least one scan ran while probes were attached"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_protected_user_is_left_alone_and_the_next_is_taken() {
    let Some(server) = server().await else { return };
    let mut agent = Agent::attach(
        &server,
        &["--slo", "p99=20ms", "--enforce", "--protect-user", "root"],
    );
    let mut forgotten = Person::new(&server).await;
    forgotten.forgets_a_transaction(&server).await;
    let alter = Person::new(&server).await.starts("alter table w.t force");
    waiting(&server, 1).await;
    let crowd = Crowd::gather(&server, READ, 4).await;
    let decision = agent.decision(|d| d["candidates"][0].is_object());
    assert_eq!(
        decision["orders"].as_array().unwrap().len(),
        0,
        "{decision:#}"
    );
    assert_eq!(
        decision["candidates"][0]["passed_over"], "protected_principal",
        "{decision:#}"
    );
    assert!(forgotten.is_alive().await);
    forgotten.does("commit").await;
    alter.await.unwrap().unwrap();
    assert_eq!(crowd.disperse().await, 0);
    agent.answers();
    assert!(agent.sent().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_small_writers_that_queue_for_one_row_are_no_reason_to_cancel() {
    let Some(server) = server().await else { return };
    let mut agent = Agent::attach(&server, &["--slo", "p99=1ms", "--enforce"]);
    let crowd = Crowd::gather(&server, "update w.t set v = v + 1 where id = 1", 16).await;
    let enough = crowd.done() + 2000;
    eventually("two thousand updates", async || {
        (crowd.done() > enough).then_some(())
    })
    .await;
    assert_eq!(crowd.disperse().await, 0);
    agent.answers();
    assert!(agent.sent().is_empty(), "nobody is to blame");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_ends_the_run_with_its_own_code() {
    let Some(mut server) = server().await else {
        return;
    };
    let agent = Agent::attach(&server, &[]);
    server.crash();
    assert_eq!(agent.end().code(), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_a_clear_error_with_its_own_code_and_attaches_nothing() {
    let Some(server) = server().await else { return };
    server
        .run(&["create user poor identified by 'geheim'"])
        .await;
    let pid = server.pid.to_string();
    let socket = server.socket.display().to_string();
    let own = std::process::id().to_string();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--pid", "4194304"], 3, "no process"),
        (&["--pid", &own], 5, "no preset knows"),
        (
            &["--pid", &own, "--preset", "mariadb"],
            1,
            "is not what the preset",
        ),
        (&["--pid", &pid, "--preset", "mariadbx"], 5, "mariadb"),
        (
            &[
                "--pid",
                &pid,
                "--socket",
                &socket,
                "--user",
                "nobody",
                "--enforce",
            ],
            6,
            "Access denied",
        ),
        (&["--pid", &pid, "--slo", "fast"], 2, "--slo fast"),
    ];
    for (arguments, code, says) in cases {
        let output = run(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?}: {text}");
        assert_nothing_was_attached(&output);
    }
    // A user without rights is refused before anything is attached, and the password is not shown.
    let poor = ["--user", "poor", "--enforce"];
    let output = run(&[&["--pid", &pid, "--socket", &socket][..], &poor].concat())
        .env("ATROPOS_PASSWORD", "geheim")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains("GRANT") && !text.contains("geheim"), "{text}");
    assert_nothing_was_attached(&output);
}

/// `atropos run`, whose every event can be read.
fn run(arguments: &[&str]) -> Command {
    let mut command = atropos();
    command.args(["run", "--json"]).args(arguments);
    command
}

/// What it says of its events, and it says when it has attached.
fn assert_nothing_was_attached(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains(r#""event":"attached""#), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_privileges_the_error_names_what_is_missing() {
    let Some(server) = server().await else { return };
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
            "--inh-caps=-all",
        ])
        .arg(env!("CARGO_BIN_EXE_atropos"))
        .args(["run", "--pid", &server.pid.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("CAP_SYS_PTRACE"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_is_followed_when_it_was_named_by_its_program() {
    let Some(first) = server().await else { return };
    // A program of our own name, so that no other server on this machine is meant.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("mariadbd");
    drop(first);
    crate::common::copy_program(&crate::common::mariadb::program().unwrap(), &program);
    let Some(mut server) = MariaDb::start_program(&program) else {
        return;
    };
    let exe = program.display().to_string();
    let recording = folder.path().join("rec").display().to_string();
    let mut agent = Agent::start(&["--exe", &exe, "--record", &recording]);
    let attached = agent.wait_for("attached", |line| line["event"] == "attached");
    assert_eq!(attached["pid"], server.pid);
    server.crash();
    agent.wait_for("stopped", |line| line["event"] == "stopped");
    server.restart();
    let again = server.pid;
    agent.wait_for("the successor", |line| {
        line["event"] == "attached" && line["pid"] == again
    });
    assert!(agent.stop().success());
    for recording in [recording.clone(), format!("{recording}.2")] {
        let replayed = atropos().args(["replay", &recording]).output().unwrap();
        assert!(replayed.status.success(), "{recording}: {replayed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_heard_while_the_server_does_not_answer_yet() {
    let Some(server) = server().await else { return };
    let signal = |pid: u32, signal| {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).unwrap();
    };
    signal(server.pid, Signal::SIGSTOP);
    let (pid, socket) = (server.pid.to_string(), server.socket.display().to_string());
    let agent = run(&["--pid", &pid, "--socket", &socket, "--enforce"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the agent to listen", || {
        hears(agent.id(), Signal::SIGTERM).then_some(())
    });
    signal(agent.id(), Signal::SIGTERM);
    let output = agent.wait_with_output().unwrap();
    signal(server.pid, Signal::SIGCONT);
    assert!(output.status.success(), "{output:?}");
    assert_nothing_was_attached(&output);
}

/// Whether a process handles a signal itself.
fn hears(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught & (1 << (signal as u32 - 1)) != 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_says_what_is_seen_and_whether_tasks_may_be_ended() {
    let Some(server) = server().await else { return };
    server
        .run(&[
            "create user weak@localhost",
            "grant process on *.* to weak@localhost",
        ])
        .await;
    let (pid, socket) = (server.pid.to_string(), server.socket.display().to_string());
    let check = |arguments: &[&str]| {
        atropos()
            .args(["check", "--seconds", "1", "--try-cancel"])
            .args(["--pid", &pid, "--socket", &socket])
            .args(arguments)
            .output()
            .unwrap()
    };
    let allowed = check(&["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&allowed.stdout).unwrap();
    assert_eq!(allowed.status.code(), Some(0), "{report:#}");
    assert_eq!(report["resources"][0]["sight"], "seen");
    assert_eq!(report["initiator"]["initiator"], "mysql");
    let text = String::from_utf8(check(&[]).stdout).unwrap();
    assert!(
        text.contains("KILL CONNECTION (tried on an own idle session: allowed)"),
        "{text}"
    );
    assert!(text.contains("metadata_lock    seen; "), "{text}");
    let refused = check(&["--user", "weak"]);
    let text = String::from_utf8(refused.stdout).unwrap();
    assert_eq!(refused.status.code(), Some(6), "{text}");
    assert!(
        text.contains("CONNECTION ADMIN"),
        "the grant that is missing: {text}"
    );
}
