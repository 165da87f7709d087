//! `bench calm`: CPU time of the server per query, with the agent watching and without, in turns.
//!
//! One load runs all the time while the agent comes and goes: what a load that begins anew does differently each time would be
//! larger than what is measured. Every round is one slice of that time in each state; the order is turned round from round to
//! round, so that a machine that grows slower or faster favours nobody.
//!
//! To come and go takes the agent seconds, in which a shared machine becomes another one. With `--pause` it stays, stands still
//! (SIGSTOP) where nobody is to watch, and is asked to watch closely (SIGUSR1) in the slices of level suspect: slices of a second,
//! hundreds of rounds, and a mean that is known to a per cent.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use serde::Serialize;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::calm_table::{Comparison, table};
use super::pgbench::Pgbench;
use super::stage::{SETTLE, Stage};
use super::subject::{Load, Subject, THREADS, Workload, events, finish};
use super::sysbench::Sysbench;
use super::unbounded::Unbounded;
use super::usage::find_below;
use super::{Common, SCHEMA_VERSION, run_arguments, until_interrupted};
use crate::demo::Kind;
use crate::demo::clock::{SECOND, now_ns};
use crate::demo::place::Place as _;
use crate::demo::story::Story;
use crate::demo::watch::Agent;
use crate::process::as_root;

/// The longest slice of an agent that stays.
const MAX_PAUSED_SECONDS: u64 = 50;
/// The load is to run for longer than any measurement; it is ended by its process.
const ENDLESS_SECONDS: u64 = 7 * 24 * 3600;
/// In this time the agent must have become suspicious if it is meant to.
const ALARM: Duration = Duration::from_secs(20);
/// How long the passings of probes are counted.
pub(super) const COUNT_SECONDS: u64 = 3;
/// The load is under way before anything is counted.
const HEAD_START: Duration = Duration::from_secs(1);

/// The verb `bench calm`.
#[derive(clap::Args)]
pub(super) struct Calm {
    /// Rounds of each workload; an even number is fair to both orders.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long one slice takes. The agent looks at requests for 100 ms every 5 s: slices of other lengths hold more or less of that.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    seconds: u64,
    /// At most so many queries (PostgreSQL: transactions) a second, 0 for as many as there can be: what the agent itself uses
    /// depends on the time.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    rate: u64,
    /// At this server only.
    #[arg(long, value_enum)]
    server: Option<Database>,
    /// Compare with this level only (may be given several times).
    #[arg(long, value_enum)]
    level: Vec<Level>,
    /// Stop and continue the agent in place of letting it come and go, and ask it to watch closely for level suspect. The probes
    /// of the calm set stay while it stands still: no request passes one of them.
    #[arg(long)]
    pause: bool,
    /// Lift the budget at level suspect: every probe passes all the time, whatever it costs. So a passing's cost stands out of
    /// the noise, and calm's, a part of the time of the same probes, follows from it.
    #[arg(long)]
    unbounded: bool,
    /// This workload only (may be given several times).
    #[arg(long, value_enum)]
    workload: Vec<Workload>,
    #[command(flatten)]
    common: Common,
}

/// A server that has a load here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Database {
    /// MariaDB, under sysbench.
    Mariadb,
    /// PostgreSQL, under pgbench.
    Postgresql,
}

impl Database {
    /// The server that it is.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Mariadb => Kind::Mariadb,
            Self::Postgresql => Kind::Postgresql,
        }
    }
}

/// How closely the agent watches. It never cancels here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    /// As on a healthy server.
    Calm,
    /// As on one in trouble, for as long as it runs.
    Suspect,
}

impl Level {
    /// As the agent calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Suspect => "suspect",
        }
    }

    /// An objective that keeps the agent at this level: one that nothing breaks, or one that everything breaks.
    fn slo(self) -> &'static str {
        match self {
            Self::Calm => "p99=60s",
            Self::Suspect => "p99=1us",
        }
    }
}

