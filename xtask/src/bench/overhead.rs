//! `bench overhead`: what watching costs a server, in pairs: nobody, calm, suspect, everything on, and the same probes under
//! bpftrace where that is installed.
//!
//! Every round runs each state once for the same time, in an order that is drawn anew (and the same in every run of the bench),
//! once as fast as the server can and once at a fixed rate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use serde::Serialize;
use tokio::time::sleep;

use super::bpftrace::{self, Bpftrace};
use super::calm::{AgentUse, Database, Level, agent_pid, count, watch};
use super::calm_table::Hits;
use super::latencies::Latencies;
use super::overhead_table::{Comparison, Pace, Run, State, markdown};
use super::pgbench::Pgbench;
use super::rounds::{Part, Rounds};
use super::stats::Dice;
use super::subject::{Load, Subject, THREADS, Workload, events, finish, parse_events};
use super::sysbench::Sysbench;
use super::usage::{Memory, cpu_ns};
use super::{Common, SCHEMA_VERSION, shown, until_interrupted};
use crate::demo::Kind;
use crate::demo::clock::now_ns;
use crate::demo::folder::Folder;
use crate::demo::place::Place as _;
use crate::demo::watch::Agent;
use crate::process::find;

/// Between attaching and the load.
const SETTLE: Duration = Duration::from_millis(500);
/// The order of the states is drawn from this.
const SEED: u64 = 20_250_806;
/// Share of what the server can do at the most, for the runs at a fixed rate.
const STEADY: f64 = 0.7;

/// The verb `bench overhead`.
#[derive(clap::Args)]
pub(super) struct Overhead {
    /// Rounds of each workload.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// As many rounds as fit into this time, once everything is built, and at least one [default: as --rounds says]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "rounds", value_name = "NUMBER")]
    minutes: Option<u32>,
    /// How long one run takes. The agent looks at requests for 100 ms every 5 s: shorter runs may miss that.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    seconds: u64,
    /// Queries (PostgreSQL: transactions) a second in the runs at a fixed rate [default: 70 % of what the server can]
    #[arg(long, value_name = "NUMBER")]
    rate: Option<u64>,
    /// At this server only.
    #[arg(long, value_enum)]
    server: Option<Database>,
    /// This workload only (may be given several times).
    #[arg(long, value_enum)]
    workload: Vec<Workload>,
    /// Compare with this state only (may be given several times).
    #[arg(long, value_enum)]
    state: Vec<State>,
    /// At this pace only.
    #[arg(long, value_enum)]
    pace: Option<Pace>,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    kind: &'static str,
    seconds: u64,
    comparisons: Vec<Comparison>,
}

impl Overhead {
    pub(super) fn run(&self) -> Result<()> {
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
        let bpftrace = find("bpftrace");
        if bpftrace.is_none() && self.states().contains(&State::Bpftrace) {
            println!("bpftrace is not installed (apt-get install bpftrace): measured without it");
        }
        let workloads = servers.iter().flat_map(|server| self.workloads(*server));
        let parts = workloads.count() * self.paces().count();
        let mut rounds = Rounds::new(self.rounds, self.minutes, parts, now_ns());
        let comparisons = until_interrupted(async {
            let mut comparisons = Vec::new();
            if let Some(program) = sysbench {
                println!("starting a private MariaDB and filling its tables");
                let subject = Sysbench::start(program).await?;
                let mut stage = Stage::new(subject, &binary, bpftrace.as_deref())?;
                self.play(&mut stage, Kind::Mariadb, &mut rounds, &mut comparisons)
                    .await?;
            }
            if servers.contains(&Kind::Postgresql) {
                println!("starting a private PostgreSQL and filling its tables");
                let subject = Pgbench::start().await?;
                let mut stage = Stage::new(subject, &binary, bpftrace.as_deref())?;
                self.play(&mut stage, Kind::Postgresql, &mut rounds, &mut comparisons)
                    .await?;
            }
            Ok(comparisons)
        })?;
        println!("\n{}", markdown(&comparisons));
        self.common.write(&Report {
            schema_version: SCHEMA_VERSION,
            kind: "overhead",
            seconds: self.seconds,
            comparisons,
        })
    }

