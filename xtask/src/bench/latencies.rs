//! Latencies as the load's own program saw them: out of sysbench's histogram, or out of pgbench's log. Pure but for reading
//! the log.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Latencies of one run, each with how often it was seen, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Latencies(Vec<(f64, u64)>);

impl Latencies {
    /// Of latencies in microseconds, each with its count, in any order.
    pub(super) fn of(counts: impl IntoIterator<Item = (f64, u64)>) -> Self {
        let mut counts: Vec<(f64, u64)> = counts.into_iter().collect();
        counts.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self(counts)
    }

    /// Out of what sysbench printed, or pgbench wrote into that folder.
    pub(super) fn read(output: &str, log: &Path) -> Result<Self> {
        let printed = Self::of(histogram(output));
        if printed.count() > 0 {
            return Ok(printed);
        }
        let mut counts = Vec::new();
        for entry in fs::read_dir(log).with_context(|| format!("cannot read {}", log.display()))? {
            let file = entry?.path();
            let text = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            counts.extend(text.lines().filter_map(logged).map(|us| (us, 1)));
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        Ok(Self::of(counts))
    }

    /// How many.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The latency that so many per cent do not exceed, by nearest rank, microseconds; `None` of none.
    pub(super) fn percentile_us(&self, percent: u64) -> Option<f64> {
        let rank = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        self.0.iter().find_map(|(us, count)| {
            seen += count;
            (seen >= rank).then_some(*us)
        })
    }
}

/// The rows of sysbench's histogram: milliseconds, a bar, a count.
fn histogram(output: &str) -> impl Iterator<Item = (f64, u64)> {
    output.lines().filter_map(|line| {
        let (value, bar) = line.split_once('|')?;
        let count = bar.split_whitespace().next_back()?;
        Some((
            value.trim().parse::<f64>().ok()? * 1000.0,
            count.parse().ok()?,
        ))
    })
}

/// A line of pgbench's log: client, number, latency in microseconds, script, two words of time, and with a rate the delay
/// behind the plan, which is in the latency and which no server can see.
fn logged(line: &str) -> Option<f64> {
    let words: Vec<&str> = line.split(' ').collect();
    let latency: f64 = words.get(2)?.parse().ok()?;
    let delay = words.get(6).map_or(Ok(0.0), |word| word.parse::<f64>());
    Some(latency - delay.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_sysbenchs_rows() {
        let output = "Latency histogram (values are in milliseconds)\n       value  ------------- distribution ------------- count\n       0.048 |**                                       98\n       0.050 |                                         1\n       2.000 |                                         1\n\nSQL statistics:\n";
        let latencies = Latencies::read(output, Path::new("/nowhere")).unwrap();
        assert_eq!(latencies.count(), 100);
        assert_eq!(latencies.percentile_us(50), Some(48.0));
        assert_eq!(latencies.percentile_us(99), Some(50.0));
        assert_eq!(latencies.percentile_us(100), Some(2000.0));
    }

    #[test]
    fn pgbenchs_delay_behind_its_plan_is_not_the_servers_latency() {
        assert_eq!(logged("0 12 512 0 1764460800 123456"), Some(512.0));
        assert_eq!(logged("0 12 512 0 1764460800 123456 500"), Some(12.0));
        assert_eq!(logged("0 12 skipped 0 1764460800 123456 500"), None);
        assert_eq!(logged(""), None);
        assert_eq!(Latencies::default().percentile_us(50), None);
    }
}
