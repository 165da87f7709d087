//! DAGOR (`SoCC` 2018) and SEDA's adaptive rate: refuse at the door by delay. Source: the copies in caladan
//! `breakwater/src` (`dagor_server.c`, `sd_client.c`).

use std::sync::Arc;

use super::{Action, Controller, Job, Seen, Verdict};
use crate::plan::Plan;

const PERIOD_NS: u64 = 10_000_000;

/// Levels of priority; requests are spread over them by a hash, as users are in the original.
const LEVELS: f64 = 64.0;

/// DAGOR: a threshold of priority that falls by 5 % while the delay is above 6 S and rises by 1 % of the range otherwise.
/// Delay is smoothed with 0.8 / 0.2. The threshold starts at 32; a period is 10 ms (1 ms there).
pub(crate) struct Dagor {
    limit_ns: f64,
    delay_ns: f64,
    threshold: f64,
    count: u64,
}

impl Dagor {
    /// Scaled to the plan's mean service time.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            limit_ns: 6.0 * plan.mean_service_ns() as f64,
            delay_ns: 0.0,
            threshold: LEVELS / 2.0,
            count: 0,
        }
    }
}

impl Controller for Dagor {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick_ns(&self) -> u64 {
        PERIOD_NS
    }

    fn admit(&mut self, _job: &Job) -> Verdict {
        self.count = self.count.wrapping_add(1);
        // A step that is coprime to the range visits every level equally often.
        let priority = (self.count * 37 % LEVELS as u64) as f64;
        if priority > self.threshold {
            Verdict::Reject
        } else {
            Verdict::Admit
        }
    }

    fn tick(&mut self, seen: &Seen, _out: &mut Vec<Action>) {
        self.delay_ns = 0.8 * self.delay_ns + 0.2 * seen.queue_delay_ns as f64;
        self.threshold = if self.delay_ns > self.limit_ns {
            self.threshold * 0.95
        } else {
            (self.threshold + 0.01 * LEVELS).min(LEVELS)
        };
    }
}

/// SEDA: a token bucket for each client, its rate by a smoothed p99 (0.7 / 0.3) against a target of half the objective
/// (8 S there, which a database's own p99 exceeds): above it the rate is divided by 1.1, more than 50 % below it grows by
/// 4 requests a second for each unit of the error beyond 0.1. Burst 4. A period is 100 ms (1 ms there).
pub(crate) struct Seda {
    target_ns: f64,
    buckets: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    at_ns: u64,
    p99_ns: f64,
}

impl Seda {
    /// Scaled to the plan's objective.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        let bucket = Bucket {
            rate: 2_000.0,
            tokens: 4.0,
            at_ns: 0,
            p99_ns: 0.0,
        };
        Self {
            target_ns: plan.slo_ns as f64 / 2.0,
            buckets: vec![bucket; plan.clients.len()],
        }
    }
}

impl Controller for Seda {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick_ns(&self) -> u64 {
        10 * PERIOD_NS
    }

    fn admit(&mut self, job: &Job) -> Verdict {
        let bucket = &mut self.buckets[job.client];
        let earned = (job.now_ns - bucket.at_ns) as f64 / 1e9 * bucket.rate;
        bucket.tokens = (bucket.tokens + earned).min(4.0_f64.max(bucket.rate / 100.0));
        bucket.at_ns = job.now_ns;
        if bucket.tokens < 1.0 {
            return Verdict::Reject;
        }
        bucket.tokens -= 1.0;
        Verdict::Admit
    }

    fn tick(&mut self, seen: &Seen, _out: &mut Vec<Action>) {
        for (client, bucket) in self.buckets.iter_mut().enumerate() {
            let mut latencies: Vec<u64> = seen
                .done
                .iter()
                .filter(|done| done.client == client)
                .map(|done| done.latency_ns)
                .collect();
            if latencies.is_empty() {
                continue;
            }
            latencies.sort_unstable();
            let p99_ns = latencies[(latencies.len() * 99 / 100).min(latencies.len() - 1)] as f64;
            bucket.p99_ns = 0.7 * bucket.p99_ns + 0.3 * p99_ns;
            let error = bucket.p99_ns / self.target_ns - 1.0;
            if error > 0.0 {
                bucket.rate /= 1.1;
            } else if error < -0.5 {
                bucket.rate += -(error + 0.1) * 4.0;
            }
            bucket.rate = bucket.rate.max(2.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{demand, summary};

    #[test]
    fn both_refuse_demand_beyond_capacity_and_serve_more_within_the_objective() {
        let without = summary(&demand(), "none");
        for name in ["dagor", "seda"] {
            let with = summary(&demand(), name);
            assert!(
                with.good_count > 1.5 * without.good_count,
                "{name}: {with:?} {without:?}"
            );
            assert!(with.innocent_drops > 0.1, "{name}");
        }
    }
}
