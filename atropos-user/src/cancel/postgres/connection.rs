//! One authenticated session at `PostgreSQL`.

use std::fmt;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, SimpleQueryRow};

use crate::cancel::Credentials;
use crate::cancel::failure::within;
use crate::cancel::warm::{self, Warm};

use super::command::{Failure, Refusal};

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

    /// Whoever listens on the way could read the password: there is one, and it goes to another machine, whose server may ask for
    /// it as it is. A name but `localhost` may mean any machine.
    pub fn shows_password(&self) -> bool {
        let is_here = |address: IpAddr| {
            // Only an address of this machine can be bound.
            address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
        };
        let stays = self.socket_directory.is_some()
            || self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse().is_ok_and(is_here);
        !self.credentials.secret.is_empty() && !stays
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

/// An open session.
pub(super) struct Session {
    client: Client,
    own_id: u32,
    driver: JoinHandle<()>,
}

impl Session {
    async fn open(endpoint: &PgEndpoint) -> Result<Self, Failure> {
        let (client, connection) = endpoint.config().connect(NoTls).await?;
        let driver = tokio::spawn(async move {
            // What goes wrong shows at the next query.
            let _ = connection.await;
        });
        let mut session = Self {
            client,
            own_id: 0,
            driver,
        };
        let rows = session.rows("SELECT pg_backend_pid()").await?;
        session.own_id = rows
            .first()
            .and_then(|row| row.try_get(0).ok().flatten()?.parse().ok())
            .ok_or_else(|| {
                Failure::Unexpected("the server did not say which process serves us".to_owned())
            })?;
        Ok(session)
    }

    /// Its process at the server.
    pub(super) fn own_id(&self) -> u32 {
        self.own_id
    }

    async fn rows(&self, query: &str) -> Result<Vec<SimpleQueryRow>, Failure> {
        let messages = self.client.simple_query(query).await?;
        Ok(messages
            .into_iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            })
            .collect())
    }
}

impl warm::Session for Session {
    type Refusal = Refusal;

    async fn ping(&mut self) -> Result<(), Failure> {
        self.rows("").await.map(drop)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The socket closes with it.
        self.driver.abort();
    }
}

/// The endpoint as a way in.
#[derive(Debug)]
pub(super) struct Reach(PgEndpoint);

impl From<PgEndpoint> for Reach {
    fn from(endpoint: PgEndpoint) -> Self {
        Self(endpoint)
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl warm::Reach for Reach {
    type Session = Session;

    async fn open(&self, limit: Duration) -> Result<Session, String> {
        let opened = within(limit, Session::open(&self.0)).await;
        opened.map_err(|failure| failure.to_string())
    }
}

impl Warm<Reach> {
    pub(super) fn own_id(&self) -> Option<u32> {
        self.open().map(Session::own_id)
    }

    /// Runs a query.
    pub(super) async fn rows(&mut self, query: &str) -> Result<Vec<SimpleQueryRow>, Failure> {
        let limit = self.limit();
        let answer = within(limit, self.session()?.rows(query)).await;
        self.heard(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::Secret;

    #[test]
    fn a_password_goes_to_this_machine_alone_unless_the_user_says_otherwise() {
        let shows = |host: &str, socket: Option<&str>, password: &str| {
            let endpoint = PgEndpoint {
                socket_directory: socket.map(PathBuf::from),
                host: host.to_owned(),
                port: 5432,
                credentials: Credentials {
                    user: "atropos".to_owned(),
                    secret: Secret::new(password),
                },
            };
            endpoint.shows_password()
        };
        for here in ["localhost", "127.0.0.1", "127.1.2.3", "::1"] {
            assert!(!shows(here, None, "geheim"), "{here}");
        }
        // The second is an address that is reserved for books (RFC 5737).
        for elsewhere in ["db.example", "192.0.2.7", "2001:db8::7", ""] {
            assert!(shows(elsewhere, None, "geheim"), "{elsewhere}");
            assert!(!shows(elsewhere, None, ""), "{elsewhere}");
            assert!(!shows(elsewhere, Some("/run/postgresql"), "geheim"));
        }
    }

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
