//! The result for programs: what `--json FILE` writes, and how it is worked out from samples, acts and what the agent said.
//!
//! Requests belong to the phase in which they arrive; completions are counted in the phase in which they happen.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::clock::{MS, SECOND};
use super::load::Sample;
use super::place::is_hurt;
use super::scene::{Acts, Scene};
use super::watch::Seen;

/// Version of the format.
const SCHEMA_VERSION: u32 = 1;
/// The phase "after" begins this long after the release: the backlog is served by then.
pub(crate) const SETTLE_NS: u64 = 2 * SECOND;
/// Recovery is looked for in windows of this length,
const WINDOW_NS: u64 = 500 * MS;
/// moved by this much,
const STEP_NS: u64 = 50 * MS;
/// and is there when p99 is at most this times what it was before.
const RECOVERED: f64 = 1.2;

/// The whole result.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema_version: u32,
    /// Whether Atropos was there.
    atropos: bool,
    /// Requests a second that were offered.
    rate: u64,
    /// Connections that they shared.
    connections: usize,
    /// One for each case.
    pub(crate) cases: Vec<Played>,
}

/// One case that was played.
#[derive(Debug, Serialize)]
pub(crate) struct Played {
    /// Its id.
    pub(crate) id: &'static str,
    /// The culprit whose ending is right.
    pub(crate) target_expected: &'static str,
    /// Whom the first order named; `None` if there was none.
    pub(crate) target_chosen: Option<String>,
    /// Orders in all.
    pub(crate) orders: usize,
    /// From the others being blocked to the decision.
    pub(crate) trouble_to_decision_ms: Option<f64>,
    /// From the first breach of the SLO that the agent saw to its decision.
    pub(crate) breach_to_decision_ms: Option<f64>,
    /// From the decision to the server's answer to the command.
    pub(crate) decision_to_command_ms: Option<f64>,
    /// From the command's sending to the release, as the culprits' connections show it.
    pub(crate) command_to_release_ms: Option<f64>,
    /// For how long the others were blocked.
    pub(crate) stall_ms: f64,
    /// From the release to p99 being within 20 % of what it was before.
    pub(crate) recovery_ms: Option<f64>,
    /// Victims that were cancelled, and orders that named a wrong culprit.
    pub(crate) wrong_cancels: usize,
    /// Calm.
    pub(crate) before: Phase,
    /// Blocked.
    pub(crate) during: Phase,
    /// From two seconds after the release.
    pub(crate) after: Phase,
}

/// The victims in one phase.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Phase {
    /// Its length.
    pub(crate) seconds: f64,
    /// Requests that arrived.
    pub(crate) offered: usize,
    /// Requests that were answered without an error, whenever they had arrived.
    pub(crate) completed: usize,
    /// Median latency of those that arrived; a request without an answer counts with its age.
    pub(crate) p50_ms: f64,
    /// 99th percentile of the same.
    pub(crate) p99_ms: f64,
    /// Errors among the answers.
    pub(crate) errors: usize,
}

impl Report {
    /// An empty result.
    pub(crate) fn new(atropos: bool) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            atropos,
            rate: super::load::RATE,
            connections: super::load::CONNECTIONS,
            cases: Vec::new(),
        }
    }

    /// Writes it.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// When a case began and ended.
pub(crate) struct Span {
    /// Start of the phase "before".
    pub(crate) from_ns: u64,
    /// End of the phase "after".
    pub(crate) to_ns: u64,
}

impl Played {
    /// Works a case out.
    pub(crate) fn new(
        scene: &Scene,
        span: &Span,
        acts: &Acts,
        seen: &Seen,
        samples: &[Sample],
    ) -> Self {
        let phase = |from_ns, to_ns| Phase::new(samples, from_ns, to_ns, span.to_ns);
        let before = phase(span.from_ns.max(acts.calm_from_ns), acts.calm_until_ns);
        let recovery_ms = recovery_ns(samples, acts.release_ns, span.to_ns, before.p99_ms).map(ms);
        let targets = Targets::of(seen, acts);
        let decision = seen
            .decisions
            .iter()
            .find(|decision| !decision.orders.is_empty());
        let command = decision.and_then(|decision| {
            let order = decision.orders.first()?.order;
            seen.commands.iter().find(|command| command.order == order)
        });
        let hurt = samples
            .iter()
            .filter(|sample| sample.arrived_ns >= span.from_ns);
        let hurt = hurt.filter(|sample| is_hurt(sample.error)).count();
        Self {
            id: scene.id,
            target_expected: scene.expected,
            target_chosen: targets.names.first().cloned(),
            orders: targets.names.len(),
            trouble_to_decision_ms: decision
                .map(|decision| ms(decision.at_ns.saturating_sub(acts.trouble_ns))),
            breach_to_decision_ms: decision
                .map(|decision| ms(decision.at_ns.saturating_sub(decision.breach_ns))),
            decision_to_command_ms: decision.zip(command).map(|(decision, command)| {
                ms(command.answered_at_ns.saturating_sub(decision.at_ns))
            }),
            command_to_release_ms: command
                .map(|command| ms(acts.release_ns.saturating_sub(command.sent_at_ns))),
            stall_ms: ms(acts.release_ns - acts.trouble_ns),
            recovery_ms,
            wrong_cancels: targets.strangers.max(hurt) + targets.wrong(scene.expected),
            before,
            during: phase(acts.trouble_ns, acts.release_ns),
            after: phase(acts.release_ns + SETTLE_NS, span.to_ns),
        }
    }
}

/// Whom the orders named.
struct Targets {
    /// By the demo's names, in order.
    names: Vec<String>,
    /// How many were no culprits at all.
    strangers: usize,
}

