//! What a run came to.

use crate::plan::Plan;
use crate::world::task::Failure;

/// Length of the slices of time that count as good or bad, nanoseconds.
const SLICE_NS: u64 = 100_000_000;

/// An episode of bad slices is over after so many that are not: one second.
const QUIET_SLICES: usize = 10;

/// A slice is bad if more than this share of its requests was late or lost.
const BAD_SHARE: f64 = 0.05;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// With an answer.
    Served,
    /// Without.
    Failed(Failure),
    /// Not before the run did.
    Open,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
struct Record {
    class: usize,
    first_ns: u64,
    end_ns: u64,
    fate: Fate,
}

/// A cancel that the server accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancelled {
    pub(crate) class: usize,
    pub(crate) culprit: bool,
    pub(crate) at_ns: u64,
}

/// Everything counted in a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measure {
    records: Vec<Record>,
    pub(crate) cancels: Vec<Cancelled>,
    /// Waits that the controller ended.
    pub(crate) abort_count: u64,
    pub(crate) deadlock_count: u64,
    pub(crate) retry_count: u64,
    /// Work of requests that got no answer, nanoseconds.
    pub(crate) wasted_ns: u64,
    /// Work of all requests that are over, nanoseconds.
    pub(crate) worked_ns: u64,
}

/// What the innocents got in a run, and what it cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// Requests of innocents served from the trouble on.
    pub(crate) served_count: f64,
    /// ... within the objective.
    pub(crate) good_count: f64,
    /// Their p99, nanoseconds; those still open count with their age.
    pub(crate) p99_ns: f64,
    /// Share of the innocents' requests that was refused, dropped, aborted, cancelled, or given up.
    pub(crate) innocent_drops: f64,
    /// Share of the culprits' requests that did not get their answer.
    pub(crate) culprit_drops: f64,
    pub(crate) cancel_count: f64,
    pub(crate) wrong_count: f64,
    /// Time in which innocents were late or lost, seconds.
    pub(crate) bad_s: f64,
    /// From the beginning of the longest episode of such time to the second in which all was well again, seconds.
    pub(crate) recovery_s: f64,
    /// Share of all work that came to nothing.
    pub(crate) wasted: f64,
}

impl Measure {
    /// A request is over.
    pub(crate) fn over(&mut self, class: usize, first_ns: u64, end_ns: u64, fate: Fate) {
        self.records.push(Record {
            class,
            first_ns,
            end_ns,
            fate,
        });
    }

    /// The server accepted a cancel.
    pub(crate) fn cancelled(&mut self, class: usize, culprit: bool, at_ns: u64) {
        self.cancels.push(Cancelled {
            class,
            culprit,
            at_ns,
        });
    }

    /// Mean latency of the requests that were served, nanoseconds.
    #[cfg(test)]
    pub(crate) fn mean_latency_ns(&self) -> f64 {
        let served = || {
            self.records
                .iter()
                .filter(|record| record.fate == Fate::Served)
        };
        served()
            .map(|record| latency_ns(record) as f64)
            .sum::<f64>()
            / served().count() as f64
    }

    /// Sums the run up.
    pub(crate) fn summary(&self, plan: &Plan) -> Summary {
        let innocent = innocents(plan);
        let since = |record: &Record| record.first_ns >= plan.from_ns;
        let of_innocents: Vec<&Record> = self
            .records
            .iter()
            .filter(|record| innocent[record.class])
            .collect();
        let measured: Vec<&Record> = of_innocents
            .iter()
            .copied()
            .filter(|record| since(record))
            .collect();
        let served = of_innocents
            .iter()
            .filter(|record| record.fate == Fate::Served && record.end_ns >= plan.from_ns);
        let bad = bad_slices(&measured, plan);
        let of_culprits: Vec<&Record> = self
            .records
            .iter()
            .filter(|record| plan.classes[record.class].culprit)
            .collect();
        Summary {
            served_count: served.clone().count() as f64,
            good_count: served
                .filter(|record| latency_ns(record) <= plan.slo_ns)
                .count() as f64,
            p99_ns: p99_ns(&measured),
            innocent_drops: failed_share(&measured),
            culprit_drops: failed_share(&of_culprits),
            cancel_count: self.cancels.len() as f64,
            wrong_count: self.cancels.iter().filter(|cancel| !cancel.culprit).count() as f64,
            bad_s: slices_s(bad.iter().filter(|bad| **bad).count()),
            recovery_s: slices_s(longest_episode(&bad)),
            wasted: self.wasted_ns as f64 / self.worked_ns.max(1) as f64,
        }
    }
}

/// Classes that are not the trouble: neither to blame nor injected.
fn innocents(plan: &Plan) -> Vec<bool> {
    (0..plan.classes.len())
        .map(|class| {
            !plan.classes[class].culprit
                && plan
                    .clients
                    .iter()
                    .any(|client| client.class == class && !client.injected)
        })
        .collect()
}

fn latency_ns(record: &Record) -> u64 {
    record.end_ns - record.first_ns
}

fn failed_share(records: &[&Record]) -> f64 {
    let failed = records
        .iter()
        .filter(|record| matches!(record.fate, Fate::Failed(_)))
        .count();
    failed as f64 / records.len().max(1) as f64
}

fn p99_ns(records: &[&Record]) -> f64 {
    let mut latencies: Vec<u64> = records
        .iter()
        .filter(|record| !matches!(record.fate, Fate::Failed(_)))
        .map(|record| latency_ns(record))
        .collect();
    latencies.sort_unstable();
    let rank = (latencies.len() as f64 * 0.99).ceil() as usize;
    latencies.get(rank.saturating_sub(1)).copied().unwrap_or(0) as f64
}

/// By slice of the run: more of those who asked in it were late or lost than may be.
fn bad_slices(records: &[&Record], plan: &Plan) -> Vec<bool> {
    let slice_count = (plan.duration_ns / SLICE_NS + 1) as usize;
    let mut slices = vec![(0_u64, 0_u64); slice_count];
    for record in records {
        let late = latency_ns(record) > plan.slo_ns;
        let young = record.fate == Fate::Open && !late;
        if young {
            continue;
        }
        let (total, bad) = &mut slices[(record.first_ns / SLICE_NS) as usize];
        *total += 1;
        *bad += u64::from(late || record.fate != Fate::Served);
    }
    slices
        .iter()
        .map(|(total, bad)| *bad as f64 > BAD_SHARE * *total as f64)
        .collect()
}

/// Slices from the first bad one to the last before a second without, in the longest such episode.
fn longest_episode(bad: &[bool]) -> usize {
    let (mut longest, mut first, mut last) = (0, None, 0);
    for slice in (0..bad.len()).filter(|slice| bad[*slice]) {
        if slice > last + QUIET_SLICES {
            first = None;
        }
        last = slice;
        longest = longest.max(slice + 1 - *first.get_or_insert(slice));
    }
    longest
}

fn slices_s(count: usize) -> f64 {
    count as f64 * SLICE_NS as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_episode_goes_on_over_short_quiet_times_and_the_longest_counts() {
        let mut bad = vec![false; 60];
        assert_eq!(longest_episode(&bad), 0);
        for slice in [2, 3, 9, 13] {
            bad[slice] = true;
        }
        assert_eq!(longest_episode(&bad), 12);
        // Ten quiet slices between two bad ones are a second in which all was well.
        for slice in [24, 25] {
            bad[slice] = true;
        }
        assert_eq!(longest_episode(&bad), 12);
        bad[23] = true;
        bad[40] = true;
        assert_eq!(longest_episode(&bad), 24);
    }
}
