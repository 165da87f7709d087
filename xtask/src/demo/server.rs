//! A private database server: own data directory and socket, no TCP, gone without a trace when dropped.
//!
//! Uses no configuration of the machine and touches no other server. Runs as the invoking user.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};

use super::folder::Folder;
use super::start;
use crate::process::{find, is_root};

/// Rows of each small table.
pub(crate) const SMALL_ROWS: u64 = 10_000;
/// Small tables, `t1` to `t4`.
pub(crate) const SMALL_TABLES: u64 = 4;
/// Rows of the big table: a batch that computes something for each of them takes some ten seconds.
const BIG_ROWS: u64 = 700_000;

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
        let Self { child, folder } = &mut server;
        let options = options(folder, "root");
        let connect = async || Conn::new(options.clone()).await;
        let connection = start::answers("mariadbd", child, folder, connect).await?;
        connection.disconnect().await?;
        Ok(server)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    /// How to connect as that user.
    pub(crate) fn options(&self, user: &str) -> OptsBuilder {
        options(&self.folder, user)
    }

    /// A connection as that user.
    pub(crate) async fn connect(&self, user: &str) -> Result<Conn> {
        Conn::new(self.options(user))
            .await
            .with_context(|| format!("cannot connect to {} as {user}", self.socket().display()))
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

fn socket(folder: &Folder) -> PathBuf {
    folder.join("sock")
}

fn options(folder: &Folder, user: &str) -> OptsBuilder {
    OptsBuilder::default()
        .socket(Some(socket(folder).display().to_string()))
        .user(Some(user))
        .prefer_socket(true)
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
    start::make("mariadb-install-db", &mut command)
}

fn spawn(folder: &Path) -> Result<Child> {
    let program = find("mariadbd").context("mariadbd is missing: install mariadb-server")?;
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
        .args(["--skip-networking", "--innodb-buffer-pool-size=256M"])
        // A slow disk must not be what the demo shows.
        .args([
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-log-file-size=256M",
            "--skip-name-resolve",
        ]);
    if is_root() {
        command.arg("--user=root");
    }
    start::launch("mariadbd", &mut command, Stdio::null())
}
