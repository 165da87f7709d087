//! One authenticated connection, open before it is needed, and reopened outside the order path when it breaks.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Row, from_row_opt};
use tokio::time::timeout;

use crate::cancel::Clock;
use crate::cancel::pulse::Pulse;
use crate::engine::input::{Activity, SessionKey};
use crate::engine::record::Task;

use super::command::Failure;
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

/// The connection is not there.
#[derive(Debug)]
pub(super) struct Lost(String);

impl Lost {
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// The connection, or the reason why there is none.
pub(super) struct Warm {
    endpoint: Endpoint,
    limit: Duration,
    clock: Clock,
    open: Option<(Conn, Server)>,
    learned_extra_port: Option<u16>,
    pulse: Pulse,
}

impl fmt::Debug for Warm {
    // By hand: the client's own types show their options, and with them the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warm")
            .field("endpoint", &self.endpoint)
            .field("server", &self.server())
            .field("pulse", &self.pulse)
            .finish_non_exhaustive()
    }
}

impl Warm {
    pub(super) fn new(endpoint: Endpoint, limit: Duration, clock: Clock) -> Self {
        Self {
            endpoint,
            limit,
            clock,
            open: None,
            learned_extra_port: None,
            pulse: Pulse::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn server(&self) -> Option<&Server> {
        self.open.as_ref().map(|(_, server)| server)
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.pulse.trouble()
    }

    /// Opens the connection by the first way that works.
    pub(super) async fn connect(&mut self) -> Result<(), String> {
        let mut failures = Vec::new();
        for way in self.endpoint.ways(self.learned_extra_port) {
            match self.open_by(way).await {
                Ok((conn, server, extra_port)) => {
                    self.learned_extra_port = extra_port.or(self.learned_extra_port);
                    self.open = Some((conn, server));
                    self.pulse.opened((self.clock)());
                    return Ok(());
                }
                Err(failure) => failures.push(match way {
                    Way::Ordinary => failure.to_string(),
                    Way::ExtraPort(port) => format!("by extra_port {port}: {failure}"),
                }),
            }
        }
        let text = format!(
            "cannot open a control connection to {}: {}; check address, user and password",
            self.endpoint,
            failures.join("; ")
        );
        self.pulse.refused((self.clock)(), text.clone());
        Err(text)
    }

    async fn open_by(&self, way: Way) -> Result<(Conn, Server, Option<u16>), Failure> {
        within(self.limit, async {
            let mut conn = Conn::new(self.endpoint.opts(way)).await?;
            let (version, own_id, account): (String, u64, String) =
                one_row(&mut conn, "SELECT VERSION(), CONNECTION_ID(), CURRENT_USER()").await?;
            let grants: Vec<Row> = conn.query("SHOW GRANTS").await?;
            let grants: Vec<String> = grants.into_iter().filter_map(|mut row| row.take_opt(0)?.ok()).collect();
            let rights = Rights::from_grants(grants.iter().map(String::as_str));
            let mut extra_port = None;
            if version.contains("MariaDB") {
                // Against what an administrator may have set for ordinary users: an idle control connection must stay,
                // and nothing of it may wait for a lock.
                conn.query_drop("SET SESSION wait_timeout = 28800, max_statement_time = 0, lock_wait_timeout = 1, autocommit = 1").await?;
                let (port,): (u16,) = one_row(&mut conn, "SELECT @@extra_port").await?;
                extra_port = (port != 0).then_some(port);
            }
            Ok((conn, Server { version, own_id, account, rights }, extra_port))
        })
        .await
    }

    /// Pings, or reconnects when it is time to.
    pub(super) async fn keep(&mut self) -> Result<(), Lost> {
        let at_ns = (self.clock)();
        if self.open.is_some() {
            if !self.pulse.is_due(at_ns) {
                return Ok(());
            }
            return self.ping().await;
        }
        if !self.pulse.may_retry(at_ns) {
            return Err(Lost(self.pulse.reason()));
        }
        self.connect().await.map_err(Lost)
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        let limit = self.limit;
        let Ok(conn) = self.conn() else { return Ok(()) };
        let result = within(limit, async { conn.ping().await.map_err(Failure::from) }).await;
        self.settle(&result);
        match result {
            Ok(()) => Ok(()),
            // Reconnected in the same call: the way in should be shut for as short a time as possible.
            Err(_) => self.connect().await.map_err(Lost),
        }
    }

    /// Runs a statement without a result.
    pub(super) async fn run(&mut self, statement: &str) -> Result<(), Failure> {
        let limit = self.limit;
        let conn = self.conn()?;
        let result = within(limit, async {
            conn.query_drop(statement).await.map_err(Failure::from)
        })
        .await;
        self.settle(&result);
        result
    }

    /// Runs a statement that answers with one row.
    pub(super) async fn run_for_row<R: FromRow>(&mut self, statement: &str) -> Result<R, Failure> {
        let limit = self.limit;
        let conn = self.conn()?;
        let result = within(limit, one_row(conn, statement)).await;
        self.settle(&result);
        result
    }

    /// Another session of the same account, by the same ways.
    pub(super) async fn second_session(&self) -> Result<Session, Failure> {
        let mut last = Failure::NotConnected("no way to the server".to_owned());
        for way in self.endpoint.ways(self.learned_extra_port) {
            match self.open_by(way).await {
                Ok((conn, server, _)) => {
                    return Ok(Session {
                        conn: Some(conn),
                        id: server.own_id,
                        limit: self.limit,
                    });
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    fn conn(&mut self) -> Result<&mut Conn, Failure> {
        match &mut self.open {
            Some((conn, _)) => Ok(conn),
            None => Err(Failure::NotConnected(self.pulse.reason())),
        }
    }

    /// After a command: remembers that the server lives, or gives the connection up.
    fn settle<T>(&mut self, result: &Result<T, Failure>) {
        match result {
            Err(failure) if failure.is_fatal() => {
                self.pulse.broke(failure.to_string());
                if let Some((conn, _)) = self.open.take() {
                    close(conn, self.limit);
                }
            }
            _ => self.pulse.heard((self.clock)()),
        }
    }
}

/// Says goodbye in the background, for at most `limit`: a server that hangs must not collect our sockets.
fn close(conn: Conn, limit: Duration) {
    tokio::spawn(async move {
        // Whether or not the server hears it, the socket is closed after this.
        let _ = timeout(limit, conn.disconnect()).await;
    });
}

/// The first row of the answer; the client's own conversion would panic on a row of another shape.
async fn one_row<R: FromRow>(conn: &mut Conn, statement: &str) -> Result<R, Failure> {
    let row: Option<Row> = conn.query_first(statement).await?;
    let row = row.ok_or_else(|| Failure::Unexpected("the server sent no row".to_owned()))?;
    from_row_opt(row).map_err(|_| {
        Failure::Unexpected("the server sent a row of another shape than asked for".to_owned())
    })
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Failure::Silent {
            limit_ms: limit.as_millis(),
        }),
    }
}

/// A session that exists to be ended, in [`super::Mysql::check_permission`](crate::cancel::Initiator::check_permission).
pub(super) struct Session {
    conn: Option<Conn>,
    id: u64,
    limit: Duration,
}

impl Session {
    /// As an order would name it.
    pub(super) async fn as_task(&mut self) -> Result<Task, Failure> {
        let text = format!(
            "SELECT TID, QUERY_ID FROM information_schema.PROCESSLIST WHERE ID = {}",
            self.id
        );
        let conn = self
            .conn
            .as_mut()
            .ok_or_else(|| Failure::NotConnected("second session".to_owned()))?;
        let (thread, request) = within(self.limit, one_row(conn, &text)).await?;
        Ok(Task {
            session: SessionKey(0),
            id: self.id,
            thread,
            request,
            activity: Activity::IdleInTransaction,
            class: String::new(),
            principal: String::new(),
            fingerprint: 0,
            digest: String::new(),
            doing: "idle".to_owned(),
        })
    }

    /// The server still answers it.
    pub(super) async fn is_alive(&mut self) -> bool {
        match self.conn.as_mut() {
            Some(conn) => within(self.limit, async {
                conn.ping().await.map_err(Failure::from)
            })
            .await
            .is_ok(),
            None => false,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            close(conn, self.limit);
        }
    }
}
