//! Is the objective broken, and since when? The latency percentile over completed requests *and over the ages of those
//! still in flight*, whether throughput has stopped growing, and what is normal.
//!
//! Overload is suspected when the percentile is above the limit, throughput is flat and work is pending. With nothing in
//! flight there is no overload, however far throughput fell. What is normal is learned in calm only, and only from
//! times with traffic, so that neither a collapse nor an idle night becomes the norm.

use std::collections::VecDeque;

use atropos_common::histogram::lower_bound_ns;

use super::input::{RequestStats, SessionKey};
use super::settings::{Slo, SloLimit, Tuning};
use super::window::seconds;

/// Time constant of the throughput reference: it follows the load within seconds and outlives a short dip.
const REFERENCE_S: f64 = 5.0;

/// Time constant of the calm latency, in seconds for which requests were covered: about ten samples of 100 ms.
const COVERED_S: f64 = 1.0;

/// Growth of throughput excuses a breach for this many windows, then no longer: a wave of requests is served or in a queue by
/// then. 2: one second. Requests that do not end are not excused by others that do, and more of it only makes the decision later.
const EXCUSED_WINDOWS: u64 = 2;

/// A tick longer than a window tells nothing more; a shorter one than this adds nothing to remember.
const MAX_TICKS: usize = 256;

/// So few samples are simply sorted.
const FEW: usize = 64;

/// A request in progress whose latency matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) session: SessionKey,
    pub(super) since_ns: u64,
    /// It waits at this moment.
    pub(super) waiting: bool,
    /// Time it has waited so far.
    pub(super) waited_ns: u64,
}

/// What the detector sees at a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) latency_ns: u64,
    pub(super) limit_ns: u64,
    pub(super) throughput: Option<f64>,
    pub(super) reference: Option<f64>,
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    /// The percentile is above the limit, by more than one request that waits for nothing.
    pub(super) breached: bool,
    /// ... and throughput is flat and work is pending.
    pub(super) over: bool,
    /// The moment when enough requests had passed the limit, as far as ages tell; else the tick.
    pub(super) breach_ns: u64,
}

#[derive(Clone, Debug)]
struct Counted {
    at_ns: u64,
    span_ns: u64,
    completed: Option<u64>,
    covered_ns: u64,
    latency: Vec<(u16, u64)>,
}

/// The detector.
#[derive(Clone, Debug)]
pub(super) struct Detector {
    slo: Slo,
    window_ns: u64,
    flat_tolerance: f64,
    ticks: VecDeque<Counted>,
    last_tick_ns: Option<u64>,
    reference: Option<f64>,
    calm_percentile_ns: Option<f64>,
    calm_mean_ns: Option<f64>,
    breached_since_ns: Option<u64>,
    /// Room for a tick's samples.
    samples: Vec<(u64, u64)>,
}

impl Detector {
    pub(super) fn new(slo: Slo, tuning: &Tuning) -> Self {
        Self {
            slo,
            window_ns: tuning.window_ns,
            flat_tolerance: tuning.flat_tolerance,
            ticks: VecDeque::new(),
            last_tick_ns: None,
            reference: None,
            calm_percentile_ns: None,
            calm_mean_ns: None,
            breached_since_ns: None,
            samples: Vec::new(),
        }
    }

    /// Takes a tick's counts in.
    pub(super) fn count(&mut self, requests: &RequestStats, now_ns: u64) {
        // The first tick's counts have no known beginning.
        if let Some(last_ns) = self.last_tick_ns.filter(|last_ns| now_ns > *last_ns) {
            self.ticks.push_back(Counted {
                at_ns: now_ns,
                span_ns: now_ns - last_ns,
                completed: requests.completed,
                covered_ns: requests.covered_ns,
                latency: requests.latency.clone(),
            });
        }
        self.last_tick_ns = Some(now_ns);
        let horizon_ns = now_ns.saturating_sub(self.window_ns);
        while self
            .ticks
            .front()
            .is_some_and(|tick| tick.at_ns <= horizon_ns)
            || self.ticks.len() > MAX_TICKS
        {
            self.ticks.pop_front();
        }
    }

    /// The limit in force, nanoseconds.
    pub(super) fn limit_ns(&self) -> u64 {
        match self.slo.limit {
            SloLimit::Absolute { ns } => ns,
            SloLimit::Relative { above, floor_ns } => {
                self.calm_percentile_ns.map_or(floor_ns, |calm_ns| {
                    floor_ns.max((calm_ns * (1.0 + above)) as u64)
                })
            }
        }
    }

