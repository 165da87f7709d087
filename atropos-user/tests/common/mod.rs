//! What several integration tests need: saying that a test is skipped, C fixtures, and waiting with a deadline.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::print_stderr,
    reason = "each test binary uses its own part; a skip must be seen"
)]

pub mod crowd;
pub mod mariadb;
pub mod orders;
pub mod postgresql;
mod wait;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use atropos::agent::resolve::Resolved;
use atropos::config::Preset;
use atropos::target::Process;
pub use wait::{Deadline, PATIENCE, eventually, wait_for};

/// Says that a test cannot run here. On the project's CI (`CI=true`) that is a failure.
#[track_caller]
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "on CI nothing may be skipped: {reason}"
    );
    eprintln!("SKIPPED: {reason}");
}

/// Compiles one C file with `cc` and the given flags.
#[track_caller]
pub fn compile(source: &str, to: &Path, flags: &[&str]) -> PathBuf {
    let source_path = to.with_extension("c");
    std::fs::write(&source_path, source).unwrap();
    let done = Command::new("cc")
        .arg("-o")
        .arg(to)
        .arg(&source_path)
        .args(flags)
        .output()
        .expect("a C compiler `cc`");
    assert!(
        done.status.success(),
        "cc {flags:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    to.to_owned()
}

/// Copies a program, by another process: a test beside this one that starts a program at that moment would inherit our
/// descriptor, and a file that is open for writing cannot be run.
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("--").args([from, to]).status();
    assert!(
        done.unwrap().success(),
        "cp {} {}",
        from.display(),
        to.display()
    );
}

/// A preset meets a process.
#[track_caller]
pub fn resolve(pid: u32, preset: Preset) -> Resolved {
    Resolved::new(Process::open(pid).unwrap(), preset).unwrap_or_else(|error| panic!("{error:#}"))
}

/// A started program that is killed and reaped when the test is over, however it ends.
pub struct Started(pub Child);

impl Started {
    /// Starts `program`, its output captured.
    #[track_caller]
    pub fn new(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for one line of its output.
    #[track_caller]
    pub fn line(&mut self) -> String {
        use std::io::{BufRead as _, BufReader, Read};
        let stdout: &mut dyn Read = self.0.stdout.as_mut().unwrap();
        let mut line = String::new();
        // One byte of buffer: nothing of the next line is swallowed.
        BufReader::with_capacity(1, stdout)
            .read_line(&mut line)
            .unwrap();
        assert!(!line.is_empty(), "the fixture ended without a line");
        line.trim().to_owned()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Both fail only when the process is gone already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that counts its processes and threads from 1, as in a container. It ends with the process that is started.
pub fn in_own_pid_namespace(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL"])
        .args(["unshare", "--pid", "--fork", "--kill-child"])
        .arg(program);
    command
}

/// The one process that another has started.
#[track_caller]
pub fn only_child(pid: u32) -> u32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    wait_for("the only child", || {
        std::fs::read_to_string(&path).ok()?.trim().parse().ok()
    })
}

/// `CLOCK_MONOTONIC` for the code under test.
pub fn clock_ns() -> u64 {
    atropos::agent::clock::monotonic_ns()
}

/// `CLOCK_BOOTTIME`, by which the kernel counts starts of processes.
pub fn boot_ns() -> u64 {
    clock_ns() + atropos::agent::clock::boot_minus_monotonic_ns()
}

/// A preset that extends this one with room for every probe, and the folder that it lies in. A server that sleeps where others
/// work uses so little of the processor that probes take a large share of it.
pub fn roomy(extends: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("roomy.toml");
    let text = format!(
        "schema = 1\nname = \"roomy\"\nextends = \"{extends}\"\n[budget]\ncalm = \"90%\"\nsuspect = \"90%\"\n"
    );
    std::fs::write(&file, text).expect("a file");
    let path = file.to_str().expect("a name").to_owned();
    (folder, path)
}
