//! One authenticated session at `MariaDB`, by whichever way in works.

use std::fmt;
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Row, from_row_opt};
use tokio::time::timeout;

use crate::cancel::failure::within;
use crate::cancel::warm::{self, Warm};
use crate::engine::input::{Activity, SessionKey};
use crate::engine::record::Task;

use super::command::{Failure, Refusal};
use super::endpoint::{Endpoint, Way};
use super::rights::Rights;

/// The server as seen when the connection was opened.
#[derive(Debug)]
pub(super) struct Server {
    pub version: String,
    pub own_id: u64,
    /// `user@host` as the server took us for.
    pub account: String,
    pub rights: Rights,
}

impl Server {
    pub(super) fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB")
    }

    pub(super) fn quoted_account(&self) -> String {
        match self.account.rsplit_once('@') {
            Some((user, host)) => format!("'{user}'@'{host}'"),
            None => format!("'{}'", self.account),
        }
    }
}

/// The endpoint, and what the first session told of it.
#[derive(Debug)]
pub(super) struct Reach {
    endpoint: Endpoint,
    learned_extra_port: Option<u16>,
}

impl From<Endpoint> for Reach {
    fn from(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            learned_extra_port: None,
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

impl warm::Reach for Reach {
    type Session = Session;

    /// By the first way that works.
    async fn open(&self, limit: Duration) -> Result<Session, String> {
        let mut failures = Vec::new();
        for way in self.endpoint.ways(self.learned_extra_port) {
            match within(limit, Session::open(&self.endpoint, way, limit)).await {
                Ok(session) => return Ok(session),
                Err(failure) => failures.push(match way {
                    Way::Ordinary => failure.to_string(),
                    Way::ExtraPort(port) => format!("by extra_port {port}: {failure}"),
                }),
            }
        }
        Err(failures.join("; "))
    }

    fn learn(&mut self, session: &Session) {
        self.learned_extra_port = session.extra_port.or(self.learned_extra_port);
    }
}

/// An open session.
pub(super) struct Session {
    /// `None` once it is closed.
    conn: Option<Conn>,
    pub server: Server,
    extra_port: Option<u16>,
    limit: Duration,
}

impl Session {
    async fn open(endpoint: &Endpoint, way: Way, limit: Duration) -> Result<Self, Failure> {
        let mut conn = Conn::new(endpoint.opts(way)).await?;
        let (version, own_id, account): (String, u64, String) = one_row(
            &mut conn,
            "SELECT VERSION(), CONNECTION_ID(), CURRENT_USER()",
        )
        .await?;
        let grants: Vec<Row> = conn.query("SHOW GRANTS").await?;
        let grants = grants.into_iter();
        let grants: Vec<String> = grants.filter_map(|mut row| row.take_opt(0)?.ok()).collect();
        let rights = Rights::from_grants(grants.iter().map(String::as_str));
        let server = Server {
            version,
            own_id,
            account,
            rights,
        };
        let mut extra_port = None;
        if server.is_mariadb() {
            // Against what an administrator may have set for ordinary users: an idle control connection must stay, and
            // nothing of it may wait for a lock.
            conn.query_drop(
                "SET SESSION wait_timeout = 28800, max_statement_time = 0, lock_wait_timeout = 1, autocommit = 1",
            )
            .await?;
            let (port,): (u16,) = one_row(&mut conn, "SELECT @@extra_port").await?;
            extra_port = (port != 0).then_some(port);
        }
        Ok(Self {
            conn: Some(conn),
            server,
            extra_port,
            limit,
        })
    }

    fn conn(&mut self) -> Result<&mut Conn, Failure> {
        let closed = || Failure::NotConnected("the session is closed".to_owned());
        self.conn.as_mut().ok_or_else(closed)
    }

    /// As an order would name it.
    pub(super) async fn as_task(&mut self) -> Result<Task, Failure> {
        let id = self.server.own_id;
        let text =
            format!("SELECT TID, QUERY_ID FROM information_schema.PROCESSLIST WHERE ID = {id}");
        let (thread, request) = within(self.limit, one_row(self.conn()?, &text)).await?;
        Ok(Task {
            id,
            thread,
            request,
            doing: "idle".to_owned(),
            ..Task::new(SessionKey(0), Activity::IdleInTransaction)
        })
    }

    /// The server still answers it.
    pub(super) async fn is_alive(&mut self) -> bool {
        within(self.limit, warm::Session::ping(self)).await.is_ok()
    }
}

impl warm::Session for Session {
    type Refusal = Refusal;

    async fn ping(&mut self) -> Result<(), Failure> {
        self.conn()?.ping().await.map_err(Failure::from)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        let limit = self.limit;
        tokio::spawn(async move {
            // Whether or not the server hears the goodbye, the socket is closed after this.
            let _ = timeout(limit, conn.disconnect()).await;
        });
    }
}

impl Warm<Reach> {
    pub(super) fn server(&self) -> Option<&Server> {
        self.open().map(|session| &session.server)
    }

    /// Runs a statement without a result.
    pub(super) async fn run(&mut self, statement: &str) -> Result<(), Failure> {
        let limit = self.limit();
        let conn = self.session()?.conn()?;
        let answer = within(limit, async {
            conn.query_drop(statement).await.map_err(Failure::from)
        })
        .await;
        self.heard(answer)
    }

    /// Runs a statement that answers with one row.
    pub(super) async fn run_for_row<R: FromRow>(&mut self, statement: &str) -> Result<R, Failure> {
        let limit = self.limit();
        let conn = self.session()?.conn()?;
        let answer = within(limit, one_row(conn, statement)).await;
        self.heard(answer)
    }
}

/// The first row of the answer; the client's own conversion would panic on a row of another shape.
async fn one_row<R: FromRow>(conn: &mut Conn, statement: &str) -> Result<R, Failure> {
    let row: Option<Row> = conn.query_first(statement).await?;
    let row = row.ok_or_else(|| Failure::Unexpected("the server sent no row".to_owned()))?;
    from_row_opt(row).map_err(|_| {
        Failure::Unexpected("the server sent a row of another shape than asked for".to_owned())
    })
}
