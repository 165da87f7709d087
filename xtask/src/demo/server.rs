//! A private database server: own data directory, socket and loopback port, gone without a trace when dropped.
//!
//! Uses no configuration of the machine and touches no other server. Runs as the invoking user.

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};

use super::folder::{Folder, tail};
use crate::process::{find, is_root};

/// Rows of each small table.
pub(crate) const SMALL_ROWS: u64 = 10_000;
/// Small tables, `t1` to `t4`.
pub(crate) const SMALL_TABLES: u64 = 4;
/// Rows of the big table: a batch that computes something for each of them takes some ten seconds.
const BIG_ROWS: u64 = 700_000;
/// How long a start may take on a slow disk.
const START: Duration = Duration::from_mins(1);

/// A running server.
pub(crate) struct Server {
    child: Child,
    folder: Folder,
}

impl Server {
    /// Makes the data directory, starts the server, waits until it answers, fills the tables.
    pub(crate) async fn start() -> Result<Self> {
        let server = Self::bare().await?;
        server.fill().await?;
        Ok(server)
    }

    /// The same without any tables.
    pub(crate) async fn bare() -> Result<Self> {
        let folder = Folder::new()?;
        install(folder.path())?;
        let child = spawn(folder.path())?;
        let mut server = Self { child, folder };
        server.wait().await?;
        Ok(server)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }

    /// How to connect as that user.
    pub(crate) fn options(&self, user: &str) -> OptsBuilder {
        OptsBuilder::default()
            .socket(Some(self.socket().display().to_string()))
            .user(Some(user))
            .prefer_socket(true)
    }

    /// A connection as that user.
    pub(crate) async fn connect(&self, user: &str) -> Result<Conn> {
        Conn::new(self.options(user))
            .await
            .with_context(|| format!("cannot connect to {} as {user}", self.socket().display()))
    }

    async fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "mariadbd ended while starting: {status}; its log ends with:\n{}",
                    self.folder.tail("log")
                );
            }
            match Conn::new(self.options("root")).await {
                Ok(connection) => {
                    connection.disconnect().await?;
                    return Ok(());
                }
                Err(error) if Instant::now() > deadline => {
                    bail!(
                        "mariadbd does not answer after {START:?}: {error}; its log ends with:\n{}",
                        self.folder.tail("log")
                    );
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn fill(&self) -> Result<()> {
        let mut connection = self.connect("root").await?;
        for user in ["shop", "batch", "backup", "report", "deploy"] {
            connection
                .query_drop(format!("CREATE USER {user}@localhost"))
                .await?;
            connection
                .query_drop(format!("GRANT ALL ON *.* TO {user}@localhost"))
                .await?;
        }
        connection.query_drop("CREATE DATABASE demo").await?;
        for number in 1..=SMALL_TABLES {
            table(&mut connection, &format!("t{number}"), "", SMALL_ROWS).await?;
        }
        // The index makes the update of all rows long.
        table(&mut connection, "big", ", KEY (k)", BIG_ROWS).await?;
        connection.disconnect().await?;
        Ok(())
    }
}

async fn table(connection: &mut Conn, name: &str, more: &str, rows: u64) -> Result<()> {
    connection
        .query_drop(format!(
            "CREATE TABLE demo.{name} (id INT PRIMARY KEY, k INT NOT NULL, pad CHAR(60) NOT NULL{more}) ENGINE=InnoDB"
        ))
        .await?;
    connection
        .query_drop(format!(
            "INSERT INTO demo.{name} SELECT seq, seq, REPEAT('x', 60) FROM demo.seq_1_to_{rows}"
        ))
        .await
        .with_context(|| format!("cannot fill demo.{name}"))
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing of it is kept, so it need not shut down in order.
        if self.child.kill().is_err() || self.child.wait().is_err() {
            eprintln!("demo: cannot end mariadbd, process {}", self.child.id());
        }
    }
}

fn install(folder: &Path) -> Result<()> {
    let script = find("mariadb-install-db")
        .context("mariadb-install-db is missing: install mariadb-server")?;
    let mut command = Command::new(script);
    command
        .args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ])
        .arg(format!("--datadir={}", folder.join("data").display()));
    if is_root() {
        command.arg("--user=root");
    }
    let output = command
        .output()
        .context("cannot start mariadb-install-db")?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!(
            "mariadb-install-db failed: {}: {}",
            output.status,
            tail(&String::from_utf8_lossy(&text))
        );
    }
    Ok(())
}

fn spawn(folder: &Path) -> Result<Child> {
    let program = find("mariadbd").context("mariadbd is missing: install mariadb-server")?;
    // Nobody else takes a port that was free a moment ago, but for bad luck, which the log would show.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let option = |name: &str, file: &str| format!("--{name}={}", folder.join(file).display());
    let mut command = Command::new(program);
    command
        .arg("--no-defaults")
        .args([
            option("datadir", "data"),
            option("socket", "sock"),
            option("pid-file", "pid"),
            option("log-error", "log"),
        ])
        .args([
            "--bind-address=127.0.0.1",
            &format!("--port={port}"),
            "--innodb-buffer-pool-size=256M",
        ])
        // A slow disk must not be what the demo shows.
        .args([
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-log-file-size=256M",
            "--skip-name-resolve",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C is for us; we end the server.
        .process_group(0);
    if is_root() {
        command.arg("--user=root");
    }
    command.spawn().context("cannot start mariadbd")
}
