//! `atropos run` at the sample server: the right session is ended, and nobody else notices anything but the end of a stall.
//! Needs root and the kernel half.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use atropos::engine::settings::Tuning;
use usdt_probes::server::Server;

use crate::agent::Agent;
use crate::common::{clock_ns, wait_for};
use crate::scene::person;

const SLO: &str = "p99=20ms";

fn attach(server: &Server) -> Agent {
    let pid = server.pid().to_string();
    let mut agent = Agent::start(&["--pid", &pid, "--slo", SLO, "--enforce"]);
    agent.wait_for("attached", |line| line["event"] == "attached");
    agent
}

/// Lets eight readers use the table over and over while something happens; their errors.
pub(crate) fn with_crowd(server: &Server, happens: impl FnOnce(&AtomicU64)) -> u64 {
    let (stop, done, errors) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut reader = person(server, "web");
                while !stop.load(Ordering::Relaxed) {
                    let answered = reader
                        .command("GET t k")
                        .is_ok_and(|reply| reply.result.is_ok());
                    if answered { &done } else { &errors }.fetch_add(1, Ordering::Relaxed);
                    // A client that thinks; nothing is waited for.
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        // The crowd goes home also when what happens fails.
        let _stop = Stop(&stop);
        happens(&done);
    });
    errors.into_inner()
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn gets_on(done: &AtomicU64) {
    let before = done.load(Ordering::Relaxed);
    wait_for("the crowd to get on", || {
        (done.load(Ordering::Relaxed) > before + 16).then_some(())
    });
}

#[test]
fn a_forgotten_transaction_is_ended_and_nobody_else() {
    let server = crate::program::start();
    let mut agent = attach(&server);
    let errors = with_crowd(&server, |done| {
        let (mut decoy, mut forgotten) = (person(&server, "batch"), person(&server, "batch"));
        for (client, line) in [(&mut decoy, "GET other k"), (&mut forgotten, "GET t k")] {
            client.command("BEGIN").unwrap().result.unwrap();
            client.command(line).unwrap().result.unwrap();
        }
        // Forgotten is who has been idle for longer than a program takes between two statements.
        let (idle_since_ns, allowed_ns) = (clock_ns(), Tuning::default().min_idle_ns);
        wait_for("the session to be forgotten", || {
            (clock_ns() - idle_since_ns > allowed_ns + allowed_ns / 10).then_some(())
        });
        gets_on(done);
        let mut admin = person(&server, "admin");
        admin.send("EXCLUSIVE t 10").unwrap();
        let decision = agent.decision(|decision| decision["orders"][0].is_object());
        assert_eq!(
            decision["orders"][0]["task"]["id"],
            forgotten.session(),
            "{decision:#}"
        );
        assert_eq!(decision["orders"][0]["rung_name"], "end the session");
        assert_eq!(agent.outcome()["result"], "released");
        assert!(
            admin.receive().unwrap().result.is_ok(),
            "whoever queued goes on"
        );
        gets_on(done);
        assert!(
            forgotten.command("GET t k").is_err(),
            "the forgotten session is gone"
        );
        assert!(
            decoy.command("COMMIT").unwrap().result.is_ok(),
            "who holds what nobody wants is left alone"
        );
    });
    assert_eq!(errors, 0);
    assert_eq!(agent.sent().len(), 1, "one order, no second");
    assert!(agent.stop().success());
}

#[test]
fn a_stall_behind_a_long_scan_is_over_after_one_cancelled_statement() {
    let server = crate::program::start();
    let mut agent = attach(&server);
    let errors = with_crowd(&server, |done| {
        let (mut report, mut admin) = (person(&server, "report"), person(&server, "admin"));
        gets_on(done);
        report.send("SCAN t 60000").unwrap();
        gets_on(done);
        admin.send("EXCLUSIVE t 10").unwrap();
        let decision = agent.decision(|decision| decision["orders"][0].is_object());
        assert_eq!(
            decision["orders"][0]["rung_name"], "cancel the statement",
            "{decision:#}"
        );
        assert_eq!(agent.outcome()["result"], "released");
        let chosen = decision["orders"][0]["task"]["id"].as_u64().unwrap();
        assert!(
            [report.session(), admin.session()].contains(&chosen),
            "no reader: {decision:#}"
        );
        let ended = if chosen == report.session() {
            &mut report
        } else {
            &mut admin
        };
        assert!(ended.receive().unwrap().is_cancelled());
        gets_on(done);
        assert!(
            ended.command("GET t k").unwrap().result.is_ok(),
            "its session goes on"
        );
    });
    assert_eq!(errors, 0);
    assert_eq!(agent.sent().len(), 1, "one order, no second");
}
