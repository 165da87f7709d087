//! What the agent needs itself.

use crate::agent::Agent;
use crate::scene::server;

/// One of the numbers that the kernel keeps of a process's memory, kB.
fn kb(status: &str, what: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_needs_little_memory_and_leaves_none_behind() {
    let Some(server) = server().await else { return };
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(server.connect().await);
    }
    let (pid, socket) = (server.pid.to_string(), server.socket.display().to_string());
    let mut agent = Agent::start(&["--pid", &pid, "--socket", &socket, "--slo", "p99=60s"]);
    agent.wait_for("calibration", |line| line["event"] == "costs");
    // Its program's own pages, of which a debug build has more, are left out.
    // All of one moment: what it has may grow between two readings.
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let (own, mb) = (kb(&status, "RssAnon"), 1024);
    let rest = kb(&status, "VmHWM") - kb(&status, "VmRSS");
    assert!(own < 8 * mb, "{own} kB of its own");
    assert!(rest < 6 * mb, "{rest} kB more at its highest");
    assert!(agent.stop().success());
}
