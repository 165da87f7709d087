//! Whether a long run under enforcement was as it must be: nobody ended, nothing lost, nothing that grows. Pure.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::stats::Spread;
use crate::demo::watch::Seen;

/// Memory may differ by so much between the thirds of a run, bytes: what the C library keeps at hand.
const SLACK_BYTES: f64 = 1e6;
/// Descriptors and threads may differ by so many: a sample of requests may be under way at one look and not at another.
const SLACK_COUNT: f64 = 8.0;
/// The share of its plan that the load must have made, or it was no soak. Others on the machine may have come since it was made.
const LEAST_LOAD: f64 = 0.5;

/// One look at the agent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Look {
    /// Resident memory, bytes.
    pub(super) rss_bytes: u64,
    /// Open descriptors: maps, programs, links, connections.
    pub(super) descriptor_count: u64,
    /// Threads.
    pub(super) thread_count: u64,
}

/// What a soak at one server was.
#[derive(Debug, Serialize)]
pub(super) struct Soak {
    /// Server, for people.
    pub(super) server: &'static str,
    /// Length, seconds.
    pub(super) seconds: u64,
    /// Events a second that the load was told to make.
    pub(super) wanted_per_s: u64,
    /// Events that it made.
    pub(super) event_count: u64,
    /// Commands that the agent sent.
    pub(super) cancel_count: usize,
    /// What it gave as reasons.
    pub(super) reasons: Vec<String>,
    /// Events that it lost.
    pub(super) lost_count: u64,
    /// How often it began to watch closely.
    pub(super) suspicions: usize,
    /// CPU time of the agent, as a share of one core.
    pub(super) agent_cores: f64,
    /// Looks, at equal distances.
    pub(super) looks: Vec<Look>,
}

impl Soak {
    /// Takes over what the agent said.
    pub(super) fn heard(&mut self, seen: &Seen) {
        self.cancel_count = seen.commands.len();
        self.reasons = seen.reasons().map(str::to_owned).collect();
        self.lost_count = seen.lost;
        self.suspicions = seen.suspicions;
    }

    /// How much the median of a measure grew from the second third of the run to the last; the first is for settling down.
    fn growth(&self, measure: impl Fn(&Look) -> u64) -> f64 {
        let third = self.looks.len() / 3;
        let median = |looks: &[Look]| {
            Spread::of(looks.iter().map(|look| measure(look) as f64)).map(|spread| spread.median)
        };
        let middle = median(&self.looks[third..2 * third]);
        let last = median(&self.looks[2 * third..]);
        middle
            .zip(last)
            .map_or(f64::NAN, |(middle, last)| last - middle)
    }

    /// What is not as it must be.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.cancel_count > 0 {
            faults.push(format!(
                "{} commands sent to a healthy server: {}",
                self.cancel_count,
                self.reasons.join("; ")
            ));
        }
        if self.lost_count > 0 {
            faults.push(format!("{} events lost", self.lost_count));
        }
        // A growth that cannot be told is one, too.
        let rss = self.growth(|look| look.rss_bytes);
        if rss.is_nan() || rss > SLACK_BYTES {
            faults.push(format!("resident memory grew by {:.1} MB", rss / 1e6));
        }
        for (what, grown) in [
            ("descriptors", self.growth(|look| look.descriptor_count)),
            ("threads", self.growth(|look| look.thread_count)),
        ] {
            if grown.is_nan() || grown > SLACK_COUNT {
                faults.push(format!(
                    "{grown} more {what} in the last third than in the second"
                ));
            }
        }
        let wanted = self.wanted_per_s * self.seconds;
        if (self.event_count as f64) < LEAST_LOAD * wanted as f64 {
            faults.push(format!(
                "the load made {} events instead of {wanted}",
                self.event_count
            ));
        }
        faults
    }
}

impl fmt::Display for Soak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            server,
            seconds,
            wanted_per_s,
            event_count,
            cancel_count,
            lost_count,
            suspicions,
            agent_cores,
            looks,
            ..
        } = self;
        let last = looks.last();
        let show = |measure: fn(&Look) -> u64| last.map_or(0, measure);
        write!(
            f,
            "| {server} | {:.1} | {wanted_per_s} | {event_count} | {cancel_count} | {lost_count} | {suspicions} | {:.2} % | {:.1} ({:+.2}) | {} ({:+.0}) | {} ({:+.0}) |",
            *seconds as f64 / 60.0,
            agent_cores * 100.0,
            show(|look| look.rss_bytes) as f64 / 1e6,
            self.growth(|look| look.rss_bytes) / 1e6,
            show(|look| look.descriptor_count),
            self.growth(|look| look.descriptor_count),
            show(|look| look.thread_count),
            self.growth(|look| look.thread_count),
        )
    }
}

/// The table, as the documentation takes it.
pub(super) fn markdown(soaks: &[Soak]) -> String {
    let mut text = "| server | minutes | events a second wanted | events | cancels | lost | suspicions | agent of a core | RSS MB (growth) | descriptors (growth) | threads (growth) |\n|---|---|---|---|---|---|---|---|---|---|---|\n".to_owned();
    for soak in soaks {
        let _ = writeln!(text, "{soak}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soak(look: impl Fn(u64) -> Look) -> Soak {
        Soak {
            server: "MariaDB",
            seconds: 60,
            wanted_per_s: 100,
            event_count: 6000,
            cancel_count: 0,
            reasons: Vec::new(),
            lost_count: 0,
            suspicions: 1,
            agent_cores: 0.004,
            looks: (0..60).map(look).collect(),
        }
    }

    const STILL: Look = Look {
        rss_bytes: 19_000_000,
        descriptor_count: 40,
        thread_count: 4,
    };

    #[test]
    fn a_run_in_which_nothing_happens_is_without_fault() {
        let sampling = |at: u64| Look {
            descriptor_count: 40 + at % 5,
            ..STILL
        };
        assert!(soak(sampling).faults().is_empty());
        let settles = |at: u64| Look {
            rss_bytes: if at < 15 { 12_000_000 } else { 19_000_000 },
            ..STILL
        };
        assert!(soak(settles).faults().is_empty());
    }

    #[test]
    fn what_grows_is_a_fault() {
        let memory = soak(|at| Look {
            rss_bytes: 19_000_000 + at * 100_000,
            ..STILL
        })
        .faults();
        assert!(memory[0].contains("memory grew by 2.0 MB"), "{memory:?}");
        let descriptors = soak(|at| Look {
            descriptor_count: 40 + at,
            ..STILL
        })
        .faults();
        assert!(
            descriptors[0].contains("more descriptors"),
            "{descriptors:?}"
        );
        let threads = soak(|at| Look {
            thread_count: 4 + at,
            ..STILL
        })
        .faults();
        assert!(threads[0].contains("more threads"), "{threads:?}");
        assert_eq!(
            Soak {
                looks: Vec::new(),
                ..soak(|_| STILL)
            }
            .faults()
            .len(),
            3
        );
    }

    #[test]
    fn a_cancel_a_lost_event_or_a_load_that_stood_still_is_a_fault() {
        let still = || soak(|_| STILL);
        for (soak, word) in [
            (
                Soak {
                    cancel_count: 1,
                    ..still()
                },
                "healthy",
            ),
            (
                Soak {
                    lost_count: 2,
                    ..still()
                },
                "lost",
            ),
            (
                Soak {
                    event_count: 2000,
                    ..still()
                },
                "instead of 6000",
            ),
        ] {
            let faults = soak.faults();
            assert!(faults.len() == 1 && faults[0].contains(word), "{faults:?}");
        }
    }
}
