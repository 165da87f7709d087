//! An agent at the server that may end sessions, and innocents who use it.

use crate::agent::Agent;
pub(crate) use crate::common::crowd::Crowd;
use crate::common::postgresql::Postgres;

pub(crate) const READ: &str = "select v from t where id = 7";

/// An agent that may end sessions of `postgres`, the user that everybody is. `ATROPOS_RECORD_TRACES=1` records what it was
/// told as the trace of that name.
pub(crate) fn attach(server: &Postgres, trace: &str) -> Agent {
    attach_with(server, trace, "p99=20ms")
}

/// The same with another objective.
pub(crate) fn attach_with(server: &Postgres, trace: &str, slo: &str) -> Agent {
    attach_by(server, Some(trace), &["--slo", slo, "--enforce"])
}

/// The same with arguments of one's own, which say what is too slow and what it may do.
pub(crate) fn attach_by(server: &Postgres, trace: Option<&str>, more: &[&str]) -> Agent {
    let (pid, socket) = (server.pid.to_string(), server.socket.display().to_string());
    let mut arguments = vec!["--pid", &pid, "--socket", &socket, "--user", "postgres"];
    arguments.extend(more);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../presets/postgresql/traces");
    let recorded = std::env::var_os("ATROPOS_RECORD_TRACES").is_some();
    let file = trace
        .filter(|_| recorded)
        .map(|trace| format!("{folder}/{trace}.rec"));
    if let Some(file) = &file {
        let _ = std::fs::remove_file(file);
        arguments.extend(["--record", file]);
    }
    let mut agent = Agent::start(&arguments);
    agent.wait_for("attached", |line| line["event"] == "attached");
    agent
}
