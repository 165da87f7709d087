//! The load of the calm measurement at MariaDB: `sysbench` on tables that fit in memory.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tokio::process::{Child, Command};

use super::subject::{Load, Subject, Workload, finish};
use super::usage::cpu_ns;
use crate::demo::server::Server;
use crate::process::find;

/// Tables.
pub(super) const TABLES: u32 = 4;
/// Rows of each.
pub(super) const ROWS: u32 = 20_000;

/// sysbench on one server.
pub(super) struct Sysbench {
    program: PathBuf,
    server: Server,
    /// Asks for the server's own count.
    connection: Conn,
}

impl Sysbench {
    /// Looks for the program.
    pub(super) fn require() -> Result<PathBuf> {
        find("sysbench").context("sysbench is missing: install it (Debian, Ubuntu: apt-get install sysbench) and try again")
    }

    /// Starts a server; makes and fills the tables.
    pub(super) async fn start(program: PathBuf) -> Result<Self> {
        let server = Server::bare().await?;
        let mut connection = server.connect("root").await?;
        connection.query_drop("CREATE DATABASE sbtest").await?;
        let sysbench = Self {
            program,
            server,
            connection,
        };
        let mut prepare = sysbench.command(Workload::OltpReadWrite.name(), 1);
        finish(
            prepare
                .arg("prepare")
                .spawn()
                .context("cannot start sysbench")?,
        )
        .await?;
        Ok(sysbench)
    }

    fn command(&self, script: &str, threads: u32) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(script)
            .args([
                "--db-driver=mysql",
                "--mysql-user=root",
                "--mysql-db=sbtest",
                "--rand-type=uniform",
            ])
            .arg(format!("--mysql-socket={}", self.server.socket().display()))
            .args([
                format!("--tables={TABLES}"),
                format!("--table-size={ROWS}"),
                format!("--threads={threads}"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for us; we end the load.
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

impl Subject for Sysbench {
    type Server = Server;

    fn server(&self) -> &Server {
        &self.server
    }

    fn cpu_ns(&self) -> Result<u64> {
        cpu_ns(self.server.pid())
    }

    async fn count(&mut self) -> Result<u64> {
        let row: Option<(String, u64)> = self
            .connection
            .query_first("SHOW GLOBAL STATUS LIKE 'Questions'")
            .await?;
        row.map(|(_, count)| count)
            .context("the server does not count its queries")
    }

    async fn nudge(&mut self) -> Result<()> {
        self.connection.query_drop("DO 0").await?;
        Ok(())
    }

    fn start(&self, load: &Load<'_>) -> Result<Child> {
        let mut command = self.command(load.script, load.connections);
        command.args(load.options);
        if load.per_s > 0 {
            command.arg(format!("--rate={}", load.per_s));
        }
        command
            .args([format!("--time={}", load.seconds), "--events=0".to_owned()])
            .args(["--histogram=on", "run"]);
        command.spawn().context("cannot start sysbench")
    }
}
