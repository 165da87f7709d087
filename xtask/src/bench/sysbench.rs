//! The load of the calm measurement: `sysbench` on tables that fit in memory, a fixed number of events.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use mysql_async::prelude::Queryable as _;
use serde::Serialize;
use tokio::process::{Child, Command};

use crate::demo::server::Server;
use crate::process::find;

/// Connections, each with a thread.
pub(super) const THREADS: u32 = 8;
/// Tables.
pub(super) const TABLES: u32 = 4;
/// Rows of each.
pub(super) const ROWS: u32 = 20_000;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum Workload {
    /// Transactions of 20 statements, 4 of which write.
    OltpReadWrite,
    /// One row by its primary key: the shortest statement there is.
    OltpPointSelect,
}

impl Workload {
    /// As sysbench calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OltpReadWrite => "oltp_read_write",
            Self::OltpPointSelect => "oltp_point_select",
        }
    }

    /// Statements of one event.
    pub(super) fn queries(self) -> u64 {
        match self {
            Self::OltpReadWrite => 20,
            Self::OltpPointSelect => 1,
        }
    }
}

/// sysbench on one server.
pub(super) struct Sysbench {
    program: PathBuf,
    socket: String,
}

impl Sysbench {
    /// Looks for the program.
    pub(super) fn require() -> Result<PathBuf> {
        find("sysbench").context("sysbench is missing: install it (Debian, Ubuntu: apt-get install sysbench) and try again")
    }

    /// Makes and fills the tables.
    pub(super) async fn prepare(program: PathBuf, server: &Server) -> Result<Self> {
        let mut connection = server.connect("root").await?;
        connection.query_drop("CREATE DATABASE sbtest").await?;
        connection.disconnect().await?;
        let sysbench = Self {
            program,
            socket: server.socket().display().to_string(),
        };
        let mut prepare = sysbench.command(Workload::OltpReadWrite, 1);
        finish(
            prepare
                .arg("prepare")
                .spawn()
                .context("cannot start sysbench")?,
        )
        .await?;
        Ok(sysbench)
    }

    fn command(&self, workload: Workload, threads: u32) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(workload.name())
            .args([
                "--db-driver=mysql",
                "--mysql-user=root",
                "--mysql-db=sbtest",
                "--rand-type=uniform",
            ])
            .arg(format!("--mysql-socket={}", self.socket))
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

    /// Runs so many events, at most `per_s` of them in a second (0: as fast as it can).
    pub(super) async fn run_events(
        &self,
        workload: Workload,
        events: u64,
        per_s: u64,
    ) -> Result<()> {
        let mut command = self.command(workload, THREADS);
        if per_s > 0 {
            command.arg(format!("--rate={per_s}"));
        }
        command
            .args([format!("--events={events}"), "--time=0".to_owned()])
            .arg("run");
        finish(command.spawn().context("cannot start sysbench")?)
            .await
            .map(drop)
    }

    /// Starts a load of that many seconds, to be passed to [`events`].
    pub(super) fn start_seconds(&self, workload: Workload, seconds: u64) -> Result<Child> {
        let mut command = self.command(workload, THREADS);
        command
            .args([format!("--time={seconds}"), "--events=0".to_owned()])
            .arg("run");
        command.spawn().context("cannot start sysbench")
    }
}

/// Waits for a load to end; the number of its events.
pub(super) async fn events(load: Child) -> Result<u64> {
    let output = finish(load).await?;
    parse_events(&output).context("sysbench does not tell its number of events")
}

async fn finish(load: Child) -> Result<String> {
    let output = load.wait_with_output().await.context("sysbench is lost")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let tail: Vec<&str> = text.lines().rev().take(5).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!(
            "sysbench failed: {}: {} {}",
            output.status,
            errors.trim(),
            tail.join("; ")
        );
    }
    Ok(text)
}

fn parse_events(output: &str) -> Option<u64> {
    output
        .lines()
        .find_map(|line| line.trim().strip_prefix("total number of events:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_events_is_read_from_sysbenchs_own_words() {
        let output = "General statistics:\n    total time:                          5.0012s\n    total number of events:              4711\n";
        assert_eq!(parse_events(output), Some(4711));
        assert_eq!(parse_events("total time: 5"), None);
    }
}
