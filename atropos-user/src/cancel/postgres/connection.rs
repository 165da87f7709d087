//! One authenticated connection, open before it is needed, and reopened outside the order path when it breaks.

use std::fmt;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, SimpleQueryRow};

use crate::cancel::pulse::Pulse;
use crate::cancel::{Clock, Credentials};

use super::command::Failure;

/// Against what an administrator may have set for ordinary users: an idle control connection must stay, and nothing of it
/// may wait for a lock.
const OPTIONS: &str = "-c statement_timeout=0 -c idle_session_timeout=0 -c lock_timeout=1000";

/// Where and as whom. A socket goes before host and port.
#[derive(Clone, Debug)]
pub struct PgEndpoint {
    /// Directory of the server's Unix socket.
    pub socket_directory: Option<PathBuf>,
    /// Host name or address, used when there is no socket.
    pub host: String,
    /// Port; part of the socket's name as well.
    pub port: u16,
    /// User and password.
    pub credentials: Credentials,
}

impl PgEndpoint {
    /// `PostgreSQL`'s usual port.
    pub const PORT: u16 = 5432;

    /// Directory and port of a Unix socket: from the socket itself (`/run/postgresql/.s.PGSQL.5432`), or from its
    /// directory, which names the port if there is one socket in it; else it is `port`.
    pub fn of_socket(path: PathBuf, port: u16) -> (PathBuf, u16) {
        if let (Some(port), Some(directory)) = (port_of(&path), path.parent()) {
            return (directory.to_owned(), port);
        }
        let inside = fs::read_dir(&path).into_iter().flatten().flatten();
        let ports: Vec<u16> = inside.filter_map(|entry| port_of(&entry.path())).collect();
        match ports.as_slice() {
            [only] => (path, *only),
            _ => (path, port),
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::new();
        match &self.socket_directory {
            Some(directory) => config.host_path(directory),
            None => config.host(&self.host),
        };
        config
            .port(self.port)
            .user(&self.credentials.user)
            .dbname("postgres")
            .application_name("atropos")
            .options(OPTIONS);
        if !self.credentials.secret.is_empty() {
            config.password(self.credentials.secret.expose());
        }
        config
    }
}

/// Port in the name of a socket.
fn port_of(socket: &Path) -> Option<u16> {
    let name = socket.file_name()?.to_str()?;
    name.strip_prefix(".s.PGSQL.")?.parse().ok()
}

impl fmt::Display for PgEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, port) = (&self.credentials.user, self.port);
        match &self.socket_directory {
            Some(path) => write!(f, "{user}@{}/.s.PGSQL.{port}", path.display()),
            None => write!(f, "{user}@{}:{port}", self.host),
        }
    }
}

/// An open session; it ends when dropped.
pub(super) struct Session {
    client: Client,
    own_id: u32,
    driver: JoinHandle<()>,
}

impl Session {
    /// Its process at the server.
    pub(super) fn own_id(&self) -> u32 {
        self.own_id
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The socket closes with it; a server that hangs must not collect our sockets.
        self.driver.abort();
    }
}

/// The connection, or the reason why there is none.
pub(super) struct Warm {
    endpoint: PgEndpoint,
    limit: Duration,
    clock: Clock,
    open: Option<Session>,
    pulse: Pulse,
}

impl fmt::Debug for Warm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warm")
            .field("endpoint", &self.endpoint)
            .field("own_id", &self.own_id())
            .field("pulse", &self.pulse)
            .finish_non_exhaustive()
    }
}

impl Warm {
    pub(super) fn new(endpoint: PgEndpoint, limit: Duration, clock: Clock) -> Self {
        Self {
            endpoint,
            limit,
            clock,
            open: None,
            pulse: Pulse::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &PgEndpoint {
        &self.endpoint
    }

    pub(super) fn own_id(&self) -> Option<u32> {
        self.open.as_ref().map(Session::own_id)
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.pulse.trouble()
    }

    /// Opens the connection.
    pub(super) async fn connect(&mut self) -> Result<(), String> {
        match self.second_session().await {
            Ok(session) => {
                self.open = Some(session);
                self.pulse.opened((self.clock)());
                Ok(())
            }
            Err(failure) => {
                let text = format!(
                    "cannot open a control connection to {}: {failure}; check address, user and password",
                    self.endpoint
                );
                self.pulse.refused((self.clock)(), text.clone());
                Err(text)
            }
        }
    }

    /// Another session of the same account.
    pub(super) async fn second_session(&self) -> Result<Session, Failure> {
        within(self.limit, async {
            let (client, connection) = self.endpoint.config().connect(NoTls).await?;
            let driver = tokio::spawn(async move {
                // What goes wrong shows at the next query.
                let _ = connection.await;
            });
            let mut session = Session {
                client,
                own_id: 0,
                driver,
            };
            let rows = rows_of(&session.client, "SELECT pg_backend_pid()").await?;
            session.own_id = rows
                .first()
                .and_then(|row| row.try_get(0).ok().flatten()?.parse().ok())
                .ok_or_else(|| {
                    Failure::Unexpected("the server did not say which process serves us".to_owned())
                })?;
            Ok(session)
        })
        .await
    }

    /// Pings, or reconnects when it is time to.
    pub(super) async fn keep(&mut self) -> Result<(), String> {
        let at_ns = (self.clock)();
        if self.open.is_some() {
            if !self.pulse.is_due(at_ns) {
                return Ok(());
            }
            return match self.rows("").await {
                Ok(_) => Ok(()),
                // Reconnected in the same call: the way in should be shut for as short a time as possible.
                Err(_) => self.connect().await,
            };
        }
        if !self.pulse.may_retry(at_ns) {
            return Err(self.pulse.reason());
        }
        self.connect().await
    }

    /// Runs a query.
    pub(super) async fn rows(&mut self, query: &str) -> Result<Vec<SimpleQueryRow>, Failure> {
        let Some(session) = &self.open else {
            return Err(Failure::NotConnected(self.pulse.reason()));
        };
        let result = within(self.limit, rows_of(&session.client, query)).await;
        match &result {
            Err(failure) if failure.is_fatal() => {
                self.pulse.broke(failure.to_string());
                self.open = None;
            }
            _ => self.pulse.heard((self.clock)()),
        }
        result
    }
}

async fn rows_of(client: &Client, query: &str) -> Result<Vec<SimpleQueryRow>, Failure> {
    let messages = client.simple_query(query).await?;
    Ok(messages
        .into_iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        })
        .collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_tells_its_directory_and_port() {
        let of = |path: &str| PgEndpoint::of_socket(PathBuf::from(path), 5432);
        assert_eq!(
            of("/run/postgresql/.s.PGSQL.6000"),
            (PathBuf::from("/run/postgresql"), 6000)
        );
        assert_eq!(of("/nowhere"), (PathBuf::from("/nowhere"), 5432));
        let directory = tempfile::tempdir().unwrap();
        for name in [".s.PGSQL.6001", ".s.PGSQL.6001.lock"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let path = directory.path().to_owned();
        assert_eq!(PgEndpoint::of_socket(path.clone(), 5432), (path, 6001));
    }
}
