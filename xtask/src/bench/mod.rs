//! Measurements: incidents, calm, overhead, latency, soak, churn, ring, hit. Each that wants a server starts a private one, stops all that it
//! started, and prints a table.
//!
//! What is measured, and against which aim, is in docs/benchmarks.md.

mod bpftrace;
mod calm;
mod calm_table;
mod churn;
mod held;
mod hit;
mod incidents;
mod late;
mod latencies;
mod latency;
mod latency_table;
mod outcome;
mod overhead;
mod overhead_table;
mod pgbench;
mod program;
mod ring;
mod rounds;
pub(crate) mod soak;
mod soak_verdict;
mod stage;
mod stats;
mod subject;
mod sysbench;
mod tidy;
mod unbounded;
mod usage;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::build::build;
use crate::demo::Kind;
use crate::demo::place::Place;
use crate::demo::watch::ask_for_root;
use crate::setup::{require_postgresql, require_server, setup};

/// Version of what `--json` writes.
const SCHEMA_VERSION: u32 = 1;

/// The verb `bench`.
#[derive(clap::Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// How soon the right culprit is found and ended, over many runs of the demo's cases.
    Incidents(incidents::Incidents),
    /// What watching costs the server while nothing is wrong.
    Calm(calm::Calm),
    /// What watching costs, in each state, in pairs, also beside bpftrace.
    Overhead(overhead::Overhead),
    /// How true latencies are that need few probes or none, and what each source of them costs.
    Latency(latency::Latency),
    /// An hour at 70 % load in enforce mode: nobody may be ended, nothing lost, nothing may grow.
    Soak(soak::SoakBench),
    /// Whether anything of sessions that come and go is missed or kept, at PostgreSQL.
    Churn(churn::Churn),
    /// Events a second that the kernel half hands over without a loss.
    Ring(ring::RingBench),
    /// What one passing of a probe costs, beside an empty program at the same site.
    Hit(hit::HitBench),
}

impl Bench {
    /// Sets up, builds, measures, and prints a table.
    pub(crate) fn run(&self) -> Result<()> {
        match &self.what {
            What::Incidents(incidents) => incidents.run(),
            What::Calm(calm) => calm.run(),
            What::Overhead(overhead) => overhead.run(),
            What::Latency(latency) => latency.run(),
            What::Soak(soak) => soak.run(),
            What::Churn(churn) => churn.run(),
            What::Ring(ring) => ring.run(),
            What::Hit(hit) => hit.run(),
        }
    }
}

/// What the measurements have in common.
#[derive(clap::Args)]
struct Common {
    /// Write the result to this file, for programs.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run this in the agent's place, built already.
    #[arg(long, value_name = "PROGRAM", hide = true)]
    agent: Option<PathBuf>,
}

impl Common {
    /// The agent's binary, optimised; an error if one of the servers is missing.
    fn prepare(&self, servers: &[Kind]) -> Result<PathBuf> {
        let binary = if let Some(agent) = &self.agent {
            agent.clone()
        } else {
            setup(None)?;
            build(true)?
        };
        for server in servers {
            match server {
                Kind::Mariadb => require_server()?,
                Kind::Postgresql => drop(require_postgresql()?),
                Kind::Sample => {}
            }
        }
        ask_for_root()?;
        Ok(binary)
    }

    fn write(&self, report: &impl Serialize) -> Result<()> {
        let Some(file) = &self.json else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(report)? + "\n";
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Runs until it is done or a signal comes. Dropping what runs stops everything that it started.
fn until_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::select! {
            done = work => done,
            _ = interrupt.recv() => bail!("interrupted; everything has been stopped"),
            _ = terminate.recv() => bail!("terminated; everything has been stopped"),
            _ = hang_up.recv() => bail!("the terminal is gone; everything has been stopped"),
        }
    })
}

/// The words `atropos run` on this server with JSON lines and that objective, and some more.
fn run_arguments(server: &impl Place, slo: &str, more: &[&str]) -> Vec<String> {
    let mut words = vec![
        "run".to_owned(),
        "--pid".to_owned(),
        server.pid().to_string(),
    ];
    words.extend(server.reach());
    let rest = ["--json", "--slo", slo];
    words.extend(rest.iter().chain(more).map(ToString::to_string));
    words
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
