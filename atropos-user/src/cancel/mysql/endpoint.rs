//! Where the control connection goes, and as whom.

use std::fmt;
use std::path::PathBuf;

use mysql_async::{Opts, OptsBuilder};

use crate::cancel::Credentials;

/// Where and as whom. A socket goes before host and port.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The server's Unix socket.
    pub socket: Option<PathBuf>,
    /// Host name or address; used when there is no socket, and for `extra_port`.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The server's `extra_port`, tried first: it answers when every ordinary connection is taken. One that is not
    /// given is learned from the server at the first connection, and tried when the ordinary way fails.
    pub extra_port: Option<u16>,
    /// User and password.
    pub credentials: Credentials,
}

/// One way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Ordinary,
    ExtraPort(u16),
}

impl Endpoint {
    /// `MariaDB`'s usual TCP port.
    pub const PORT: u16 = 3306;

    /// Through a Unix socket.
    pub fn over_socket(socket: impl Into<PathBuf>, credentials: Credentials) -> Self {
        Self {
            socket: Some(socket.into()),
            host: "127.0.0.1".to_owned(),
            port: Self::PORT,
            extra_port: None,
            credentials,
        }
    }

    /// Through TCP.
    pub fn over_tcp(host: impl Into<String>, port: u16, credentials: Credentials) -> Self {
        Self {
            socket: None,
            host: host.into(),
            port,
            extra_port: None,
            credentials,
        }
    }

    /// The ways to try, best first.
    pub(super) fn ways(&self, learned_extra_port: Option<u16>) -> Vec<Way> {
        match (self.extra_port, learned_extra_port) {
            (Some(given), _) => vec![Way::ExtraPort(given), Way::Ordinary],
            (None, Some(learned)) => vec![Way::Ordinary, Way::ExtraPort(learned)],
            (None, None) => vec![Way::Ordinary],
        }
    }

    pub(super) fn opts(&self, way: Way) -> Opts {
        let (socket, port) = match way {
            Way::Ordinary => (
                self.socket
                    .as_ref()
                    .map(|path| path.to_string_lossy().into_owned()),
                self.port,
            ),
            Way::ExtraPort(port) => (None, port),
        };
        // The two sizes are given so that the client does not spend round trips on asking for them.
        OptsBuilder::default()
            .socket(socket)
            .ip_or_hostname(self.host.clone())
            .tcp_port(port)
            .tcp_nodelay(true)
            .user(Some(self.credentials.user.clone()))
            .pass(
                (!self.credentials.secret.is_empty())
                    .then(|| self.credentials.secret.expose().to_owned()),
            )
            .prefer_socket(false)
            .stmt_cache_size(0)
            .max_allowed_packet(Some(1 << 20))
            .wait_timeout(Some(28_800))
            .into()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = &self.credentials.user;
        match &self.socket {
            Some(path) => write!(f, "{user}@{}", path.display()),
            None => write!(f, "{user}@{}:{}", self.host, self.port),
        }
    }
}
