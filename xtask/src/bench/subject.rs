//! What the measurements of overhead are made at: a server, and a load for it.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use tokio::process::Child;

use crate::demo::Kind;
use crate::demo::place::Place;

/// Connections of the load.
pub(super) const THREADS: u32 = 8;

/// A server and its load.
pub(super) trait Subject {
    /// The server.
    type Server: Place;

    /// The server.
    fn server(&self) -> &Self::Server;

    /// CPU time of the whole server so far, ended processes included, nanoseconds.
    fn cpu_ns(&self) -> Result<u64>;

    /// What it has answered so far, by its own count, which may be a second late: queries or transactions, see
    /// [`Workload::unit`].
    fn count(&mut self) -> impl Future<Output = Result<u64>>;

    /// One short query, for an agent that wants to see something.
    fn nudge(&mut self) -> impl Future<Output = Result<()>>;

    /// Starts a load, to be passed to [`events`] or [`finish`].
    fn start(&self, load: &Load<'_>) -> Result<Child>;

    /// Starts a load of that many seconds, to be passed to [`events`].
    fn start_seconds(&self, workload: Workload, seconds: u64) -> Result<Child> {
        self.start(&Load {
            script: workload.name(),
            options: &[],
            connections: THREADS,
            seconds,
            per_s: 0,
            log: None,
        })
    }
}

/// A load of a given length.
pub(super) struct Load<'a> {
    /// What its program runs: a name that it knows, or a file.
    pub(super) script: &'a str,
    /// More words for its program.
    pub(super) options: &'a [&'a str],
    /// Connections.
    pub(super) connections: u32,
    /// Length.
    pub(super) seconds: u64,
    /// At most so many events a second, 0 for as many as there can be.
    pub(super) per_s: u64,
    /// Folder into which latencies are written by a program that does not print them.
    pub(super) log: Option<&'a Path>,
}

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum Workload {
    /// MariaDB, sysbench: transactions of 20 statements, 4 of which write.
    OltpReadWrite,
    /// MariaDB, sysbench: one row by its primary key, the shortest statement there is.
    OltpPointSelect,
    /// PostgreSQL, pgbench: transactions like those of TPC-B, 5 statements of which 4 write.
    TpcbLike,
    /// PostgreSQL, pgbench: one row by its primary key.
    SelectOnly,
}

impl Workload {
    /// As its program calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OltpReadWrite => "oltp_read_write",
            Self::OltpPointSelect => "oltp_point_select",
            Self::TpcbLike => "tpcb-like",
            Self::SelectOnly => "select-only",
        }
    }

    /// Where it runs.
    pub(super) fn server(self) -> Kind {
        match self {
            Self::OltpReadWrite | Self::OltpPointSelect => Kind::Mariadb,
            Self::TpcbLike | Self::SelectOnly => Kind::Postgresql,
        }
    }

    /// What is counted.
    pub(super) fn unit(self) -> &'static str {
        match self.server() {
            Kind::Postgresql => "transaction",
            Kind::Mariadb | Kind::Sample => "query",
        }
    }

    /// Units of one event.
    pub(super) fn units(self) -> u64 {
        match self {
            Self::OltpReadWrite => 20,
            Self::OltpPointSelect | Self::TpcbLike | Self::SelectOnly => 1,
        }
    }
}

/// Waits for a load to end; the number of its events.
pub(super) async fn events(load: Child) -> Result<u64> {
    let output = finish(load).await?;
    parse_events(&output).context("the load does not tell its number of events")
}

/// Waits for a load's program to end; what it said.
pub(super) async fn finish(load: Child) -> Result<String> {
    let output = load.wait_with_output().await.context("the load is lost")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let tail: Vec<&str> = text.lines().rev().take(5).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!(
            "the load failed: {}: {} {}",
            output.status,
            errors.trim(),
            tail.join("; ")
        );
    }
    Ok(text)
}

/// The number in the words of sysbench or pgbench; the latter puts the number that was asked for behind it.
pub(super) fn parse_events(output: &str) -> Option<u64> {
    const BEGINNINGS: [&str; 2] = [
        "total number of events:",
        "number of transactions actually processed:",
    ];
    let told = output.lines().find_map(|line| {
        BEGINNINGS
            .iter()
            .find_map(|beginning| line.trim().strip_prefix(beginning))
    })?;
    told.split('/').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_events_is_read_from_the_programs_own_words() {
        let sysbench = "General statistics:\n    total time:                          5.0012s\n    total number of events:              4711\n";
        assert_eq!(parse_events(sysbench), Some(4711));
        let pgbench = "number of transactions per client: 100\nnumber of transactions actually processed: 800/800\nnumber of failed transactions: 0 (0.000%)\n";
        assert_eq!(parse_events(pgbench), Some(800));
        let for_a_time = "number of transactions actually processed: 7\n";
        assert_eq!(parse_events(for_a_time), Some(7));
        assert_eq!(parse_events("total time: 5"), None);
    }
}
