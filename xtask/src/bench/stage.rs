//! The stage of `bench calm`: a server under its load, with or without somebody who watches, for the length of a slice.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use super::calm::{AgentUse, Level, Round, Sample, agent_pid, count, watch};
use super::calm_table::Hits;
use super::held::Held;
use super::subject::{Subject, Workload};
use super::unbounded::Unbounded;
use super::usage::{Memory, cpu_ns};
use crate::demo::clock::now_ns;
use crate::demo::watch::{Agent, Seen};

/// Between attaching and the slice: the sample with which the agent begins, and its calibration, are over.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// What every slice is given.
pub(super) struct Stage<'a, S> {
    /// The server and its load.
    pub(super) subject: S,
    /// The agent's program.
    pub(super) binary: &'a Path,
    /// Its length.
    pub(super) slice: Duration,
    /// The agent that stays.
    pub(super) held: Option<Held>,
    /// What the agent goes by in place of the server's preset.
    pub(super) preset: Option<Unbounded>,
    /// The probes whose passings are counted.
    pub(super) probes: Vec<String>,
}

impl<S: Subject> Stage<'_, S> {
    /// A slice alone and one at each level, in this order or turned round.
    pub(super) async fn round(&mut self, levels: &[Level], turned: bool) -> Result<Round> {
        let mut alone = None;
        let mut watched: Vec<Option<Sample>> = vec![None; levels.len()];
        let mut order: Vec<Option<usize>> = std::iter::once(None)
            .chain((0..levels.len()).map(Some))
            .collect();
        if turned {
            order.reverse();
        }
        for place in order {
            let level = place.map(|index| levels[index]);
            let sample = Some(self.sample(level).await?);
            match place {
                None => alone = sample,
                Some(index) => watched[index] = sample,
            }
        }
        let alone = alone.context("every round has a slice alone")?;
        Ok(Round {
            alone,
            watched: watched.into_iter().flatten().collect(),
        })
    }

    /// An agent that stays.
    pub(super) async fn hold(&mut self) -> Result<Held> {
        Held::of(self.watch(Level::Calm).await?)
    }

    async fn watch(&mut self, level: Level) -> Result<Agent> {
        let preset = self.preset.as_ref().map(Unbounded::arguments);
        let words: Vec<&str> = preset.iter().flatten().map(String::as_str).collect();
        watch(&mut self.subject, self.binary, level, &words).await
    }

    /// One slice.
    async fn sample(&mut self, level: Option<Level>) -> Result<Sample> {
        if let Some(held) = &mut self.held {
            held.watch(level).await?;
            let pid = held.pid();
            let mut sample = self.measure(level.map(|_| pid)).await?;
            if let (Some(level), Some(held)) = (level, &self.held) {
                sample.shares = self.shares(level, &held.seen());
            }
            return Ok(sample);
        }
        let agent = match level {
            Some(level) => Some(self.watch(level).await?),
            None => None,
        };
        sleep(SETTLE).await;
        let pid = agent.as_ref().map(agent_pid).transpose()?;
        let mut sample = self.measure(pid).await?;
        if let (Some(agent), Some(used), Some(level)) = (agent, &mut sample.agent, level) {
            let seen = agent.stop().await?;
            used.suspicions = seen.suspicions;
            sample.shares = self.shares(level, &seen);
        }
        Ok(sample)
    }

    fn shares(&self, level: Level, seen: &Seen) -> Vec<f64> {
        let probes = self.probes.iter();
        probes
            .map(|probe| seen.share(level.name(), probe))
            .collect()
    }

    /// What server and agent, if there is one, use from now on for the length of a slice.
    async fn measure(&mut self, agent: Option<u32>) -> Result<Sample> {
        let agent_before_ns = agent.map(cpu_ns).transpose()?;
        let (count, before_ns, begun_ns) = self.reading().await?;
        sleep(self.slice).await;
        let (count_after, after_ns, ended_ns) = self.reading().await?;
        let used = |(pid, before_ns): (u32, u64)| -> Result<AgentUse> {
            let cpu_ns = cpu_ns(pid)?.saturating_sub(before_ns);
            let Memory {
                rss_bytes,
                peak_bytes,
            } = Memory::of(pid)?;
            Ok(AgentUse {
                cpu_ns,
                rss_bytes,
                peak_bytes,
                suspicions: 0,
            })
        };
        Ok(Sample {
            server_cpu_ns: after_ns.saturating_sub(before_ns),
            query_count: count_after.saturating_sub(count),
            wall_ns: ended_ns - begun_ns,
            agent: agent.zip(agent_before_ns).map(used).transpose()?,
            shares: Vec::new(),
        })
    }

    /// What the server has answered, the CPU time that it took, and when that was read.
    async fn reading(&mut self) -> Result<(u64, u64, u64)> {
        let count = self.subject.count().await?;
        Ok((count, self.subject.cpu_ns()?, now_ns()))
    }

    /// How often each probe fires under this load, every probe attached.
    pub(super) async fn hits(&mut self, workload: Workload) -> Result<Vec<Hits>> {
        let (report, per_s) = count(&mut self.subject, self.binary, workload).await?;
        Ok(Hits::of(&report, per_s))
    }
}
