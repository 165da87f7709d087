//! Reads the kernel half's sums, one call a map.

use anyhow::{Context as _, Result};
use atropos_common::histogram::BUCKETS;
use atropos_common::limits::{Loss, MAX_SITES, Since};
use aya::maps::{Array, Map, MapData, PerCpuArray, PerCpuValues};

/// Counts of one array over all CPUs.
pub type Latencies = [u64; BUCKETS];

/// The counting maps.
pub struct Counters {
    latency: PerCpuArray<MapData, Latencies>,
    hits: PerCpuArray<MapData, [u64; MAX_SITES as usize]>,
    lost: PerCpuArray<MapData, [u64; Loss::COUNT]>,
    since: Array<MapData, u64>,
}

impl Counters {
    pub(super) fn new(mut take: impl FnMut(&'static str) -> Result<Map>) -> Result<Self> {
        Ok(Self {
            latency: PerCpuArray::try_from(take("LATENCY")?).context("map LATENCY")?,
            hits: PerCpuArray::try_from(take("HITS")?).context("map HITS")?,
            lost: PerCpuArray::try_from(take("LOST")?).context("map LOST")?,
            since: Array::try_from(take("SINCE")?).context("map SINCE")?,
        })
    }

    /// Latencies of completed requests by bucket since the start.
    pub fn latencies(&self) -> Result<Latencies> {
        Ok(sum(&self
            .latency
            .get(&0, 0)
            .context("cannot read map LATENCY")?))
    }

    /// Passings in scope by site since the start.
    pub fn hits(&self) -> Result<[u64; MAX_SITES as usize]> {
        Ok(sum(&self
            .hits
            .get(&0, 0)
            .context("cannot read map HITS")?))
    }

    /// What could not be kept, by [`Loss`], since the start.
    pub fn lost(&self) -> Result<[u64; Loss::COUNT]> {
        Ok(sum(&self
            .lost
            .get(&0, 0)
            .context("cannot read map LOST")?))
    }

    /// Starts a sample of requests: those that began before `at_ns` are not timed.
    pub fn start_sample(&mut self, at_ns: u64) -> Result<()> {
        self.whole_since(Since::Requests, at_ns)
    }

    /// Forgets who brought units in, or drove them out, before `at_ns`.
    pub fn forget_units(&mut self, at_ns: u64) -> Result<()> {
        self.whole_since(Since::Units, at_ns)
    }

    fn whole_since(&mut self, of: Since, at_ns: u64) -> Result<()> {
        self.since
            .set(of as u32, at_ns, 0)
            .context("cannot write map SINCE")
    }
}

/// Adds up the CPUs' arrays.
fn sum<const N: usize>(values: &PerCpuValues<[u64; N]>) -> [u64; N] {
    let mut total = [0; N];
    for cpu in values.iter() {
        for (to, from) in total.iter_mut().zip(cpu) {
            *to += from;
        }
    }
    total
}
