//! The demo as a user runs it, on a real server: what it measures, and that nothing of it is left.
#![allow(
    clippy::disallowed_methods,
    reason = "a deadline for a process is measured by the clock"
)]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a demo may take that is about to end, on a machine with other work.
const PATIENCE: Duration = Duration::from_mins(5);

/// Starts the demo with its temporary files in a folder of the test's own.
struct Demo {
    child: Child,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Demo {
    /// At MariaDB; nothing where there is none.
    fn start(arguments: &[&str]) -> Option<Self> {
        if !["/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd"]
            .iter()
            .any(|file| Path::new(file).exists())
        {
            eprintln!("SKIPPED: there is no mariadbd here");
            return None;
        }
        Some(Self::start_anywhere(arguments))
    }

    /// At PostgreSQL; nothing where there is none.
    fn start_at_postgresql(arguments: &[&str]) -> Option<Self> {
        if !Path::new("/usr/lib/postgresql").exists() {
            eprintln!("SKIPPED: there is no PostgreSQL here");
            return None;
        }
        let arguments: Vec<&str> = ["postgresql"].iter().chain(arguments).copied().collect();
        Some(Self::start_anywhere(&arguments))
    }

    fn start_anywhere(arguments: &[&str]) -> Self {
        let folder = nix::unistd::mkdtemp(&std::env::temp_dir().join("demo-test-XXXXXX")).unwrap();
        // Root's PostgreSQL runs as somebody else, who must get through.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o711)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["demo", "--without-atropos"])
            .args(arguments)
            .env("TMPDIR", &folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            output,
            folder,
        }
    }

    /// Reads what it says up to a line that contains `text`, and gives that line.
    fn read_until(&mut self, text: &str) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if line.contains(text) {
                return line;
            }
            line.clear();
        }
        panic!("the demo ended without saying {text:?}");
    }

    fn wait(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(Instant::now() < deadline, "the demo does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Processes that have our folder in their command line.
    fn processes(&self) -> Vec<String> {
        let ours = self.folder.display().to_string();
        fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok())
            .filter(|words| words.contains(&ours))
            .collect()
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
        let files: Vec<_> = fs::read_dir(&self.folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        assert_eq!(files, Vec::<PathBuf>::new());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // In order, so that a failed test leaves no server either.
        let pid = Pid::from_raw(self.child.id().cast_signed());
        if matches!(self.child.try_wait(), Ok(None)) && kill(pid, Signal::SIGTERM).is_ok() {
            let _ = self.child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn an_interrupted_demo_leaves_no_process_and_no_file() {
    let Some(mut demo) = Demo::start(&["--case", "c1"]) else {
        return;
    };
    demo.read_until("   warming up");
    assert!(
        !demo.processes().is_empty(),
        "there is a server while it plays"
    );
    kill(Pid::from_raw(demo.child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert!(!demo.wait(), "an interrupted demo does not succeed");
    demo.assert_nothing_is_left();
}

#[test]
fn without_atropos_a_forgotten_transaction_stalls_its_table_until_it_is_remembered() {
    let file = Results::new("mariadb");
    let Some(mut demo) = Demo::start(&["--case", "m01", "--json", &file.name()]) else {
        return;
    };
    demo.read_until("case m01\n");
    assert!(demo.wait());
    demo.assert_nothing_is_left();
    assert_stalled_until_remembered(&file.read());
}

#[test]
fn the_same_shape_is_played_at_the_sample_server_which_ends_with_the_demo() {
    let file = Results::new("sample");
    let mut demo = Demo::start_anywhere(&[
        "--server",
        "sample",
        "--case",
        "m01",
        "--json",
        &file.name(),
    ]);
    let line = demo.read_until("a private sample server serves on");
    let pid = line.trim().rsplit(' ').next().unwrap();
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(command.trim(), "atropos-sample");
    demo.read_until("case s-m01\n");
    assert!(demo.wait());
    demo.assert_nothing_is_left();
    let server = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    assert_ne!(server.trim(), "atropos-sample", "the server is still there");
    let report = file.read();
    assert_eq!(report["cases"][0]["id"], "s-m01");
    assert_stalled_until_remembered(&report);
}

#[test]
fn at_postgresql_a_session_idle_in_its_transaction_stalls_its_table_in_the_same_way() {
    let file = Results::new("postgresql");
    let Some(mut demo) = Demo::start_at_postgresql(&["--case", "idle", "--json", &file.name()])
    else {
        return;
    };
    demo.read_until("case idle\n");
    assert!(demo.wait());
    demo.assert_nothing_is_left();
    assert_stalled_until_remembered(&file.read());
}

#[test]
fn an_interrupted_demo_at_postgresql_leaves_no_process_and_no_file() {
    let Some(mut demo) = Demo::start_at_postgresql(&["--case", "c6"]) else {
        return;
    };
    demo.read_until("UPDATE of every row");
    let children = demo.processes();
    assert!(!children.is_empty(), "there is a server while it plays");
    kill(Pid::from_raw(demo.child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert!(!demo.wait(), "an interrupted demo does not succeed");
    demo.assert_nothing_is_left();
}

#[test]
fn a_case_of_another_server_is_refused_with_those_of_this_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["demo", "sample", "--without-atropos", "--case", "c6"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("case c6 is not played at Sample; there are: c1, m01"),
        "{text}"
    );
}

/// The file that a demo writes for programs.
struct Results(PathBuf);

impl Results {
    fn new(of: &str) -> Self {
        let name = format!("demo-test-{of}-{}.json", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn read(&self) -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(&self.0).unwrap()).unwrap()
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A run of the forgotten transaction without Atropos: a full stall, and nobody hurt by anybody.
fn assert_stalled_until_remembered(report: &serde_json::Value) {
    assert_eq!(report["schema_version"], 1);
    let case = &report["cases"][0];
    assert_eq!(case["target_expected"], "forgotten");
    assert!(case["target_chosen"].is_null());
    assert_eq!(case["wrong_cancels"], 0);
    assert!(case["stall_ms"].as_f64().unwrap() > 8_000.0, "{case:#}");
    let p99_ms = |phase: &str| case[phase]["p99_ms"].as_f64().unwrap();
    assert!(p99_ms("during") > 8_000.0, "{case:#}");
    assert!(p99_ms("before") < 2_000.0, "{case:#}");
    assert_eq!(case["during"]["errors"], 0);
}
