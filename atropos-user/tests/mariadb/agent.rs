//! The binary `atropos`, driven as a user drives it, and what it prints.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use serde_json::Value;

use crate::common::mariadb::MariaDb;
use crate::common::{Deadline, PATIENCE};

/// A running `atropos run --json`.
pub(crate) struct Agent {
    child: Child,
    lines: Receiver<Value>,
    /// Everything that it has said so far.
    pub(crate) said: Vec<Value>,
}

/// The binary under test.
pub(crate) fn atropos() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atropos"));
    command.env_remove("ATROPOS_PASSWORD");
    command
}

impl Agent {
    /// Starts it on a server and waits until it is attached.
    pub(crate) fn attach(server: &MariaDb, arguments: &[&str]) -> Self {
        let pid = server.pid.to_string();
        let socket = server.socket.display().to_string();
        let mut agent = Self::start(&[&["--pid", &pid, "--socket", &socket], arguments].concat());
        agent.wait_for("attached", |line| line["event"] == "attached");
        agent
    }

    /// Starts it and does not wait.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = atropos()
            .args(["run", "--json"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the agent starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value =
                    serde_json::from_str(&line).unwrap_or_else(|e| panic!("not JSON: {e}: {line}"));
                if send.send(value).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// The first line, past or future, that is wanted.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(line) = self.said.iter().find(|line| wanted(line)) {
            return line.clone();
        }
        let deadline = Deadline::new();
        loop {
            match self.lines.recv_timeout(deadline.left()) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no {what} within {PATIENCE:?}; said: {:#?}", self.said)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the agent ended without {what}; said: {:#?}", self.said)
                }
            }
        }
    }

    /// The first decision that is wanted.
    #[track_caller]
    pub(crate) fn decision(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let line = self.wait_for("decision", |line| wanted(&line["effect"]["decision"]));
        line["effect"]["decision"].clone()
    }

    /// The final fate of the first order.
    #[track_caller]
    pub(crate) fn outcome(&mut self) -> Value {
        self.wait_for("outcome", |line| line["effect"]["outcome"].is_object())["effect"]["outcome"]
            .clone()
    }

    /// Reads what has come in without waiting.
    pub(crate) fn listen(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            self.said.push(line);
        }
    }

    /// Waits for a sign that it still looks and listens: that it has sent nothing says something then. To be called once.
    #[track_caller]
    pub(crate) fn answers(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGUSR1)
            .expect("the agent can be asked");
        self.wait_for("answer", |line| line["event"] == "operator");
    }

    /// Lines that an order left for the server.
    pub(crate) fn sent(&mut self) -> Vec<Value> {
        self.listen();
        self.said
            .iter()
            .filter(|line| line["event"] == "order_sent")
            .cloned()
            .collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the agent can be killed");
        self.child.wait().expect("the agent is reaped");
    }

    /// Asks it to stop, as Ctrl-C does.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT)
            .expect("the agent can be asked");
        self.child.wait().expect("the agent is reaped")
    }

    /// Waits for it to end by itself.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.child.wait().expect("the agent is reaped")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