impl Targets {
    fn of(seen: &Seen, acts: &Acts) -> Self {
        let mut targets = Self {
            names: Vec::new(),
            strangers: 0,
        };
        for order in seen.decisions.iter().flat_map(|decision| &decision.orders) {
            let id = order.task.id;
            if let Some(culprit) = acts.culprits.iter().find(|culprit| culprit.id == id) {
                targets.names.push(culprit.name.to_owned());
            } else {
                targets.names.push(format!("victim {id}"));
                targets.strangers += 1;
            }
        }
        targets
    }

    /// Orders that named a culprit whose ending is not the right answer.
    fn wrong(&self, expected: &str) -> usize {
        let others = self.names.iter().filter(|name| *name != expected).count();
        others - self.strangers
    }
}

impl Phase {
    fn new(samples: &[Sample], from_ns: u64, to_ns: u64, end_ns: u64) -> Self {
        let within = |at_ns: u64| at_ns >= from_ns && at_ns < to_ns;
        let answered = || samples.iter().filter(|sample| within(sample.finished_ns));
        let latencies = latencies_ns(samples, from_ns, to_ns, end_ns);
        Self {
            seconds: to_ns.saturating_sub(from_ns) as f64 / SECOND as f64,
            offered: latencies.len(),
            completed: answered().filter(|sample| sample.error == 0).count(),
            p50_ms: ms(percentile(&latencies, 50)),
            p99_ms: ms(percentile(&latencies, 99)),
            errors: answered().filter(|sample| sample.error != 0).count(),
        }
    }
}

/// Latencies of the requests that arrived in a span, sorted; ages at `end_ns` for those without an answer by then.
fn latencies_ns(samples: &[Sample], from_ns: u64, to_ns: u64, end_ns: u64) -> Vec<u64> {
    let first = samples.partition_point(|sample| sample.arrived_ns < from_ns);
    let last = samples.partition_point(|sample| sample.arrived_ns < to_ns);
    let mut latencies: Vec<u64> = samples[first..last.max(first)]
        .iter()
        .map(|sample| {
            let until_ns = if sample.finished_ns == 0 {
                end_ns
            } else {
                sample.finished_ns
            };
            until_ns.saturating_sub(sample.arrived_ns)
        })
        .collect();
    latencies.sort_unstable();
    latencies
}

/// Nearest-rank percentile of sorted values; 0 of none.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// From the release to the first window in which p99 is back.
fn recovery_ns(
    samples: &[Sample],
    release_ns: u64,
    end_ns: u64,
    before_p99_ms: f64,
) -> Option<u64> {
    let last_ns = end_ns.saturating_sub(WINDOW_NS);
    (release_ns..=last_ns)
        .step_by(usize::try_from(STEP_NS).ok()?)
        .find_map(|from_ns| {
            let latencies = latencies_ns(samples, from_ns, from_ns + WINDOW_NS, end_ns);
            let back = !latencies.is_empty()
                && ms(percentile(&latencies, 99)) <= RECOVERED * before_p99_ms;
            back.then(|| from_ns - release_ns)
        })
}

fn ms(ns: u64) -> f64 {
    // Microseconds are precise enough for whoever reads this.
    (ns / 1_000) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request each millisecond, answered after one, except those that arrive while blocked, which are answered at the release.
    fn samples(to_ms: u64, blocked_ms: std::ops::Range<u64>) -> Vec<Sample> {
        (0..to_ms)
            .map(|at_ms| Sample {
                arrived_ns: at_ms * MS,
                finished_ns: if blocked_ms.contains(&at_ms) {
                    blocked_ms.end * MS
                } else {
                    (at_ms + 1) * MS
                },
                error: 0,
            })
            .collect()
    }

    #[test]
    fn a_percentile_is_a_value_that_was_seen() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&values, 50), 50);
        assert_eq!(percentile(&values, 99), 99);
        assert_eq!(percentile(&[7], 99), 7);
        assert_eq!(percentile(&[], 99), 0);
    }

    #[test]
    fn a_stall_shows_in_the_latency_of_what_arrives_in_it_and_in_no_other_phase() {
        let samples = samples(6_000, 2_000..3_000);
        let phase =
            |from_ms: u64, to_ms: u64| Phase::new(&samples, from_ms * MS, to_ms * MS, 6_000 * MS);
        assert_eq!(phase(0, 2_000).p99_ms.round() as u64, 1);
        let during = phase(2_000, 3_000);
        assert_eq!((during.offered, during.completed), (1_000, 1));
        assert!(during.p99_ms > 980.0, "{during:?}");
        // The backlog is answered after the release.
        assert!(phase(3_000, 4_000).completed > 1_900);
    }

    #[test]
    fn a_request_without_an_answer_counts_with_its_age() {
        let samples = [Sample {
            arrived_ns: SECOND,
            ..Sample::default()
        }];
        let phase = Phase::new(&samples, SECOND, 2 * SECOND, 4 * SECOND);
        assert_eq!(
            (phase.offered, phase.completed, phase.p99_ms as u64),
            (1, 0, 3_000)
        );
    }

    #[test]
    fn recovery_is_where_the_percentile_is_back_and_not_before() {
        let calm = samples(6_000, 2_000..3_000);
        assert_eq!(recovery_ns(&calm, 3_000 * MS, 6_000 * MS, 1.0), Some(0));
        assert_eq!(
            recovery_ns(&calm, 2_500 * MS, 6_000 * MS, 1.0),
            Some(500 * MS)
        );
        let never = samples(6_000, 2_000..6_000);
        assert_eq!(recovery_ns(&never, 3_000 * MS, 6_000 * MS, 1.0), None);
    }
}