    /// Looks at the window that ends at `now_ns`.
    pub(super) fn assess(&mut self, flights: &[Flight], now_ns: u64) -> Reading {
        let limit_ns = self.limit_ns();
        let mut samples = std::mem::take(&mut self.samples);
        let latency_ns = self.percentile_ns(flights, now_ns, &mut samples);
        self.samples = samples;
        let breached = latency_ns > limit_ns && !self.is_lone(flights, limit_ns, now_ns);
        let breach_ns = if breached {
            self.breach_ns(flights, limit_ns, now_ns)
        } else {
            now_ns
        };
        self.breached_since_ns = breached.then(|| self.breached_since_ns.unwrap_or(now_ns));
        let in_flight = flights.len() as u64;
        Reading {
            latency_ns,
            limit_ns,
            throughput: self.throughput(),
            reference: self.reference,
            in_flight,
            waiting: flights.iter().filter(|flight| flight.waiting).count() as u64,
            breached,
            over: breached && in_flight > 0 && self.is_flat(now_ns),
            breach_ns,
        }
    }

    /// Learns what is normal; to be called in calm only.
    pub(super) fn learn(&mut self) {
        let Some(latest) = self.ticks.back() else {
            return;
        };
        let span_s = seconds(latest.span_ns);
        let covered_s = seconds(latest.covered_ns.min(latest.span_ns));
        if self.span_ns().saturating_mul(10) >= self.window_ns.saturating_mul(9)
            && let Some(rate) = self.throughput().filter(|rate| *rate > 0.0)
        {
            self.reference = Some(follow(
                self.reference,
                rate,
                span_s / (REFERENCE_S + span_s),
            ));
        }
        let counted = total(latest.latency.iter().map(|(_, count)| *count));
        if counted > 0 && covered_s > 0.0 {
            let weight = covered_s / (COVERED_S + covered_s);
            let mut samples: Vec<(u64, u64)> = self.completed().collect();
            let percentile_ns = percentile(&mut samples, self.slo.percentile) as f64;
            self.calm_percentile_ns = Some(follow(self.calm_percentile_ns, percentile_ns, weight));
            let total_ns: f64 = latest
                .latency
                .iter()
                .map(|(b, n)| lower_bound_ns(usize::from(*b)) as f64 * *n as f64)
                .sum();
            self.calm_mean_ns = Some(follow(self.calm_mean_ns, total_ns / counted as f64, weight));
        }
    }

    /// Time that requests which completed in the window took within it, seconds.
    pub(super) fn completed_s(&self) -> f64 {
        let covered: f64 = self
            .completed()
            .map(|(ns, count)| seconds(ns.min(self.window_ns)) * count as f64)
            .sum();
        covered + self.uncovered() as f64 * self.calm_mean_ns.unwrap_or(0.0) / 1e9
    }

    /// Latency above the limit of requests that completed in the window, seconds; each at most one window.
    pub(super) fn completed_excess_s(&self) -> f64 {
        let limit_ns = self.limit_ns();
        self.completed()
            .map(|(ns, count)| {
                seconds(ns.saturating_sub(limit_ns).min(self.window_ns)) * count as f64
            })
            .sum()
    }

    /// Latency and count of the requests that completed in the window while they were covered.
    fn completed(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ticks
            .iter()
            .flat_map(|tick| &tick.latency)
            .map(|(b, count)| (lower_bound_ns(usize::from(*b)), *count))
    }

    /// Requests that completed in the window and were not covered.
    fn uncovered(&self) -> u64 {
        let covered = total(self.completed().map(|(_, count)| count));
        total(self.ticks.iter().filter_map(|tick| tick.completed)).saturating_sub(covered)
    }

    /// Requests that completed in the window and took longer than the limit.
    fn slow(&self, limit_ns: u64) -> u64 {
        total(
            self.completed()
                .filter(|(ns, _)| *ns > limit_ns)
                .map(|(_, count)| count),
        )
    }

    /// A single slow request that waits for nothing is a slow request, not an overload: where traffic is thin, it alone
    /// makes the percentile.
    fn is_lone(&self, flights: &[Flight], limit_ns: u64, now_ns: u64) -> bool {
        let mut old = flights
            .iter()
            .filter(|flight| now_ns.saturating_sub(flight.since_ns) > limit_ns);
        let (first, second) = (old.next(), old.next());
        self.slow(limit_ns) == 0 && second.is_none() && first.is_none_or(|flight| !flight.waiting)
    }

