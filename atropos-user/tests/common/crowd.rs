//! Innocents who use a server over and over while something else goes on; each error that they see counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use tokio::task::JoinHandle;

use super::eventually;
use super::mariadb::MariaDb;
use super::postgresql::Postgres;

/// A pause between requests, as a client that thinks makes it; nothing is waited for.
const THOUGHT: Duration = Duration::from_millis(5);

/// A server that can be used.
pub trait Served {
    /// One connection.
    type Client: Uses;

    /// Connects.
    fn come(&self) -> impl Future<Output = Self::Client>;
}

/// A connection.
pub trait Uses: Send + 'static {
    /// Runs a statement; whether that went well.
    fn runs(&mut self, statement: &'static str) -> impl Future<Output = bool> + Send;
}

impl Served for MariaDb {
    type Client = mysql_async::Conn;

    async fn come(&self) -> Self::Client {
        self.connect().await
    }
}

impl Uses for mysql_async::Conn {
    async fn runs(&mut self, statement: &'static str) -> bool {
        self.query_drop(statement).await.is_ok()
    }
}

impl Served for Postgres {
    type Client = tokio_postgres::Client;

    async fn come(&self) -> Self::Client {
        self.connect().await.0
    }
}

impl Uses for tokio_postgres::Client {
    async fn runs(&mut self, statement: &'static str) -> bool {
        self.batch_execute(statement).await.is_ok()
    }
}

/// The innocents.
pub struct Crowd {
    tally: Arc<Tally>,
    members: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Tally {
    stop: AtomicBool,
    done: AtomicU64,
    errors: AtomicU64,
}

impl Crowd {
    /// So many of them, each with a connection of its own.
    pub async fn gather(server: &impl Served, statement: &'static str, count: usize) -> Self {
        let tally = Arc::<Tally>::default();
        let mut members = Vec::new();
        for _ in 0..count {
            let client = server.come().await;
            members.push(tokio::spawn(live(client, statement, Arc::clone(&tally))));
        }
        Self { tally, members }
    }

    /// Statements that went well so far.
    pub fn done(&self) -> u64 {
        self.tally.done.load(Ordering::Relaxed)
    }

    /// Waits until everybody has got on.
    pub async fn gets_on(&self) {
        let enough = self.done() + 4 * self.members.len() as u64;
        eventually("the crowd to get on", async || {
            (self.done() >= enough).then_some(())
        })
        .await;
    }

    /// Sends them home; the number of errors that they saw.
    pub async fn disperse(self) -> u64 {
        self.tally.stop.store(true, Ordering::Relaxed);
        for member in self.members {
            member.await.expect("a member ends well");
        }
        self.tally.errors.load(Ordering::Relaxed)
    }
}

async fn live(mut client: impl Uses, statement: &'static str, tally: Arc<Tally>) {
    while !tally.stop.load(Ordering::Relaxed) {
        let went_well = client.runs(statement).await;
        let count = if went_well {
            &tally.done
        } else {
            &tally.errors
        };
        count.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(THOUGHT).await;
    }
}
