//! The sample server as an application that nobody knows: under another name, by its marks alone. Needs root and the kernel half.

use std::path::{Path, PathBuf};

use atropos::agent::probes::Probes;
use atropos::agent::told::Told;
use atropos::config;
use atropos::engine::input::{Activity, SessionState};
use atropos::engine::record::Task;
use atropos::engine::settings::Tuning;
use tempfile::TempDir;
use usdt_probes::server::Server;

use crate::agent::Agent;
use crate::common::{clock_ns, wait_for};
use crate::run::{gets_on, with_crowd};
use crate::scene::{person, resolve};

/// The server under a name that no preset knows.
pub(crate) struct Stranger {
    pub(crate) server: Server,
    _folder: TempDir,
}

/// ... and as it is started.
pub(crate) fn stranger(start: impl FnOnce(&Path) -> Server) -> Stranger {
    let folder = tempfile::tempdir().unwrap();
    let program: PathBuf = folder.path().join("key-value");
    crate::common::copy_program(crate::program::program(), &program);
    Stranger {
        server: start(&program),
        _folder: folder,
    }
}

fn plain(program: &Path) -> Server {
    Server::start(program, &[]).unwrap()
}

fn attach(server: &Server) -> Agent {
    let pid = server.pid().to_string();
    let mut agent = Agent::start(&["--pid", &pid, "--slo", "p99=20ms", "--enforce"]);
    let attached = agent.wait_for("attached", |line| line["event"] == "attached");
    assert_eq!(attached["preset"], "atropos");
    agent
}

#[test]
fn an_application_known_by_its_marks_alone_loses_its_forgotten_session_and_nobody_else() {
    let stranger = stranger(plain);
    let server = &stranger.server;
    let mut agent = attach(server);
    let errors = with_crowd(server, |done| {
        let (mut decoy, mut forgotten) = (person(server, "batch"), person(server, "batch"));
        for (client, line) in [(&mut decoy, "GET other k"), (&mut forgotten, "GET t k")] {
            client.command("BEGIN").unwrap().result.unwrap();
            client.command(line).unwrap().result.unwrap();
        }
        let (idle_since_ns, allowed_ns) = (clock_ns(), Tuning::default().min_idle_ns);
        wait_for("the session to be forgotten", || {
            (clock_ns() - idle_since_ns > allowed_ns + allowed_ns / 10).then_some(())
        });
        gets_on(done);
        let mut admin = person(server, "admin");
        admin.send("EXCLUSIVE t 10").unwrap();
        let decision = agent.decision(|decision| decision["orders"][0].is_object());
        let order = &decision["orders"][0];
        assert_eq!(order["task"]["id"], forgotten.session(), "{decision:#}");
        assert_eq!(order["rung_name"], "end the session");
        assert_eq!(agent.outcome()["result"], "released");
        assert!(admin.receive().unwrap().result.is_ok());
        gets_on(done);
        assert!(forgotten.command("GET t k").is_err(), "it is gone");
        assert!(decoy.command("COMMIT").unwrap().result.is_ok());
    });
    assert_eq!(errors, 0);
    assert_eq!(agent.sent().len(), 1, "one order, no second");
    assert!(agent.stop().success());
}

#[test]
fn a_long_task_in_the_way_is_cancelled_and_its_session_goes_on() {
    let stranger = stranger(plain);
    let server = &stranger.server;
    let mut agent = attach(server);
    let errors = with_crowd(server, |done| {
        let (mut report, mut admin) = (person(server, "report"), person(server, "admin"));
        gets_on(done);
        report.send("SCAN t 60000").unwrap();
        gets_on(done);
        admin.send("EXCLUSIVE t 10").unwrap();
        let decision = agent.decision(|decision| decision["orders"][0].is_object());
        let order = &decision["orders"][0];
        assert_eq!(order["rung_name"], "cancel the task", "{decision:#}");
        let words = order["task"]["digest"].as_str().unwrap();
        assert!(
            words.starts_with("scan t") || words.starts_with("exclusive t"),
            "{decision:#}"
        );
        assert_eq!(agent.outcome()["result"], "released");
        let chosen = order["task"]["id"].as_u64().unwrap();
        assert!(
            [report.session(), admin.session()].contains(&chosen),
            "{decision:#}"
        );
        let ended = if chosen == report.session() {
            &mut report
        } else {
            &mut admin
        };
        assert!(ended.receive().unwrap().is_cancelled());
        gets_on(done);
        assert!(ended.command("GET t k").unwrap().result.is_ok());
    });
    assert_eq!(errors, 0);
    assert_eq!(agent.sent().len(), 1, "one order, no second");
}

#[test]
fn an_order_is_only_for_the_task_that_was_seen_and_not_for_the_one_after_it() {
    let stranger = stranger(plain);
    let server = &stranger.server;
    let preset = config::load("atropos").unwrap_or_else(|problems| panic!("{problems}"));
    let resolved = resolve(server.pid(), preset);
    let mut probes = Probes::attach(&resolved, clock_ns()).unwrap();
    let mut told = Told::new(&resolved.preset);
    let mut client = person(server, "web");
    for line in ["LOCK t w", "GET t k"] {
        client.command(line).unwrap().result.unwrap();
    }
    let id = client.session();
    let mut seen = |wanted: Activity| {
        wait_for("the session to be seen", || {
            let harvest = probes.harvest(clock_ns()).unwrap();
            let view = told.look(&harvest.kept.unwrap(), clock_ns());
            let state = view.sessions.into_iter().find(|state| state.id == id)?;
            (state.activity == wanted).then(|| task(&state))
        })
    };
    let idle = seen(Activity::IdleWithLocks);
    client.send("SLEEP 60000").unwrap();
    let busy = seen(Activity::Busy);
    let pid = server.pid();
    let since_ns = probes.still_since_ns(&busy, pid).unwrap();
    assert!(since_ns > 0 && since_ns < clock_ns());
    assert!(
        probes.still_since_ns(&idle, pid).is_err(),
        "it has begun a task"
    );
    let mut next = busy.clone();
    next.request += 1;
    assert!(
        probes.still_since_ns(&next, pid).is_err(),
        "another task of the session"
    );
    let mut unseen = busy.clone();
    unseen.request = 0;
    assert!(
        probes.still_since_ns(&unseen, pid).is_err(),
        "a task that began before the probes came"
    );
    assert!(
        probes.still_since_ns(&busy, pid + 1).is_err(),
        "another process"
    );
    let elsewhere = Task {
        thread: busy.thread + 1,
        ..busy.clone()
    };
    assert!(
        probes.still_since_ns(&elsewhere, pid).is_err(),
        "another thread"
    );
    assert!(probes.kept().open.iter().any(|(key, _)| key.session == id));
    drop(client);
}

/// The task of a session as an order would name it.
fn task(state: &SessionState) -> Task {
    Task {
        id: state.id,
        thread: state.thread,
        request: state.request,
        ..Task::new(state.session, state.activity)
    }
}
