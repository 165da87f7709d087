//! `bench soak`: an hour at 70 % of what the server can, in enforce mode. Nobody may be ended, nothing lost, nothing may grow.
//!
//! Both servers are soaked at the same time. `cargo xtask test` runs two minutes of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use tokio::sync::Barrier;
use tokio::time::{MissedTickBehavior, interval};

use super::calm::{Database, agent_pid};
use super::pgbench::Pgbench;
use super::soak_verdict::{Look, Soak, markdown};
use super::subject::{Load, Subject, THREADS, Workload, events};
use super::sysbench::Sysbench;
use super::usage::{Memory, cpu_ns};
use super::{Common, SCHEMA_VERSION, run_arguments, until_interrupted};
use crate::build::build;
use crate::demo::Kind;
use crate::demo::clock::{SECOND, now_ns};
use crate::demo::story::Story;
use crate::demo::watch::{Agent, Seen};
use crate::setup::{require_postgresql, require_server};

/// Share of what the server can do at the most.
const SHARE: f64 = 0.7;
/// How long that is measured, seconds.
const WARM_UP_SECONDS: u64 = 5;
/// Objective: the one that `atropos run` has by itself.
const SLO: &str = "p99=+100%,floor=50ms";
/// Distance of two looks at the agent.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The verb `bench soak`.
#[derive(clap::Args)]
pub(super) struct SoakBench {
    /// Length.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..), value_name = "MINUTES")]
    minutes: u64,
    /// At this server only [default: both, at the same time]
    #[arg(long, value_enum)]
    server: Option<Database>,
    /// Keep each agent's audit log and recording in this folder: what it did wrong can be replayed.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    kind: &'static str,
    soaks: &'a [Soak],
}

impl SoakBench {
    pub(super) fn run(&self) -> Result<()> {
        let servers: Vec<Kind> = match self.server {
            Some(server) => vec![server.kind()],
            None => vec![Kind::Mariadb, Kind::Postgresql],
        };
        let binary = self.common.prepare(&servers)?;
        if let Some(folder) = &self.keep {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let soaks = soak(&servers, &binary, self.minutes, self.keep.as_deref())?;
        println!("\n{}", markdown(&soaks));
        self.common.write(&Report {
            schema_version: SCHEMA_VERSION,
            kind: "soak",
            soaks: &soaks,
        })?;
        judge(&soaks)
    }
}

/// What of a short soak this machine lacks; nothing if it can be run.
pub(crate) fn lacks() -> Option<String> {
    let lacks = [
        Sysbench::require().err(),
        require_server().err(),
        require_postgresql().err(),
    ];
    lacks
        .into_iter()
        .flatten()
        .next()
        .map(|error| format!("{error:#}"))
}

/// Two minutes at both servers.
pub(crate) fn brief() -> Result<()> {
    let binary = build(false)?;
    let soaks = soak(&[Kind::Mariadb, Kind::Postgresql], &binary, 2, None)?;
    println!("{}", markdown(&soaks));
    judge(&soaks)
}

fn judge(soaks: &[Soak]) -> Result<()> {
    let faults = soaks.iter().flat_map(|soak| {
        let server = soak.server;
        soak.faults()
            .into_iter()
            .map(move |fault| format!("{server}: {fault}"))
    });
    let faults: Vec<String> = faults.collect();
    if faults.is_empty() {
        return Ok(());
    }
    bail!("the soak failed: {}", faults.join("; "))
}

fn soak(servers: &[Kind], binary: &Path, minutes: u64, keep: Option<&Path>) -> Result<Vec<Soak>> {
    let plan = Plan {
        binary,
        minutes,
        keep,
    };
    // What a server can do is measured at all of them at the same time: that is how they are used afterwards.
    let all_ready = Barrier::new(servers.len());
    until_interrupted(async {
        let mariadb = async {
            if !servers.contains(&Kind::Mariadb) {
                return Ok(None);
            }
            let subject = Sysbench::start(Sysbench::require()?).await?;
            all_ready.wait().await;
            one(subject, Workload::OltpReadWrite, "MariaDB", plan)
                .await
                .map(Some)
        };
        let postgresql = async {
            if !servers.contains(&Kind::Postgresql) {
                return Ok(None);
            }
            let subject = Pgbench::start().await?;
            all_ready.wait().await;
            one(subject, Workload::TpcbLike, "PostgreSQL", plan)
                .await
                .map(Some)
        };
        let (mariadb, postgresql) = tokio::try_join!(mariadb, postgresql)?;
        Ok(mariadb.into_iter().chain(postgresql).collect())
    })
}

/// What is the same at each server.
#[derive(Clone, Copy)]
struct Plan<'a> {
    binary: &'a Path,
    minutes: u64,
    /// Folder of what the agents write.
    keep: Option<&'a Path>,
}

