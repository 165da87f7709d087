//! `bench latency`: how true latencies are that need no probe on every request, or few, and what each source costs.
//!
//! Beside a load of few connections, one source after the other tells the median and the 99th percentile of the same requests; the
//! load's own program says what they were.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::bpftrace::{self, Bpftrace};
use super::calm::Database;
use super::latencies::Latencies;
use super::latency_table::{Case, Sample, Source, Told, markdown};
use super::pgbench::Pgbench;
use super::rounds::Rounds;
use super::stats::Dice;
use super::subject::{Load, Subject, finish, parse_events};
use super::sysbench::Sysbench;
use super::usage::{cpu_ns, find_below};
use super::{Common, SCHEMA_VERSION, shown, until_interrupted};
use crate::build::{target_dir, with_kernel_half};
use crate::demo::Kind;
use crate::demo::clock::now_ns;
use crate::demo::folder::Folder;
use crate::demo::place::Place as _;
use crate::process::{as_root, find, run};
use crate::toolchain::Toolchain;

/// The source is attached before the load begins, and goes on for this long behind it.
const MARGIN: Duration = Duration::from_secs(2);
/// The order of the sources is drawn from this.
const SEED: u64 = 20_251_130;

/// Connections of the load: few, since time that a request waits for a processor before the server reads it is seen by the load
/// alone. For the same reason there is no rate: sysbench counts the wait for its own plan as latency.
const CONNECTIONS: u32 = 2;
/// A statement that takes as long as it is given rows, for pgbench.
const RANGE: &str = "\\set a random(1, 1900000)\n\\set b :a + :rows\nSELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :a AND :b;\n";

/// Loads of one statement an event, so that both sides mean the same by a request: the shortest there is, of which the way to the
/// server and back is a large part, one of a millisecond or two, and one of several whose answer is a single row.
const LOADS: [(Kind, &str, &[&str]); 6] = [
    (Kind::Mariadb, "oltp_point_select", &[]),
    (
        Kind::Mariadb,
        "select_random_points",
        &["--random-points=300"],
    ),
    (Kind::Mariadb, "select_random_ranges", &["--delta=1000"]),
    (Kind::Postgresql, "select-only", &[]),
    (Kind::Postgresql, "range", &["--define=rows=10000"]),
    (Kind::Postgresql, "range", &["--define=rows=50000"]),
];

/// The verb `bench latency`.
#[derive(clap::Args)]
pub(super) struct Latency {
    /// Rounds of each load.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// As many rounds as fit into this time, once everything is built, and at least one [default: as --rounds says]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "rounds", value_name = "NUMBER")]
    minutes: Option<u32>,
    /// How long one run takes. The preset's sample is 100 ms every 5 s: shorter runs may miss it.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    seconds: u64,
    /// At this server only.
    #[arg(long, value_enum)]
    server: Option<Database>,
    /// Run this to read latencies, built already.
    #[arg(long, value_name = "PROGRAM", hide = true)]
    tool: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    kind: &'static str,
    cases: Vec<Case>,
}

impl Latency {
    pub(super) fn run(&self) -> Result<()> {
        let wanted = |kind: Kind| self.server.is_none_or(|server| server.kind() == kind);
        let servers: Vec<Kind> = [Kind::Mariadb, Kind::Postgresql]
            .into_iter()
            .filter(|kind| wanted(*kind))
            .collect();
        let sysbench = wanted(Kind::Mariadb).then(Sysbench::require).transpose()?;
        self.common.prepare(&servers)?;
        let tool = match &self.tool {
            Some(tool) => tool.clone(),
            None => build_tool()?,
        };
        let bpftrace = find("bpftrace");
        if bpftrace.is_none() {
            println!(
                "bpftrace is not installed (apt-get install bpftrace): socket tracepoints are left out"
            );
        }
        let loads = LOADS.iter().filter(|(kind, ..)| wanted(*kind)).count();
        let mut rounds = Rounds::new(self.rounds, self.minutes, loads, now_ns());
        let cases = until_interrupted(async {
            let mut cases = Vec::new();
            if let Some(program) = sysbench {
                let mut stage = Stage::new(
                    Sysbench::start(program).await?,
                    Kind::Mariadb,
                    &tool,
                    bpftrace.as_deref(),
                )?;
                self.play(&mut stage, &mut rounds, &mut cases).await?;
            }
            if wanted(Kind::Postgresql) {
                let mut stage = Stage::new(
                    Pgbench::start().await?,
                    Kind::Postgresql,
                    &tool,
                    bpftrace.as_deref(),
                )?;
                self.play(&mut stage, &mut rounds, &mut cases).await?;
            }
            Ok(cases)
        })?;
        println!("\n{}", markdown(&cases));
        self.common.write(&Report {
            schema_version: SCHEMA_VERSION,
            kind: "latency",
            cases,
        })
    }