    fn workloads(&self, server: Kind) -> impl Iterator<Item = Workload> {
        let all = Workload::value_variants().iter().copied();
        all.filter(move |workload| workload.server() == server)
            .filter(move |_| self.server.is_none_or(|wanted| wanted.kind() == server))
            .filter(|workload| self.workload.is_empty() || self.workload.contains(workload))
    }

    /// The states to compare with nobody watching.
    fn states(&self) -> Vec<State> {
        let all = State::value_variants().iter().copied();
        all.filter(|state| self.state.is_empty() || self.state.contains(state))
            .collect()
    }

    fn paces(&self) -> impl Iterator<Item = Pace> {
        let all = Pace::value_variants().iter().copied();
        all.filter(|pace| self.pace.is_none_or(|wanted| wanted == *pace))
    }

    async fn play(
        &self,
        stage: &mut Stage<'_, impl Subject>,
        server: Kind,
        rounds: &mut Rounds,
        comparisons: &mut Vec<Comparison>,
    ) -> Result<()> {
        for workload in self.workloads(server) {
            let warm_up = stage.subject.start_seconds(workload, self.seconds)?;
            let most_per_s = events(warm_up).await? as f64 / self.seconds as f64;
            let (report, per_s) = count(&mut stage.subject, stage.binary, workload).await?;
            let hits = Hits::of(&report, per_s);
            // A process for each session: whoever watches one sees none of them.
            let only = (server == Kind::Mariadb).then(|| stage.subject.server().pid());
            stage.script = bpftrace::script(&report, only);
            for pace in self.paces() {
                let per_s = match (pace, self.rate) {
                    (Pace::Full, _) => 0,
                    (Pace::Steady, Some(rate)) => rate.div_ceil(workload.units()),
                    (Pace::Steady, None) => (most_per_s * STEADY) as u64,
                };
                let load = Load {
                    script: workload.name(),
                    options: &[],
                    connections: THREADS,
                    seconds: self.seconds,
                    per_s,
                    log: None,
                };
                let part = rounds.part(now_ns());
                let what = (workload, pace);
                comparisons.push(self.compare(stage, what, &load, part, &hits).await?);
            }
        }
        Ok(())
    }

    async fn compare(
        &self,
        stage: &mut Stage<'_, impl Subject>,
        (workload, pace): (Workload, Pace),
        load: &Load<'_>,
        mut part: Part,
        hits: &[Hits],
    ) -> Result<Comparison> {
        let mut states = self.states();
        states.retain(|state| *state != State::Bpftrace || stage.has_bpftrace());
        let mut dice = Dice::new(SEED);
        let mut rounds = Vec::new();
        while let Some(number) = part.another(now_ns()) {
            // Place 0 is the run with nobody.
            let mut order: Vec<usize> = (0..=states.len()).collect();
            dice.shuffle(&mut order);
            let mut runs: Vec<Option<Run>> = vec![None; order.len()];
            for place in order {
                let state = place.checked_sub(1).map(|index| states[index]);
                runs[place] = Some(stage.sample(workload, load, state).await?);
            }
            let runs: Vec<Run> = runs.into_iter().flatten().collect();
            println!(
                "{} {pace:?} {number:>3}: {}",
                workload.name(),
                progress(&states, &runs)
            );
            rounds.push(runs);
        }
        let per_s = load.per_s * workload.units();
        Ok(Comparison::new(
            workload, pace, per_s, &states, rounds, hits,
        ))
    }
}

/// One line for whoever waits.
fn progress(states: &[State], runs: &[Run]) -> String {
    let alone_ns = runs[0].per_unit_ns();
    let ratios = states.iter().zip(&runs[1..]).map(|(state, run)| {
        format!(
            ", {state:?} {:+.2} %",
            (run.per_unit_ns() / alone_ns - 1.0) * 100.0
        )
    });
    format!(
        "nobody {:.2} us{}",
        alone_ns / 1e3,
        ratios.collect::<String>()
    )
}