/// One slice.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    /// CPU time of the server, nanoseconds.
    pub(super) server_cpu_ns: u64,
    /// Queries, or transactions, that it answered.
    pub(super) query_count: u64,
    /// Length, nanoseconds.
    pub(super) wall_ns: u64,
    /// The agent's part, if it was there.
    pub(super) agent: Option<AgentUse>,
    /// Share of its time that the budget allowed each probe, in the order of the hits; at the end of the slice.
    pub(super) shares: Vec<f64>,
}

/// What the agent used in a run or slice.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AgentUse {
    /// CPU time in it, nanoseconds.
    pub(super) cpu_ns: u64,
    /// Resident memory at its end, bytes.
    pub(super) rss_bytes: u64,
    /// The most since its start, bytes.
    pub(super) peak_bytes: u64,
    /// How often it began to watch closely.
    pub(super) suspicions: usize,
}

impl Sample {
    /// CPU time of the server for each query or transaction, nanoseconds.
    pub(super) fn per_query_ns(&self) -> f64 {
        self.server_cpu_ns as f64 / self.query_count.max(1) as f64
    }
}

/// A round: the server alone, and the server watched at each level.
#[derive(Debug, Serialize)]
pub(super) struct Round {
    /// Nobody watches.
    pub(super) alone: Sample,
    /// Watched, in the order of the levels.
    pub(super) watched: Vec<Sample>,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    kind: &'static str,
    workloads: Vec<Comparison>,
}

impl Calm {
    pub(super) fn run(&self) -> Result<()> {
        if self.pause && self.seconds > MAX_PAUSED_SECONDS {
            bail!(
                "with --pause a slice takes at most {MAX_PAUSED_SECONDS} s: who asks the agent to watch closely is answered for a minute"
            );
        }
        let servers: Vec<Kind> = [Kind::Mariadb, Kind::Postgresql]
            .into_iter()
            .filter(|server| self.workloads(*server).next().is_some())
            .collect();
        if servers.is_empty() {
            bail!("none of these workloads runs at that server; leave out --server or --workload");
        }
        let sysbench = servers
            .contains(&Kind::Mariadb)
            .then(Sysbench::require)
            .transpose()?;
        let binary = self.common.prepare(&servers)?;
        let workloads = until_interrupted(async {
            let mut comparisons = Vec::new();
            if let Some(program) = sysbench {
                println!("starting a private MariaDB and filling its tables");
                let subject = Sysbench::start(program).await?;
                self.play(subject, Kind::Mariadb, &binary, &mut comparisons)
                    .await?;
            }
            if servers.contains(&Kind::Postgresql) {
                println!("starting a private PostgreSQL and filling its tables");
                let subject = Pgbench::start().await?;
                self.play(subject, Kind::Postgresql, &binary, &mut comparisons)
                    .await?;
            }
            Ok(comparisons)
        })?;
        for workload in &workloads {
            println!("\n{}", table(workload));
        }
        self.common.write(&Report {
            schema_version: SCHEMA_VERSION,
            kind: "calm",
            workloads,
        })
    }

    /// The workloads that were asked for, as far as they run at that server.
    fn workloads(&self, server: Kind) -> impl Iterator<Item = Workload> {
        let all = Workload::value_variants().iter().copied();
        all.filter(move |workload| workload.server() == server)
            .filter(move |_| self.server.is_none_or(|wanted| wanted.kind() == server))
            .filter(|workload| self.workload.is_empty() || self.workload.contains(workload))
    }

    /// Measures every workload of that server.
    async fn play(
        &self,
        subject: impl Subject,
        server: Kind,
        binary: &Path,
        comparisons: &mut Vec<Comparison>,
    ) -> Result<()> {
        let mut stage = Stage {
            subject,
            binary,
            slice: Duration::from_secs(self.seconds),
            held: None,
            preset: self.unbounded.then(|| Unbounded::of(server)).transpose()?,
            probes: Vec::new(),
        };
        for workload in self.workloads(server) {
            comparisons.push(self.compare(&mut stage, workload).await?);
        }
        Ok(())
    }

