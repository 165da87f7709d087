//! How `atropos run` ends when it is asked to, whoever reads what it says and whether or not there is a server.
//! Needs root and the kernel half.

use std::fs::read_to_string;
use std::io::Write as _;
use std::process::{Child, Stdio};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use usdt_probes::server::Server;

use crate::agent::{Agent, atropos};
use crate::common::wait_for;
use crate::scene::Scene;

#[test]
fn a_reader_who_stalls_neither_blinds_the_agent_nor_keeps_it() {
    let scene = Scene::long_scan(4);
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    // A pipe that is full and that nobody reads.
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let size = fcntl(&writer, FcntlArg::F_GETPIPE_SZ).unwrap();
    let room = vec![b'\n'; usize::try_from(size).unwrap()];
    writer.write_all(&room).unwrap();
    let mut agent = Unread(
        atropos()
            .args(["run", "--slo", "p99=20ms", "--audit"])
            .arg(&audit)
            .args(["--pid", &scene.server.pid().to_string()])
            .stdin(Stdio::null())
            .stdout(writer)
            .spawn()
            .unwrap(),
    );
    let kinds = || -> Vec<String> {
        let lines = read_to_string(&audit).unwrap_or_default();
        let kind = |line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line["kind"].as_str().map(str::to_owned)
        };
        lines.lines().filter_map(kind).collect()
    };
    wait_for("the agent to look closely", || {
        kinds().contains(&"level".to_owned()).then_some(())
    });
    kill(Pid::from_raw(agent.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    let status = wait_for("the agent to end", || agent.0.try_wait().unwrap());
    assert!(status.success(), "{status:?}");
    assert_eq!(kinds().last().unwrap(), "stop");
}

/// An agent of whose output nothing is read; it does not outlive a test that fails.
struct Unread(Child);

impl Drop for Unread {
    fn drop(&mut self) {
        // Both fail only when the process is gone already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stop_is_heard_while_a_server_that_is_gone_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    // A program of our own path, so that no other server on this machine is meant.
    let program = folder.path().join("atropos-sample");
    crate::common::copy_program(crate::program::program(), &program);
    let server = Server::start(&program, &[]).unwrap();
    let mut agent = Agent::start(&["--exe", &program.display().to_string()]);
    agent.wait_for("attached", |line| line["event"] == "attached");
    drop(server);
    let stopped = agent.wait_for("stopped", |line| line["event"] == "stopped");
    assert_eq!(stopped["reason"], "the target is gone");
    assert!(agent.stop().success());
}