    async fn play(
        &self,
        stage: &mut Stage<'_, impl Subject>,
        rounds: &mut Rounds,
        cases: &mut Vec<Case>,
    ) -> Result<()> {
        for (_, name, options) in LOADS.iter().filter(|(kind, ..)| *kind == stage.kind) {
            let file = stage.folder.join("range");
            std::fs::write(&file, RANGE).context("cannot write the statement for pgbench")?;
            let file = shown(&file);
            let load = Load {
                script: if *name == "range" { &file } else { name },
                options,
                connections: CONNECTIONS,
                seconds: self.seconds,
                per_s: 0,
                log: None,
            };
            let label = [&[*name], *options].concat().join(" ");
            let mut sources: Vec<Source> = Source::value_variants().to_vec();
            sources.retain(|source| *source != Source::Sockets || stage.bpftrace.is_some());
            let mut dice = Dice::new(SEED);
            let mut samples = Vec::new();
            let mut part = rounds.part(now_ns());
            while let Some(number) = part.another(now_ns()) {
                dice.shuffle(&mut sources);
                for source in &sources {
                    let sample = stage.sample(&load, number, *source).await?;
                    println!("{label} {number:>3} {source:?}: {sample}");
                    samples.push(sample);
                }
            }
            cases.push(Case::new(&label, samples));
        }
        Ok(())
    }
}

/// Builds the program that reads latencies from one source, optimised.
fn build_tool() -> Result<PathBuf> {
    let mut command = with_kernel_half(&Toolchain::require()?, "build");
    command.args([
        "--package",
        "atropos-user",
        "--example",
        "latency",
        "--release",
    ]);
    run(&mut command)?;
    Ok(target_dir().join("release/examples/latency"))
}

/// What every run is given.
struct Stage<'a, S> {
    subject: S,
    kind: Kind,
    tool: &'a Path,
    bpftrace: Option<&'a Path>,
    folder: Folder,
}

/// A running source.
enum Running {
    Nobody,
    Tool(Child, u32),
    Sockets(Bpftrace),
}

/// What the tool prints.
#[derive(Deserialize)]
struct Printed {
    count: u64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
}

impl<'a, S: Subject> Stage<'a, S> {
    fn new(subject: S, kind: Kind, tool: &'a Path, bpftrace: Option<&'a Path>) -> Result<Self> {
        let folder = Folder::new()?;
        Ok(Self {
            subject,
            kind,
            tool,
            bpftrace,
            folder,
        })
    }

    /// One run.
    async fn sample(&self, load: &Load<'_>, round: u32, source: Source) -> Result<Sample> {
        let running = self.begin(source, load.seconds).await?;
        sleep(MARGIN).await;
        let log = self.folder.join("log");
        std::fs::create_dir_all(&log)?;
        let own_before_ns = running.cpu_ns()?;
        let before_ns = self.subject.cpu_ns()?;
        let output = finish(self.subject.start(&Load {
            log: Some(&log),
            ..*load
        })?)
        .await?;
        let server_cpu_ns = self.subject.cpu_ns()?.saturating_sub(before_ns);
        let own_cpu_ns = running.cpu_ns()?.saturating_sub(own_before_ns);
        let event_count =
            parse_events(&output).context("the load does not tell its number of events")?;
        let latencies = Latencies::read(&output, &log)?;
        Ok(Sample {
            round,
            source,
            told: running.end().await?,
            load: Told::of(&latencies),
            event_count,
            server_cpu_ns,
            own_cores: own_cpu_ns as f64 / (load.seconds as f64 * 1e9),
        })
    }

    async fn begin(&self, source: Source, seconds: u64) -> Result<Running> {
        let pid = self.subject.server().pid();
        let name = match source {
            Source::Nobody => return Ok(Running::Nobody),
            Source::Sockets => {
                let filter = match self.kind {
                    Kind::Postgresql => "comm == \"postgres\"".to_owned(),
                    Kind::Mariadb | Kind::Sample => format!("pid == {pid}"),
                };
                let program = self.bpftrace.context("no bpftrace")?;
                let script = bpftrace::socket_script(&filter);
                return Bpftrace::start(program, &script)
                    .await
                    .map(Running::Sockets);
            }
            Source::Probes => "probes",
            Source::Sampled => "sampled",
            Source::Memory => "memory",
        };
        let mut command = Command::from(as_root(self.tool)?);
        let seconds = seconds + 2 * MARGIN.as_secs();
        command
            .args([
                "--pid",
                &pid.to_string(),
                "--preset",
                self.kind.preset(),
                "--source",
                name,
            ])
            .args(["--seconds", &seconds.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = command
            .spawn()
            .context("cannot start the reader of latencies")?;
        let started = child.id().context("the reader of latencies has ended")?;
        // Through sudo it takes a moment to be there.
        sleep(MARGIN / 4).await;
        let own = find_below(started, "latency").context("the reader of latencies has ended")?;
        Ok(Running::Tool(child, own))
    }
}

impl Running {
    fn cpu_ns(&self) -> Result<u64> {
        match self {
            Self::Nobody => Ok(0),
            Self::Tool(_, pid) => cpu_ns(*pid),
            Self::Sockets(bpftrace) => cpu_ns(bpftrace.pid()?),
        }
    }

    /// What it saw.
    async fn end(self) -> Result<Told> {
        match self {
            Self::Nobody => Ok(Told::default()),
            Self::Tool(child, _) => {
                let output = finish(child).await?;
                let Printed {
                    count,
                    p50_us,
                    p99_us,
                } = serde_json::from_str(&output).with_context(|| {
                    format!("the reader of latencies tells nothing: {}", output.trim())
                })?;
                Ok(Told {
                    count,
                    p50_us,
                    p99_us,
                })
            }
            Self::Sockets(bpftrace) => {
                let printed = bpftrace.stop().await?;
                Ok(Told::of(&Latencies::of(bpftrace::histogram(&printed))))
            }
        }
    }
}
