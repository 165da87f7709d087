//! The sample server as its clients see it: locks, transactions, and what the two signals do.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "a deadline for a process is measured by the clock"
)]

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use usdt_probes::client::Client;
use usdt_probes::server::Server;

/// How long anything may take that is waited for, on a machine with other work.
const PATIENCE: Duration = Duration::from_mins(1);

fn server() -> Server {
    Server::start(Path::new(env!("CARGO_BIN_EXE_atropos-sample")), &[]).unwrap()
}

fn client(server: &Server) -> Client {
    let mut client = server.connect("tester").unwrap();
    client.set_patience(Some(PATIENCE)).unwrap();
    client
}

/// Sends a signal to a client's thread.
fn signal(server: &Server, client: &Client, signal: i32) {
    // SAFETY: the call takes numbers only; the process is a child that has not been reaped.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, server.pid(), client.thread(), signal) };
    assert_eq!(result, 0, "the thread is there");
}

/// Whether a thread sleeps: its statement has got to where it waits.
fn asleep(server: &Server, client: &Client) -> bool {
    let path = format!("/proc/{}/task/{}/syscall", server.pid(), client.thread());
    let futex = libc::SYS_futex.to_string();
    std::fs::read_to_string(path).unwrap().split(' ').next() == Some(futex.as_str())
}