    async fn compare(
        &self,
        stage: &mut Stage<'_, impl Subject>,
        workload: Workload,
    ) -> Result<Comparison> {
        let levels = match self.level.as_slice() {
            [] => Level::value_variants(),
            levels => levels,
        };
        let hits = stage.hits(workload).await?;
        stage.probes = hits.iter().map(|hit| hit.probe.clone()).collect();
        let mut load = stage.subject.start(&Load {
            script: workload.name(),
            options: &[],
            connections: THREADS,
            seconds: ENDLESS_SECONDS,
            per_s: self.rate / workload.units(),
            log: None,
        })?;
        sleep(HEAD_START).await;
        if self.pause {
            stage.held = Some(stage.hold().await?);
            sleep(SETTLE).await;
        }
        let mut rounds = Vec::new();
        for number in 1..=self.rounds {
            let round = stage.round(levels, number % 2 == 0).await?;
            if load.try_wait()?.is_some() {
                finish(load).await?;
                bail!("the load has ended by itself, and so proves nothing");
            }
            let alone_ns = round.alone.per_query_ns();
            let ratios = levels.iter().zip(&round.watched).map(|(level, sample)| {
                format!(
                    ", {level:?} {:+.2} %",
                    (sample.per_query_ns() / alone_ns - 1.0) * 100.0
                )
            });
            println!(
                "{} {number:>3}: alone {:.2} us a {}{}",
                workload.name(),
                alone_ns / 1e3,
                workload.unit(),
                ratios.collect::<String>()
            );
            rounds.push(round);
        }
        load.kill().await.context("cannot end the load")?;
        if let Some(held) = stage.held.take() {
            held.stop().await?;
        }
        Ok(Comparison::new(
            workload,
            self.seconds,
            levels,
            rounds,
            hits,
            self.unbounded,
        ))
    }
}

/// Starts the agent and brings it to that level.
pub(super) async fn watch(
    subject: &mut impl Subject,
    binary: &Path,
    level: Level,
    more: &[&str],
) -> Result<Agent> {
    let arguments = run_arguments(subject.server(), level.slo(), more);
    let agent = Agent::start(binary, &arguments, &Story::silent()).await?;
    let deadline = Instant::now() + ALARM;
    // It looks at requests now and then; one that it sees breaks the objective of the level suspect.
    while level == Level::Suspect && agent.seen().suspicions == 0 {
        if Instant::now() > deadline {
            bail!(
                "atropos does not watch closely after {ALARM:?} with the objective {}",
                level.slo()
            );
        }
        subject.nudge().await?;
    }
    Ok(agent)
}

/// The report of `atropos check`, which counts for [`COUNT_SECONDS`] under this load with every probe attached; queries or
/// transactions a second meanwhile.
pub(super) async fn count(
    subject: &mut impl Subject,
    binary: &Path,
    workload: Workload,
) -> Result<(Value, f64)> {
    let seconds = COUNT_SECONDS + 2 * HEAD_START.as_secs() + 2;
    let load = subject.start_seconds(workload, seconds)?;
    sleep(HEAD_START).await;
    let (begun_ns, before) = (now_ns(), subject.count().await?);
    let mut check = Command::from(as_root(binary)?);
    let (pid, wanted) = (
        subject.server().pid().to_string(),
        COUNT_SECONDS.to_string(),
    );
    check
        .args(["check", "--json", "--pid", &pid, "--seconds", &wanted])
        .kill_on_drop(true);
    let output = check.output().await.context("cannot start atropos check")?;
    let queries = subject.count().await? - before;
    let per_s = queries as f64 * SECOND as f64 / (now_ns() - begun_ns) as f64;
    events(load).await?;
    // It fails where a probe stays silent, which is no mistake here: nobody waits in this load.
    let report = serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "atropos check does not answer in JSON: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
    })?;
    Ok((report, per_s))
}

/// The agent itself, which may be sudo's child.
pub(super) fn agent_pid(agent: &Agent) -> Result<u32> {
    let started = agent.pid().context("the agent has ended")?;
    find_below(started, "atropos")
        .with_context(|| format!("there is no agent at or below process {started}"))
}