impl Plan<'_> {
    /// Options of the agent at this server.
    fn options(&self, server: &str) -> Vec<String> {
        let mut options = vec!["--enforce".to_owned()];
        if let Some(folder) = self.keep {
            let file = |end: &str| folder.join(format!("{server}.{end}")).display().to_string();
            options.extend(["--audit".to_owned(), file("audit")]);
            options.extend(["--record".to_owned(), file("rec")]);
        }
        options
    }
}

/// The soak at one server.
async fn one(
    subject: impl Subject,
    workload: Workload,
    server: &'static str,
    plan: Plan<'_>,
) -> Result<Soak> {
    let warm_up = subject.start_seconds(workload, WARM_UP_SECONDS)?;
    let most_per_s = events(warm_up).await? as f64 / WARM_UP_SECONDS as f64;
    let wanted_per_s = ((most_per_s * SHARE) as u64).max(1);
    let seconds = plan.minutes * 60;
    println!(
        "{server}: {wanted_per_s} events a second for {seconds} s, {SHARE} of {most_per_s:.0}"
    );
    let options = plan.options(server);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let arguments = run_arguments(subject.server(), SLO, &options);
    let agent = Agent::start(plan.binary, &arguments, &Story::silent()).await?;
    let pid = agent_pid(&agent)?;
    let load = subject.start(&Load {
        script: workload.name(),
        options: &[],
        connections: THREADS,
        seconds,
        per_s: wanted_per_s,
        log: None,
    })?;
    let mut load = std::pin::pin!(events(load));
    let mut looks = Vec::new();
    let mut look_time = interval(LOOK_EVERY);
    look_time.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (begun_ns, before_ns) = (now_ns(), cpu_ns(pid)?);
    let done = loop {
        tokio::select! {
            done = &mut load => break done,
            _ = look_time.tick() => looks.push(look(pid)?),
        }
    };
    let used_ns = cpu_ns(pid)?.saturating_sub(before_ns);
    let wall_ns = now_ns() - begun_ns;
    let seen = agent.stop().await?;
    let event_count = done.with_context(|| format!("at {server}, where {}", said(&seen)))?;
    let mut soak = Soak {
        server,
        // The load may have ended late.
        seconds: seconds.max(wall_ns / SECOND),
        wanted_per_s,
        event_count,
        cancel_count: 0,
        reasons: Vec::new(),
        lost_count: 0,
        suspicions: 0,
        agent_cores: used_ns as f64 / wall_ns as f64,
        looks,
    };
    soak.heard(&seen);
    Ok(soak)
}

/// What the agent did, for a load that has failed by it.
fn said(seen: &Seen) -> String {
    let summaries: Vec<&str> = seen.reasons().collect();
    format!(
        "the agent sent {} commands: {}",
        seen.commands.len(),
        summaries.join("; ")
    )
}

fn look(pid: u32) -> Result<Look> {
    let count = |folder: &str| -> Result<u64> {
        let folder = format!("/proc/{pid}/{folder}");
        let entries = fs::read_dir(&folder)
            .with_context(|| format!("cannot read {folder}: has the agent ended?"))?;
        Ok(entries.count() as u64)
    };
    Ok(Look {
        rss_bytes: Memory::of(pid)?.rss_bytes,
        descriptor_count: count("fd")?,
        thread_count: count("task")?,
    })
}
