//! `atropos simulate` as a person calls it: its text, its files, its exit codes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;

use assert_cmd::Command;
use tempfile::TempDir;

/// A server of a tenth of the usual size: one request holds for two seconds what all others need.
const SCENARIO: &str = "
name = 'hog'
about = 'One holds what all need.'
family = 'hard'
duration = '5s'
from = '2s'
slo = '50ms'
cores = 2
answer = { culprits = ['hog'], action = 'STMT' }
locks = [{ name = 'table' }]

[[classes]]
name = 'small'
steps = [{ lock = { of = 'table', shared = true } }, { cpu = '~2ms' }]

[[classes]]
name = 'hog'
steps = [{ lock = { of = 'table' } }, { sleep = '2s' }]

[[clients]]
class = 'small'
send = { poisson = 100.0 }

[[clients]]
class = 'hog'
send = { at = ['2s'] }
injected = true
";

fn simulate() -> Command {
    let mut command = Command::cargo_bin("atropos").unwrap();
    command.arg("simulate");
    command
}

#[test]
fn a_scenario_of_ones_own_becomes_a_table_json_and_a_picture() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("hog.toml"), SCENARIO).unwrap();
    let done = simulate()
        .arg(at("hog.toml"))
        .args(["--controllers", "none,atropos", "--seeds", "3"])
        .arg("--json")
        .arg(at("out.json"))
        .arg("--svg")
        .arg(at("out.svg"))
        .assert()
        .success();
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    let head = text
        .lines()
        .find(|line| line.starts_with("controller"))
        .unwrap();
    for column in [
        "throughput",
        "p99",
        "drops innocent",
        "drops culprits",
        "wrong",
        "recovery s",
        "wasted",
    ] {
        assert!(head.contains(column), "{column} in {head}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(at("out.json")).unwrap()).unwrap();
    let recovery = |line: usize| json[line]["recovery_s"]["mean"].as_f64().unwrap();
    assert_eq!(json[1]["controller"], "atropos");
    assert!(recovery(0) > 1.5 && recovery(1) < 0.7, "{json}");
    assert!(json[1]["culprit_drops"]["mean"].as_f64().unwrap() > 0.99);
    let svg = fs::read_to_string(at("out.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<title>").count() == 2);
}

#[test]
fn the_same_command_says_the_same_twice() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("hog.toml");
    fs::write(&file, SCENARIO).unwrap();
    let say = || {
        let done = simulate()
            .arg(&file)
            .args([
                "--controllers",
                "atropos,paper",
                "--seeds",
                "2",
                "--jobs",
                "2",
            ])
            .assert()
            .success();
        done.get_output().stdout.clone()
    };
    assert_eq!(say(), say());
}

#[test]
fn why_the_engine_decided_is_told() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("hog.toml");
    fs::write(&file, SCENARIO).unwrap();
    let done = simulate()
        .arg(&file)
        .args(["--controllers", "atropos", "--explain"])
        .assert()
        .success();
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    assert!(
        text.contains("decision:") && text.contains("outcome:"),
        "{text}"
    );
}

#[test]
fn scenarios_and_controllers_are_listed() {
    let done = simulate().arg("--list").assert().success();
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    for name in [
        "c01-backup-lock",
        "n09-costly-undo",
        "atropos",
        "oracle",
        "tidb-runaway",
    ] {
        assert!(text.contains(name), "{name}");
    }
}

#[test]
fn what_is_wrong_has_the_exit_code_that_is_documented() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("hog.toml");
    fs::write(
        &file,
        SCENARIO.replace("'table', shared", "'tabel', shared"),
    )
    .unwrap();
    let fails = |arguments: &[&str], code: i32, says: &str| {
        let done = simulate().args(arguments).assert().code(code);
        let text = String::from_utf8(done.get_output().stderr.clone()).unwrap();
        assert!(text.contains(says), "{arguments:?}: {text}");
    };
    fails(&[], 2, "SCENARIO");
    fails(&["c01", "--controllers", "nobody"], 2, "nobody");
    fails(&["c01", "--seeds", "0"], 2, "seeds");
    fails(&["--study", "nothing"], 2, "retries");
    fails(&["no-such-scenario"], 5, "--list");
    fails(&[file.to_str().unwrap()], 5, "no locks are called `tabel`");
    fails(
        &[
            "n05",
            "--seeds",
            "1",
            "--controllers",
            "none",
            "--json",
            "/no/such/folder/f",
        ],
        1,
        "cannot write /no/such/folder/f",
    );
}
