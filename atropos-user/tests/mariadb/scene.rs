//! People at the server: those who do harm, and whom they keep waiting.

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tokio::task::JoinHandle;

use crate::common::eventually;
use crate::common::mariadb::{MariaDb, code};

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
            let idle_ms: Option<f64> = watcher.query_first(idle.as_str()).await.unwrap();
            idle_ms.filter(|ms| *ms > 4000.0)
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

/// Waits until so many sessions wait for a metadata lock.
pub(crate) async fn waiting(server: &MariaDb, count: u64) {
    let mut watcher = server.connect().await;
    let query =
        "select count(*) from information_schema.processlist where state like 'Waiting for%lock%'";
    eventually(&format!("{count} sessions to wait"), async || {
        let found: u64 = watcher.query_first(query).await.unwrap().expect("a count");
        (found >= count).then_some(())
    })
    .await;
}
