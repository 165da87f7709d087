//! Signals: to whom, and to whom not.

#![allow(
    clippy::unwrap_used,
    reason = "in a test an unmet expectation is a failure"
)]

mod common;
mod samples;

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use atropos::agent::initiator::{Question, proof_of_watch};
use atropos::cancel::{Answer, Initiator as _, ProcessSignal, Proof, SignalRung, SignalTarget};
use atropos::engine::input::OrderResult;
use atropos::engine::record::Task;
use atropos::target::Process;
use nix::sys::signal::Signal;
use samples::task;
use tokio::sync::mpsc;

/// A server with one child, both of which sleep; both are gone when it is dropped.
struct Server {
    process: Child,
    child: u32,
    _open: ChildStdin,
}

impl Server {
    fn start() -> Self {
        // The shell ends with its input, and its child with it.
        let script = "sleep 600 & echo $!; read _; kill $!; wait";
        let mut process = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Self {
            _open: process.stdin.take().unwrap(),
            child: line.trim().parse().unwrap(),
            process,
        }
    }

    fn initiator(&self, rungs: &[(Signal, SignalTarget)]) -> ProcessSignal {
        let rungs = rungs
            .iter()
            .map(|(signal, target)| SignalRung::new(*signal, *target));
        let process = Process::open(self.process.id()).unwrap();
        ProcessSignal::new(process, rungs.collect()).proving(since(u64::MAX))
    }

