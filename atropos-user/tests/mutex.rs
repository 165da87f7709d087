//! `why` on locks of the C library: who owns them is told for a mutex and for a writer, and not made up for readers.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
#[path = "sample/program.rs"]
mod program;

use atropos::agent::why::{MutexWait, look};
use atropos::config;
use usdt_probes::client::Client;
use usdt_probes::server::Server;

use common::{PATIENCE, resolve, wait_for};

/// The one wait that there is when `holding` runs in one session and `wanting` in another.
fn wait(holding: &str, wanting: &str) -> (Client, Client, MutexWait, Server) {
    let server = program::start();
    let preset = config::load("sample").unwrap_or_else(|problems| panic!("{problems}"));
    let resolved = resolve(server.pid(), preset);
    let (mut holder, mut waiter) = (
        server.connect("holder").unwrap(),
        server.connect("waiter").unwrap(),
    );
    for client in [&mut holder, &mut waiter] {
        client.set_patience(Some(PATIENCE)).unwrap();
    }
    holder.send(holding).unwrap();
    // It sleeps in the lock: a sleep on a word of its own is no wait for a lock.
    wait_for("the holder to hold", || {
        resolved.process.blocked_on(holder.thread()).unwrap()
    });
    assert!(
        look(&resolved).unwrap().mutexes.is_empty(),
        "nobody waits yet"
    );
    waiter.send(wanting).unwrap();
    let mut waits = wait_for("the other to wait", || {
        let waits = look(&resolved).unwrap().mutexes;
        (!waits.is_empty()).then_some(waits)
    });
    assert_eq!(waits.len(), 1);
    (holder, waiter, waits.remove(0), server)
}

#[test]
fn the_owner_of_a_contended_mutex_is_told() {
    let (holder, waiter, wait, _server) = wait("MUTEX m 300000", "MUTEX m 0");
    assert_eq!(
        (wait.thread, wait.session),
        (waiter.thread(), Some(waiter.session()))
    );
    assert!(wait.lock.starts_with("mutex 0x"), "{}", wait.lock);
    assert_eq!(
        (wait.owner_thread, wait.owner_session),
        (Some(holder.thread()), Some(holder.session()))
    );
}

#[test]
fn the_writer_of_a_contended_rwlock_is_told() {
    let (holder, waiter, wait, _server) = wait("RWLOCK l w 300000", "RWLOCK l r 0");
    assert_eq!(wait.thread, waiter.thread());
    assert!(
        wait.lock.starts_with("rwlock 0x") && !wait.lock.contains("readers"),
        "{}",
        wait.lock
    );
    assert_eq!(
        (wait.owner_thread, wait.owner_session),
        (Some(holder.thread()), Some(holder.session()))
    );
}

#[test]
fn readers_of_an_rwlock_are_called_readers_and_nobody_is_named() {
    let (_holder, waiter, wait, _server) = wait("RWLOCK l r 300000", "RWLOCK l w 0");
    assert_eq!(wait.thread, waiter.thread());
    assert!(wait.lock.ends_with("held by readers"), "{}", wait.lock);
    assert_eq!((wait.owner_thread, wait.owner_session), (None, None));
}
