//! The load of the calm measurement at PostgreSQL: `pgbench` with prepared statements.

use std::process::Stdio;

use anyhow::{Context as _, Result};
use tokio::process::{Child, Command};
use tokio_postgres::Client;

use super::subject::{Load, Subject, finish};
use super::usage::tree_cpu_ns;
use crate::demo::pg_server::{PORT, PgServer};

/// Size of the tables: more branches than connections, so that transactions seldom wait for each other.
const SCALE: u32 = 20;

/// pgbench on one cluster.
pub(super) struct Pgbench {
    server: PgServer,
    /// Asks for the server's own count.
    client: Client,
}

impl Pgbench {
    /// Starts a cluster; makes and fills the tables.
    pub(super) async fn start() -> Result<Self> {
        // A vacuum that comes in some runs and not in others would be measured with them.
        let server = PgServer::bare(&["autovacuum=off"]).await?;
        let client = server.connect("postgres").await?;
        let pgbench = Self { server, client };
        let mut fill = pgbench.command();
        fill.args(["--initialize", "--quiet", &format!("--scale={SCALE}")]);
        finish(fill.spawn().context("cannot start pgbench")?).await?;
        Ok(pgbench)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.server.programs().join("pgbench"));
        command
            .arg("--host")
            .arg(self.server.host())
            .args(["--port", &PORT.to_string()])
            .args(["--username", "postgres"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for us; we end the load.
            .process_group(0)
            .kill_on_drop(true)
            .arg("postgres");
        command
    }

    fn load(&self, script: &str, connections: u32) -> Command {
        let mut command = self.command();
        command
            .args(["--protocol=prepared", "--no-vacuum"])
            .arg(format!("--client={connections}"))
            .arg(if script.contains('/') {
                format!("--file={script}")
            } else {
                format!("--builtin={script}")
            });
        command
    }
}

impl Subject for Pgbench {
    type Server = PgServer;

    fn server(&self) -> &PgServer {
        &self.server
    }

    fn cpu_ns(&self) -> Result<u64> {
        tree_cpu_ns(self.server.pid())
    }

    async fn count(&mut self) -> Result<u64> {
        // A backend tells at its end, and else about once a second.
        let row = self
            .client
            .query_one("SELECT sum(xact_commit)::bigint FROM pg_stat_database", &[])
            .await?;
        u64::try_from(row.get::<_, i64>(0)).context("a count is not negative")
    }

    async fn nudge(&mut self) -> Result<()> {
        self.client.batch_execute("SELECT 1").await?;
        Ok(())
    }

    fn start(&self, load: &Load<'_>) -> Result<Child> {
        let mut command = self.load(load.script, load.connections);
        command.args(load.options);
        command.arg(format!("--time={}", load.seconds));
        if load.per_s > 0 {
            command.arg(format!("--rate={}", load.per_s));
        }
        if let Some(folder) = load.log {
            command
                .arg("--log")
                .arg(format!("--log-prefix={}", folder.join("latency").display()));
        }
        command.spawn().context("cannot start pgbench")
    }
}