/// Sends a statement and waits until it waits.
fn start(server: &Server, client: &mut Client, line: &str) {
    client.send(line).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !asleep(server, client) {
        assert!(
            Instant::now() < deadline,
            "`{line}` does not wait after {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ok(client: &mut Client, line: &str) -> String {
    client.command(line).unwrap().result.unwrap()
}

/// Whether no answer has come yet.
fn waits(client: &mut Client) -> bool {
    client.set_patience(Some(Duration::from_millis(1))).unwrap();
    let answer = client.receive();
    client.set_patience(Some(PATIENCE)).unwrap();
    answer.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn a_key_is_what_was_put_and_a_rollback_takes_it_back() {
    let server = server();
    let mut one = client(&server);
    ok(&mut one, "PUT t k 1");
    ok(&mut one, "BEGIN");
    ok(&mut one, "PUT t k 2");
    ok(&mut one, "PUT t new 3");
    assert_eq!(ok(&mut one, "GET t k"), "2");
    ok(&mut one, "ROLLBACK");
    assert_eq!(
        (ok(&mut one, "GET t k"), ok(&mut one, "GET t new")),
        ("1".to_owned(), String::new())
    );
}

#[test]
fn a_transaction_keeps_its_locks_and_a_queued_exclusive_goes_before_readers() {
    let server = server();
    let (mut holder, mut ddl, mut reader) = (client(&server), client(&server), client(&server));
    ok(&mut holder, "BEGIN");
    ok(&mut holder, "GET t k");
    start(&server, &mut ddl, "EXCLUSIVE t 0");
    start(&server, &mut reader, "GET t k");
    assert_eq!(
        ok(&mut holder, "GET t k"),
        "",
        "whoever holds the lock does not queue for it again"
    );
    assert!(waits(&mut ddl) && waits(&mut reader));
    ok(&mut holder, "COMMIT");
    assert!(ddl.receive().unwrap().result.is_ok() && reader.receive().unwrap().result.is_ok());
}

#[test]
fn explicit_locks_last_until_they_are_given_back() {
    let server = server();
    let (mut holder, mut reader) = (client(&server), client(&server));
    ok(&mut holder, "LOCK t w");
    start(&server, &mut reader, "GET t k");
    ok(&mut holder, "PUT t k 5");
    ok(&mut holder, "UNLOCK");
    assert_eq!(reader.receive().unwrap().result, Ok("5".to_owned()));
}

#[test]
fn a_cancelled_statement_says_so_and_its_session_goes_on() {
    let server = server();
    let mut scanner = client(&server);
    start(&server, &mut scanner, "SCAN t 60000");
    signal(&server, &scanner, libc::SIGUSR1);
    let reply = scanner.receive().unwrap();
    assert!(
        reply.is_cancelled() && reply.took < PATIENCE,
        "before its time: {reply:?}"
    );
    ok(&mut scanner, "PUT t k 1");
}

#[test]
fn a_cancelled_wait_lets_those_behind_it_go_on() {
    let server = server();
    let (mut holder, mut ddl, mut reader) = (client(&server), client(&server), client(&server));
    ok(&mut holder, "LOCK t r");
    start(&server, &mut ddl, "EXCLUSIVE t 0");
    start(&server, &mut reader, "GET t k");
    signal(&server, &ddl, libc::SIGUSR1);
    assert!(ddl.receive().unwrap().is_cancelled());
    assert!(reader.receive().unwrap().result.is_ok());
    ok(&mut ddl, "GET t k");
}

#[test]
fn a_cancel_that_finds_the_session_idle_hits_neither_it_nor_its_next_statement() {
    let server = server();
    let mut idle = client(&server);
    ok(&mut idle, "BEGIN");
    for _ in 0..50 {
        signal(&server, &idle, libc::SIGUSR1);
        ok(&mut idle, "SCAN t 1");
    }
    ok(&mut idle, "COMMIT");
}

#[test]
fn an_ended_session_loses_its_connection_its_locks_and_its_transaction() {
    let server = server();
    let (mut idle, mut busy, mut other) = (client(&server), client(&server), client(&server));
    ok(&mut idle, "PUT t k 1");
    ok(&mut idle, "BEGIN");
    ok(&mut idle, "PUT t k 2");
    start(&server, &mut busy, "GET t k");
    signal(&server, &idle, libc::SIGUSR2);
    assert_eq!(busy.receive().unwrap().result, Ok("1".to_owned()));
    assert_eq!(
        idle.command("GET t k").unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );

    start(&server, &mut busy, "EXCLUSIVE t 60000");
    start(&server, &mut other, "GET t k");
    signal(&server, &busy, libc::SIGUSR2);
    assert!(
        busy.receive().is_err(),
        "a statement that runs is ended with its session"
    );
    assert!(other.receive().unwrap().result.is_ok());
}

#[test]
fn a_lock_that_does_not_come_is_given_up_after_the_time_that_was_set() {
    let program = Path::new(env!("CARGO_BIN_EXE_atropos-sample"));
    let server = Server::start(program, &["--lock-timeout-ms", "20"]).unwrap();
    let (mut holder, mut other) = (client(&server), client(&server));
    ok(&mut holder, "LOCK t w");
    assert!(
        other
            .command("GET t k")
            .unwrap()
            .result
            .is_err_and(|text| text.contains("too long"))
    );
    ok(&mut holder, "UNLOCK");
    ok(&mut other, "GET t k");
}

#[test]
fn a_crowd_that_works_cancels_and_leaves_loses_nothing() {
    let server = server();
    let one = |who: u64| {
        let (mut client, table) = (client(&server), who % 3);
        for turn in 0..200 {
            ok(&mut client, "BEGIN");
            ok(&mut client, &format!("PUT t{table} k{who} {turn}"));
            if turn % 7 == 0 {
                signal(&server, &client, libc::SIGUSR1);
            }
            ok(
                &mut client,
                if turn % 2 == 0 { "COMMIT" } else { "ROLLBACK" },
            );
        }
        assert_eq!(ok(&mut client, &format!("GET t{table} k{who}")), "198");
    };
    std::thread::scope(|scope| {
        let crowd: Vec<_> = (0..12).map(|who| scope.spawn(move || one(who))).collect();
        for thread in crowd {
            thread.join().unwrap();
        }
    });
    let mut last = client(&server);
    for table in 0..3 {
        ok(&mut last, &format!("EXCLUSIVE t{table} 0"));
    }
}
