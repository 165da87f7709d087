//! Latencies of a running server by one source alone, for `cargo xtask bench latency`: request probes that stay, request probes
//! for a tenth of a second now and then, or the start and end of each session's last request, read out of the server's memory.
//!
//! Prints one JSON object: how many requests were seen, their median and their 99th percentile in microseconds.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for measuring"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use atropos::agent::clock::{epoch_minus_monotonic_ns, monotonic_ns};
use atropos::agent::probes::Probes;
use atropos::agent::resolve::Resolved;
use atropos::agent::run::TICK;
use atropos::config;
use atropos::engine::record::Level;
use atropos::target::Process;
use atropos_common::histogram::{bucket_of, lower_bound_ns};
use clap::{Parser, ValueEnum};

#[derive(Parser)]
struct Arguments {
    /// Process id of the server
    #[arg(long)]
    pid: u32,
    /// Preset
    #[arg(long)]
    preset: String,
    /// Where latencies come from
    #[arg(long, value_enum)]
    source: Source,
    /// For how long
    #[arg(long)]
    seconds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// Request probes, attached all the time
    Probes,
    /// Request probes, attached as the preset's `sample` says
    Sampled,
    /// Start and end of the last request of each session, in the server's own memory
    Memory,
}

/// Latencies by bucket.
#[derive(Default)]
struct Latencies(BTreeMap<usize, u64>);

impl Latencies {
    fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// By nearest rank, the middle of the bucket, microseconds; nothing of no request.
    fn percentile_us(&self, percent: u64) -> Option<f64> {
        let rank = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let bucket = self.0.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen >= rank).then_some(*bucket)
        });
        bucket.map(|bucket| {
            u64::midpoint(lower_bound_ns(bucket), lower_bound_ns(bucket + 1)) as f64 / 1e3
        })
    }
}

fn main() -> Result<()> {
    let Arguments {
        pid,
        preset,
        source,
        seconds,
    } = Arguments::parse();
    let preset = config::load(&preset).map_err(|problems| anyhow!("{problems}"))?;
    let resolved = Resolved::new(Process::open(pid)?, preset)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let latencies = match source {
        Source::Memory => from_memory(&resolved, end)?,
        Source::Probes => from_probes(&resolved, end, Level::Suspect)?,
        Source::Sampled => from_probes(&resolved, end, Level::Calm)?,
    };
    let told = serde_json::json!({
        "count": latencies.count(),
        "p50_us": latencies.percentile_us(50),
        "p99_us": latencies.percentile_us(99),
    });
    println!("{told}");
    Ok(())
}

/// Out of the kernel half's histogram.
fn from_probes(resolved: &Resolved, end: Instant, level: Level) -> Result<Latencies> {
    let mut probes = Probes::attach(resolved, monotonic_ns())?;
    if level == Level::Suspect {
        probes.set_level(level, monotonic_ns())?;
    }
    let mut latencies = Latencies::default();
    while Instant::now() < end {
        std::thread::sleep(TICK);
        for (bucket, count) in probes.harvest(monotonic_ns())?.latency {
            *latencies.0.entry(usize::from(bucket)).or_default() += count;
        }
    }
    Ok(latencies)
}

/// Out of the server's memory: of each session that rests, when its last request began and ended.
fn from_memory(resolved: &Resolved, end: Instant) -> Result<Latencies> {
    let list = resolved
        .sessions
        .as_ref()
        .context("the preset does not say how to list sessions")?
        .as_ref()
        .map_err(|reason| anyhow!("the sessions cannot be listed: {reason}"))?;
    let mut latencies = Latencies::default();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    while Instant::now() < end {
        std::thread::sleep(TICK);
        // A view that is torn is passed over.
        let views = list.read(&resolved.memory, epoch_minus_monotonic_ns());
        for view in views.unwrap_or_default() {
            let (started_ns, ended_ns) = (view.started_ns, view.ended_ns);
            let known = started_ns > 0 && ended_ns >= started_ns && !view.busy;
            if known && last.insert(view.key, started_ns) != Some(started_ns) {
                *latencies
                    .0
                    .entry(bucket_of(ended_ns - started_ns))
                    .or_default() += 1;
            }
        }
    }
    Ok(latencies)
}
