//! People and programs at the server: readers and writers that must not be hurt, and those who do harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tokio::task::JoinHandle;

use crate::common::mariadb::MariaDb;

/// A server with tables `w.t` (what everybody wants), `w.other` (what nobody wants) and `w.big` (slow to update).
pub(crate) async fn server() -> Option<MariaDb> {
    let server = MariaDb::start()?;
    server
        .run(&[
            "create database w",
            "use w",
            "create table w.t (id int primary key, v int) as select seq as id, 0 as v from seq_1_to_100",
            "create table w.other (id int primary key, v int) as select seq as id, 0 as v from seq_1_to_100",
            "create table w.big (id int primary key, v int) as select seq as id, 0 as v from seq_1_to_300000",
        ])
        .await;
    Some(server)
}

/// A session that is used by hand.
pub(crate) struct Person {
    conn: Conn,
    /// Its connection id.
    pub(crate) id: u64,
}

impl Person {
    pub(crate) async fn new(server: &MariaDb) -> Self {
        let mut conn = server.connect().await;
        let id = conn
            .query_first("select connection_id()")
            .await
            .unwrap()
            .expect("a number");
        Self { conn, id }
    }

    pub(crate) async fn does(&mut self, statement: &str) {
        self.conn
            .query_drop(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// Opens a transaction, reads the row that everybody wants, and goes away; comes back when the server has counted
    /// four idle seconds, more than the agent grants a transaction.
    pub(crate) async fn forgets_a_transaction(&mut self, server: &MariaDb) {
        self.does("begin").await;
        self.does("select v from w.t where id = 7").await;
        let mut watcher = server.connect().await;
        let idle = format!(
            "select time_ms from information_schema.processlist where id = {}",
            self.id
        );
        eventually("the transaction to be forgotten", async || {
            watcher
                .query_first::<f64, _>(idle.as_str())
                .await
                .unwrap()
                .is_some_and(|ms| ms > 4000.0)
        })
        .await;
    }

    /// Runs a statement in the background; its result is the server's error code, if any.
    pub(crate) fn starts(mut self, statement: &'static str) -> JoinHandle<Result<(), u16>> {
        tokio::spawn(async move { self.conn.query_drop(statement).await.map_err(code) })
    }

    /// Whether the session is still there.
    pub(crate) async fn is_alive(&mut self) -> bool {
        self.conn.ping().await.is_ok()
    }
}

/// The server's error code, 0 for a connection that is gone.
fn code(error: mysql_async::Error) -> u16 {
    match error {
        mysql_async::Error::Server(error) => error.code,
        _ => 0,
    }
}

/// Innocents who use `w.t` over and over; each error counts.
pub(crate) struct Crowd {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    errors: Arc<AtomicU64>,
    members: Vec<JoinHandle<()>>,
}

impl Crowd {
    pub(crate) async fn gather(server: &MariaDb, statement: &'static str, count: usize) -> Self {
        let (stop, done, errors) = (Arc::default(), Arc::default(), Arc::default());
        let mut members = Vec::new();
        for _ in 0..count {
            let mut conn = server.connect().await;
            let (stop, done, errors): (Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>) =
                (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&errors));
            members.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    match conn.query_drop(statement).await {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(_) => errors.fetch_add(1, Ordering::Relaxed),
                    };
                    // A pause between requests, as a client that thinks makes it; nothing is waited for.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }));
        }
        Self {
            stop,
            done,
            errors,
            members,
        }
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits until the crowd gets on again.
    pub(crate) async fn gets_on(&self) {
        let before = self.done();
        eventually("the crowd to get on", async || {
            self.done() > before + self.members.len() as u64
        })
        .await;
    }

    /// Sends them home; gives the number of errors that they saw.
    pub(crate) async fn disperse(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for member in self.members {
            member.await.expect("a member ends well");
        }
        self.errors.load(Ordering::Relaxed)
    }
}

/// Waits until so many sessions wait for a metadata lock.
pub(crate) async fn waiting(server: &MariaDb, count: u64) {
    let mut watcher = server.connect().await;
    let query =
        "select count(*) from information_schema.processlist where state like 'Waiting for%lock%'";
    for _ in 0..2000 {
        let found: u64 = watcher.query_first(query).await.unwrap().expect("a count");
        if found >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("fewer than {count} sessions wait after 10 s");
}

/// Waits until something holds, at most ten seconds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited 10 s in vain for {what}");
}