    fn child_is_there(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn is_there(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A group of its own, so that nobody else is in it; nobody waits for the child but its parent.
        let group = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        let _ = nix::sys::signal::killpg(group, Signal::SIGKILL);
        let _ = self.process.wait();
    }
}

/// A proof that holds, for a task that has been at it since then.
fn since(since_ns: u64) -> Proof {
    Box::new(move |_| Box::pin(std::future::ready(Ok(since_ns))))
}

/// A session, with the number of a process or connection, that is served by this thread.
fn session(id: u32, thread: u32) -> Task {
    Task {
        thread,
        ..task(u64::from(id))
    }
}

const TERM: (Signal, SignalTarget) = (Signal::SIGTERM, SignalTarget::Process);
const TO_THREAD: (Signal, SignalTarget) = (Signal::SIGTERM, SignalTarget::Thread);

fn refused(answer: &Answer) -> &str {
    match &answer.result {
        OrderResult::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_signal_reaches_the_child_that_serves_the_session() {
    for thread in [true, false] {
        let server = Server::start();
        let mut initiator = server.initiator(&[(Signal::SIGINT, TERM.1), TERM]);
        initiator.check_permission().await.unwrap();
        let task = session(server.child, if thread { server.child } else { 0 });
        assert_eq!(
            initiator.describe(1, &task),
            format!("kill -TERM {}", server.child)
        );
        assert_eq!(initiator.send(1, &task).await, Answer::accepted());
        common::wait_for("the child to end", || {
            (!server.child_is_there()).then_some(())
        });
    }
}

#[tokio::test]
async fn a_connection_whose_number_is_by_chance_that_of_another_process_hits_nobody() {
    let (mut server, mut stranger) = (Server::start(), Server::start());
    let mut initiator = server.initiator(&[TERM]);
    for thread in [server.process.id(), 0] {
        let answer = initiator
            .send(0, &session(stranger.process.id(), thread))
            .await;
        assert!(refused(&answer).contains("neither process"), "{answer:?}");
    }
    assert!(stranger.is_there() && stranger.child_is_there());
    assert!(server.is_there() && server.child_is_there());
}

#[tokio::test]
async fn a_connection_whose_number_is_by_chance_that_of_the_server_or_a_helper_does_not_end_it() {
    let mut server = Server::start();
    let mut initiator = server.initiator(&[TERM]);
    // Served by another thread than the one that has the process's number, or by nobody knows which.
    for thread in [server.child, 0] {
        let answer = initiator
            .send(0, &session(server.process.id(), thread))
            .await;
        assert!(
            refused(&answer).contains("not the one that serves"),
            "{answer:?}"
        );
    }
    let answer = initiator
        .send(0, &session(server.child, server.process.id()))
        .await;
    assert!(refused(&answer).contains("to = \"thread\""), "{answer:?}");
    assert!(server.is_there() && server.child_is_there());
}

#[tokio::test]
async fn a_process_that_is_the_session_itself_may_be_signalled() {
    let mut server = Server::start();
    let pid = server.process.id();
    let mut initiator = server.initiator(&[(Signal::SIGKILL, TERM.1)]);
    assert_eq!(
        initiator.send(0, &session(pid, pid)).await,
        Answer::accepted()
    );
    assert_eq!(server.process.wait().unwrap().signal(), Some(9));
}

#[tokio::test]
async fn numbers_that_are_nobodys_are_not_signalled() {
    let server = Server::start();
    let mut initiator = server.initiator(&[TERM, TO_THREAD]);
    for id in [0, 1, u64::MAX] {
        refused(&initiator.send(0, &task(id)).await);
    }
    refused(&initiator.send(1, &session(server.child, 0)).await);
    refused(
        &initiator
            .send(7, &session(server.child, server.child))
            .await,
    );
    assert!(server.child_is_there());
}

#[tokio::test]
async fn each_rung_of_a_ladder_has_a_receiver_of_its_own() {
    let server = Server::start();
    let nothing = (Signal::SIGCHLD, SignalTarget::Process);
    let mut initiator = server.initiator(&[nothing, TO_THREAD]);
    // The thread of the session is the child's; its number is the server's.
    let task = session(server.process.id(), server.child);
    assert_eq!(
        [0, 1].map(|rung| initiator.describe(rung, &task)),
        [
            format!("kill -CHLD {}", server.process.id()),
            format!("kill -TERM {}", server.child)
        ]
    );
    refused(&initiator.send(0, &task).await);
    assert!(server.child_is_there());
    let answer = initiator.send(1, &task).await;
    match &answer.result {
        OrderResult::Accepted => common::wait_for("the child to end", || {
            (!server.child_is_there()).then_some(())
        }),
        OrderResult::Refused(why) => assert!(why.contains("6.9"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_thread_of_another_process_is_not_signalled() {
    let (server, mut stranger) = (Server::start(), Server::start());
    let mut initiator = server.initiator(&[TO_THREAD]);
    let answer = initiator.send(0, &session(7, stranger.process.id())).await;
    refused(&answer);
    assert!(stranger.is_there());
}

#[tokio::test]
async fn a_process_that_started_after_the_task_had_begun_is_another_one() {
    let server = Server::start();
    let before_ns = common::boot_ns();
    let later = Server::start();
    let task = session(later.child, later.child);
    let process = Process::open(later.process.id()).unwrap();
    let rungs = || vec![SignalRung::new(Signal::SIGTERM, SignalTarget::Process)];
    let mut initiator =
        ProcessSignal::new(process.clone(), rungs()).proving(since(before_ns - 20_000_000));
    let answer = initiator.send(0, &task).await;
    assert_eq!(answer.result, OrderResult::Missed);
    assert!(answer.detail.contains("another one"), "{}", answer.detail);
    let mut unknown = ProcessSignal::new(process.clone(), rungs()).proving(since(0));
    assert!(refused(&unknown.send(0, &task).await).contains("started_us"));
    let mut unproved = ProcessSignal::new(process.clone(), rungs());
    refused(&unproved.send(0, &task).await);
    let gone: Proof =
        Box::new(|_| Box::pin(std::future::ready(Err(Answer::missed("it has gone on")))));
    unproved.prove_by(gone);
    assert_eq!(
        unproved.send(0, &task).await,
        Answer::missed("it has gone on")
    );
    assert!(later.child_is_there());
    let mut right = ProcessSignal::new(process, rungs()).proving(since(common::boot_ns()));
    assert_eq!(right.send(0, &task).await, Answer::accepted());
    drop(server);
}

#[tokio::test]
async fn whoever_is_gone_is_missed() {
    let server = Server::start();
    let (mut initiator, pid) = (server.initiator(&[TERM]), server.process.id());
    drop(server);
    let answer = initiator.send(0, &session(pid, pid)).await;
    assert_eq!(answer.result, OrderResult::Missed, "{answer:?}");
}

/// What the watch says when it is asked, once: since when the task has been at it, or why not.
async fn watch_says(said: Option<Result<u64, String>>) -> (Answer, Server) {
    let server = Server::start();
    let (asked, mut questions) = mpsc::channel::<Question>(1);
    let mut initiator = server.initiator(&[TERM]);
    initiator.prove_by(proof_of_watch(asked));
    let task = session(server.child, server.child);
    let meant = task.clone();
    let watch = tokio::spawn(async move {
        let question = questions.recv().await.unwrap();
        assert_eq!(question.task, meant);
        match said {
            Some(said) => question.answer.send(said).unwrap(),
            None => drop(question),
        }
    });
    let answer = initiator.send(0, &task).await;
    watch.await.unwrap();
    (answer, server)
}

#[tokio::test]
async fn what_an_application_tells_by_marks_is_looked_at_right_before_the_signal() {
    let (answer, server) = watch_says(Some(Ok(common::clock_ns() + 1_000_000_000))).await;
    assert_eq!(answer, Answer::accepted());
    common::wait_for("the child to end", || {
        (!server.child_is_there()).then_some(())
    });
    let (answer, server) = watch_says(Some(Err("session 7 has gone on since".to_owned()))).await;
    assert_eq!(answer, Answer::missed("session 7 has gone on since"));
    assert!(server.child_is_there());
    let (answer, server) = watch_says(None).await;
    assert!(
        matches!(answer.result, OrderResult::Unsent(_)),
        "{answer:?}"
    );
    assert!(server.child_is_there());
}