/// What every run is given.
struct Stage<'a, S> {
    subject: S,
    binary: &'a Path,
    bpftrace: Option<&'a Path>,
    /// The probes as bpftrace takes them.
    script: Option<String>,
    folder: Folder,
}

/// Whoever watches.
enum Watching {
    Agent(Agent),
    Bpftrace(Bpftrace),
}

impl Watching {
    fn pid(&self) -> Result<u32> {
        match self {
            Self::Agent(agent) => agent_pid(agent),
            Self::Bpftrace(bpftrace) => bpftrace.pid(),
        }
    }

    /// Ends it; how often it began to watch closely.
    async fn stop(self) -> Result<usize> {
        match self {
            Self::Agent(agent) => Ok(agent.stop().await?.suspicions),
            Self::Bpftrace(bpftrace) => bpftrace.stop().await.map(|_| 0),
        }
    }
}

impl<'a, S: Subject> Stage<'a, S> {
    fn new(subject: S, binary: &'a Path, bpftrace: Option<&'a Path>) -> Result<Self> {
        let folder = Folder::new()?;
        Ok(Self {
            subject,
            binary,
            bpftrace,
            script: None,
            folder,
        })
    }

    fn has_bpftrace(&self) -> bool {
        self.bpftrace.is_some() && self.script.is_some()
    }

    async fn watching(&mut self, state: State) -> Result<Watching> {
        let file = |name: &str| shown(&self.folder.join(name));
        let (audit, recording) = (file("audit"), file("recording"));
        let more = ["--audit", &audit, "--record", &recording];
        let subject = &mut self.subject;
        let agent = match state {
            State::Calm => watch(subject, self.binary, Level::Calm, &[]).await?,
            State::Suspect => watch(subject, self.binary, Level::Suspect, &[]).await?,
            State::Everything => watch(subject, self.binary, Level::Suspect, &more).await?,
            State::Bpftrace => {
                let (program, script) = self
                    .bpftrace
                    .zip(self.script.as_deref())
                    .context("no bpftrace")?;
                return Bpftrace::start(program, script)
                    .await
                    .map(Watching::Bpftrace);
            }
        };
        Ok(Watching::Agent(agent))
    }

    /// One run.
    async fn sample(
        &mut self,
        workload: Workload,
        load: &Load<'_>,
        state: Option<State>,
    ) -> Result<Run> {
        let watching = match state {
            Some(state) => Some(self.watching(state).await?),
            None => None,
        };
        sleep(SETTLE).await;
        let log = self.folder.join("log");
        std::fs::create_dir_all(&log)?;
        let pid = watching.as_ref().map(Watching::pid).transpose()?;
        let watching_before_ns = pid.map(cpu_ns).transpose()?;
        let (begun_ns, before_ns) = (now_ns(), self.subject.cpu_ns()?);
        let output = finish(self.subject.start(&Load {
            log: Some(&log),
            ..*load
        })?)
        .await?;
        let (wall_ns, after_ns) = (now_ns() - begun_ns, self.subject.cpu_ns()?);
        let events =
            parse_events(&output).context("the load does not tell its number of events")?;
        let latencies = Latencies::read(&output, &log)?;
        let used = match (watching, pid, watching_before_ns) {
            (Some(watching), Some(pid), Some(before_ns)) => {
                let cpu_ns = cpu_ns(pid)?.saturating_sub(before_ns);
                let Memory {
                    rss_bytes,
                    peak_bytes,
                } = Memory::of(pid)?;
                let suspicions = watching.stop().await?;
                Some(AgentUse {
                    cpu_ns,
                    rss_bytes,
                    peak_bytes,
                    suspicions,
                })
            }
            _ => None,
        };
        for file in ["audit", "recording"].map(|name| self.folder.join(name)) {
            remove(&file)?;
        }
        Ok(Run {
            server_cpu_ns: after_ns.saturating_sub(before_ns),
            unit_count: events * workload.units(),
            wall_ns,
            p50_us: latencies.percentile_us(50),
            p99_us: latencies.percentile_us(99),
            watching: used,
        })
    }
}

/// Removes what a run has written, if it has.
fn remove(file: &PathBuf) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}
