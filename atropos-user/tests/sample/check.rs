//! `atropos check` at the sample server: what it says of probes, resources and rights, and with which code it ends.
//! Needs root and the kernel half.

use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use usdt_probes::server::Server;

use crate::agent::{Agent, atropos};
use crate::common::wait_for;
use crate::run::{gets_on, with_crowd};
use crate::scene::person;

/// The beginning of a preset of one's own.
const EXTENDS: &str = "schema = 1\nname = \"mine\"\nextends = \"sample\"\n";

fn check(server: &Server, arguments: &[&str]) -> Output {
    let pid = server.pid().to_string();
    let mut command: Command = atropos();
    command.args(["check", "--pid", &pid]).args(arguments);
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// A check of a server that people use.
fn check_in_use(server: &Server, arguments: &[&str]) -> Output {
    let mut checked = None;
    let errors = with_crowd(server, |done| {
        gets_on(done);
        checked = Some(check(server, arguments));
    });
    assert_eq!(errors, 0);
    checked.unwrap()
}

fn probe<'a>(report: &'a Value, name: &str) -> &'a Value {
    let probes = report["probes"].as_array().unwrap();
    probes.iter().find(|probe| probe["name"] == name).unwrap()
}

#[test]
fn what_is_seen_is_said_with_places_costs_and_rates_and_the_code_is_zero() {
    let server = crate::program::start();
    // On a busy machine a second is too short at times for the thread that measures what a passing costs.
    let report = wait_for("a check with costs that were measured", || {
        let output = check_in_use(&server, &["--seconds", "1", "--try-cancel", "--json"]);
        let report = json(&output);
        assert_eq!(output.status.code(), Some(0), "{report:#}");
        (report["costs"]["calibrated"] == true).then_some(report)
    });
    let begin = probe(&report, "request_begin");
    assert!(
        begin["fired"]["per_s"].as_f64().unwrap() > 10.0,
        "{begin:#}"
    );
    assert!(
        begin["fired"]["silent_s"].as_f64().unwrap() < 1.0,
        "{begin:#}"
    );
    assert!(
        begin["fired"]["cost_ns"].as_f64().unwrap() > 50.0,
        "{begin:#}"
    );
    assert!(begin["fired"]["share"].as_f64().unwrap() > 0.0, "{begin:#}");
    assert_eq!(begin["place"]["Ok"]["cost"], "cheap", "{begin:#}");
    let killed = probe(&report, "killed");
    assert_eq!(killed["hits"], 0);
    assert!(
        killed["fired"]["silent_s"].as_f64().unwrap() >= 0.9,
        "{killed:#}"
    );
    assert!(
        report["costs"]["took_ms"].as_f64().unwrap() > 0.0,
        "{report:#}"
    );
    assert_eq!(report["lost_count"], 0);
    assert_eq!(report["resources"][0]["sight"], "seen");
    assert_eq!(report["initiator"]["permission"]["Ok"], Value::Null);
    assert!(report["initiator"]["permission"].is_object(), "tried");
}

#[test]
fn the_text_says_the_same_in_words() {
    let server = crate::program::start();
    let measured = "a passing costs (measured here in ";
    let text = wait_for("a check with costs that were measured", || {
        let output = check_in_use(&server, &["--seconds", "1", "--try-cancel"]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.contains(measured).then_some(text)
    });
    for words in [
        "passings a second at ",
        "silent for ",
        "budget: 0.5 % of the target's CPU time in calm, 30 % when suspect",
        "table_lock       seen; nobody waits at this moment",
        "cancel the statement > end the session (tried with signal 0: allowed)",
    ] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
}

#[test]
fn a_probe_without_a_place_leaves_its_resource_partly_blind_and_a_wrong_number_blind() {
    let server = crate::program::start();
    let _somebody = person(&server, "web");
    let folder = tempfile::tempdir().unwrap();
    let with = |name: &str, change: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{EXTENDS}{change}")).unwrap();
        let path = path.display().to_string();
        let output = check(&server, &["--seconds", "0", "--json", "--preset", &path]);
        assert_eq!(output.status.code(), Some(8));
        json(&output)
    };
    let missing = with(
        "missing.toml",
        "[[probe]]\nname = \"lock_woken\"\nat = [{ symbol = \"sample_lock_waken\" }]\n",
    );
    assert_eq!(
        missing["resources"][0]["sight"], "partly_blind",
        "{missing:#}"
    );
    assert_eq!(
        missing["resources"][0]["reasons"][0],
        "probe lock_woken has no place"
    );
    let tried = probe(&missing, "lock_woken")["place"]["Err"][0]
        .as_str()
        .unwrap();
    assert!(
        tried.contains("sample_lock_woken"),
        "the closest name: {tried}"
    );
    let wrong = with("wrong.toml", "[layout]\nsession_seal = 0x18\n");
    assert_eq!(wrong["resources"][0]["sight"], "blind", "{wrong:#}");
    assert!(
        !wrong["resources"][0]["reasons"][0]
            .as_str()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn probes_that_cost_more_than_a_tiny_budget_are_said_to_be_sampled() {
    let server = crate::program::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.toml");
    let tiny = "[budget]\nsuspect = \"0.01%\"\n";
    std::fs::write(&path, format!("{EXTENDS}{tiny}")).unwrap();
    let path = path.display().to_string();
    let output = check_in_use(&server, &["--seconds", "1", "--json", "--preset", &path]);
    let report = json(&output);
    let begin = probe(&report, "request_begin");
    assert_ne!(begin["suspect"], "whole", "{begin:#}");
    assert!(
        begin["fired"]["attached_s"].as_f64().unwrap() < 0.8,
        "{begin:#}"
    );
    assert_eq!(
        report["resources"][0]["sight"], "seen",
        "no resource depends on requests: {report:#}"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn who_asks_by_a_signal_has_the_server_watched_closely_until_asked_again() {
    let server = crate::program::start();
    let pid = server.pid().to_string();
    let mut agent = Agent::start(&["--pid", &pid, "--slo", "p99=10s"]);
    agent.wait_for("attached", |line| line["event"] == "attached");
    agent.wait_for("what a probe costs", |line| line["event"] == "costs");
    let pid = Pid::from_raw(i32::try_from(agent.pid()).unwrap());
    let asked = |level: &'static str| {
        move |line: &Value| line["event"] == "operator" && line["level"] == level
    };
    kill(pid, Signal::SIGUSR1).unwrap();
    agent.wait_for("suspect", asked("suspect"));
    kill(pid, Signal::SIGUSR1).unwrap();
    agent.wait_for("calm", asked("calm"));
    assert!(agent.stop().success());
}
