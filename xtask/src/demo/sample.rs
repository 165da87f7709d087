//! The sample server in MariaDB's place, for machines that have none: nothing is installed, and the same things go wrong in it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use usdt_probes::client::Client;
use usdt_probes::server::Server;

use super::place::{Customer, Failure, INTERRUPTED, LOST, OTHER, Person, Place};
use super::story::Story;
use crate::build::target_dir;
use crate::process::{cargo, run};

/// Tables that are read, `t1` to `t4`; as many others, `w1` to `w4`, are written. A write has its table alone, so one to a
/// table that a culprit reads would make trouble before its time.
const TABLES: u64 = 4;
/// Keys of each.
const KEYS: u64 = 1_000;

/// A running sample server.
pub(crate) struct Sample(Server);

impl Sample {
    /// Starts the program on a port of its own; it ends with what is returned, and with us.
    pub(crate) fn start(program: &Path, story: &Story) -> Result<Self> {
        let server = Server::start(program, &[]).with_context(|| {
            format!(
                "cannot start the sample server {}: try it by hand, with --port 0",
                program.display()
            )
        })?;
        story.tell(format!(
            "a private sample server serves on {}, process {}",
            server.address(),
            server.pid()
        ));
        Ok(Self(server))
    }
}

/// Builds the sample server; where the program is.
pub(crate) fn build_sample(release: bool) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--package", "usdt-probes"]);
    command.args(["--bin", "atropos-sample"]);
    if release {
        command.arg("--release");
    }
    run(&mut command)?;
    let profile = if release { "release" } else { "debug" };
    Ok(target_dir().join(profile).join("atropos-sample"))
}

/// A connection to it. Its commands wait on threads for that, not on the runtime's.
pub(crate) struct Session {
    address: SocketAddr,
    user: &'static str,
    id: u64,
    /// `None` once it is lost.
    client: Option<Client>,
}

impl Session {
    async fn open(address: SocketAddr, user: &'static str) -> io::Result<Self> {
        let client = on_a_thread(move || Client::connect(address, user)).await?;
        Ok(Self {
            address,
            user,
            id: client.session(),
            client: Some(client),
        })
    }

    /// Sends one command and waits for its end.
    async fn command(&mut self, line: String) -> Result<(), Failure> {
        let lost = |why: String| Failure { code: LOST, why };
        let mut client = self
            .client
            .take()
            .ok_or_else(|| lost("the connection is closed".to_owned()))?;
        let answered = on_a_thread(move || {
            let reply = client.command(&line)?;
            Ok((client, reply))
        });
        let (client, reply) = answered.await.map_err(|error| lost(error.to_string()))?;
        self.client = Some(client);
        let code = if reply.is_cancelled() {
            INTERRUPTED
        } else {
            OTHER
        };
        reply.result.map(drop).map_err(|why| Failure { code, why })
    }
}

/// Does what waits where waiting is allowed. What waits when the demo ends is freed by the end of the server.
async fn on_a_thread<T: Send + 'static>(
    does: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(does)
        .await
        .map_err(io::Error::other)?
}

impl Place for Sample {
    type Customer = Session;
    type Person = Session;

    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn reach(&self) -> Vec<String> {
        // Its sessions are ended by signals.
        Vec::new()
    }

    async fn customer(&self) -> Result<Session> {
        self.person("shop").await
    }

    async fn person(&self, user: &'static str) -> Result<Session> {
        let address = self.0.address();
        Session::open(address, user)
            .await
            .with_context(|| format!("cannot connect to the sample server at {address} as {user}"))
    }
}

impl Person for Session {
    fn id(&self) -> u64 {
        self.id
    }

    async fn say(&mut self, statement: &str) -> Result<(), Failure> {
        self.command(statement.to_owned()).await
    }

    // Closing the connection says good-bye.
    async fn leave(self) {}
}

impl Customer for Session {
    async fn request(&mut self, number: u64) -> Result<(), u16> {
        if self.client.is_none() {
            *self = Self::open(self.address, self.user)
                .await
                .map_err(|_| LOST)?;
        }
        self.command(statement(number))
            .await
            .map_err(|failure| failure.code)
    }
}

/// The statement of the request with that number.
fn statement(number: u64) -> String {
    let table = number / 2 % TABLES + 1;
    // A fixed scatter: the same requests in every run.
    let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS;
    if number.is_multiple_of(2) {
        format!("GET t{table} k{key}")
    } else {
        format!("PUT w{table} k{key} v{number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_that_is_read_has_its_turn_and_none_of_them_is_written() {
        let all: Vec<String> = (0..2 * TABLES).map(statement).collect();
        for table in 1..=TABLES {
            let starts = |with: &str| all.iter().any(|text| text.starts_with(with));
            assert!(starts(&format!("GET t{table} ")), "{all:?}");
            assert!(starts(&format!("PUT w{table} ")), "{all:?}");
            assert!(!starts(&format!("PUT t{table} ")), "{all:?}");
        }
    }
}