    fn span_ns(&self) -> u64 {
        total(self.ticks.iter().map(|tick| tick.span_ns))
    }

    /// Completions a second in the window: the target's own count, else the covered ones scaled to the whole tick.
    fn throughput(&self) -> Option<f64> {
        let (mut completions, mut span_ns) = (0.0, 0);
        for tick in &self.ticks {
            let counted = total(tick.latency.iter().map(|(_, count)| *count));
            completions += match tick.completed {
                Some(completed) => completed as f64,
                None if tick.covered_ns > 0 => {
                    counted as f64 * tick.span_ns as f64 / tick.covered_ns as f64
                }
                None => continue,
            };
            span_ns += tick.span_ns;
        }
        (span_ns > 0).then(|| completions / seconds(span_ns))
    }

    fn is_flat(&self, now_ns: u64) -> bool {
        let (Some(rate), Some(reference)) = (self.throughput(), self.reference) else {
            return true;
        };
        let stalled = self.ticks.len() >= 2
            && self
                .ticks
                .iter()
                .rev()
                .take(2)
                .all(|tick| tick.completed == Some(0) && tick.latency.is_empty());
        let excused = self.breached_since_ns.is_none_or(|since_ns| {
            now_ns.saturating_sub(since_ns) < EXCUSED_WINDOWS.saturating_mul(self.window_ns)
        });
        rate <= reference * (1.0 + self.flat_tolerance) || stalled || !excused
    }

    /// Requests that completed uncovered count as fast: nothing is known against them.
    fn percentile_ns(&self, flights: &[Flight], now_ns: u64, samples: &mut Vec<(u64, u64)>) -> u64 {
        samples.clear();
        samples.extend(self.completed());
        samples.push((0, self.uncovered()));
        samples.extend(
            flights
                .iter()
                .map(|flight| (now_ns.saturating_sub(flight.since_ns), 1)),
        );
        percentile(samples, self.slo.percentile)
    }

    /// When the request that made the percentile cross the limit passed it.
    fn breach_ns(&self, flights: &[Flight], limit_ns: u64, now_ns: u64) -> u64 {
        let completed =
            total(self.completed().map(|(_, count)| count)).saturating_add(self.uncovered());
        let all = completed.saturating_add(flights.len() as u64);
        // One more than may lie above the percentile's rank.
        let needed = all
            .saturating_sub(rank(all, self.slo.percentile))
            .saturating_add(1);
        let Some(nth) = needed.checked_sub(self.slow(limit_ns).saturating_add(1)) else {
            return now_ns;
        };
        let mut starts_ns: Vec<u64> = flights.iter().map(|flight| flight.since_ns).collect();
        starts_ns.sort_unstable();
        starts_ns.get(nth as usize).map_or(now_ns, |since_ns| {
            since_ns.saturating_add(limit_ns).min(now_ns)
        })
    }
}

fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn follow(known: Option<f64>, value: f64, weight: f64) -> f64 {
    known.map_or(value, |known| known + (value - known) * weight)
}

/// The rank (from 1) of the percentile among `total` samples.
fn rank(total: u64, percentile: f64) -> u64 {
    ((total as f64 * percentile / 100.0).ceil() as u64).clamp(1, total.max(1))
}

/// Nearest-rank percentile of (value, count) samples; 0 without any. Puts them in another order.
fn percentile(samples: &mut [(u64, u64)], percentile: f64) -> u64 {
    let mut left = rank(total(samples.iter().map(|(_, count)| *count)), percentile);
    let mut rest = samples;
    // Sorting thousands costs more than going into the half that has the rank, again and again.
    while rest.len() > FEW {
        let middle = rest.len() / 2;
        rest.select_nth_unstable(middle);
        let below = total(rest[..middle].iter().map(|(_, count)| *count));
        if left > below {
            left -= below;
            rest = &mut rest[middle..];
        } else {
            rest = &mut rest[..middle];
        }
    }
    rest.sort_unstable();
    for (value, count) in rest.iter() {
        if *count >= left {
            return *value;
        }
        left -= count;
    }
    0
}

#[cfg(test)]
#[path = "detector_tests.rs"]
mod tests;
