//! PARTIES (ASPLOS 2019): resources move from clients with slack to clients without. Source: OrderLab/pBox
//! `script/comparsion/parties_for_native.py`.
//!
//! Groups are clients; each 500 ms, `slack = (objective - p99) / objective`, smoothed over a second. Below 0.05 a group gets
//! a core more, from the group with most slack; above 0.2 one core less. An action is watched for 5 intervals; downsizing
//! that breaks somebody's slack is taken back and not tried again for 100 intervals. Only cores can be moved here (the
//! original also moves frequency and cache ways). Logical resources are invisible to it.

use std::sync::Arc;

use super::{Action, Controller, Seen};
use crate::plan::Plan;

const LOW: f64 = 0.05;
const HIGH: f64 = 0.2;
const REST: u32 = 100;
const UNIT: f64 = 1.0;
/// No group goes below this, so that it can show whether it needs more.
const LEAST: f64 = 0.5;

/// PARTIES.
pub(crate) struct Parties {
    objective_ns: f64,
    cores: Vec<f64>,
    slack: Vec<f64>,
    rest: u32,
    begun: bool,
    shrunk: Option<(usize, usize)>,
}

impl Parties {
    /// Equal shares at first.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        let count = plan.clients.len();
        Self {
            objective_ns: plan.slo_ns as f64,
            cores: vec![plan.cores / count as f64; count],
            slack: vec![1.0; count],
            rest: 0,
            begun: false,
            shrunk: None,
        }
    }

    fn measure(&mut self, seen: &Seen) {
        for group in 0..self.cores.len() {
            let done = seen
                .done
                .iter()
                .filter(|done| done.client == group)
                .map(|done| done.latency_ns);
            let open = seen
                .tasks
                .iter()
                .filter(|task| task.client == group)
                .map(|task| seen.now_ns - task.arrived_ns);
            let mut latencies: Vec<u64> = done.chain(open).collect();
            latencies.sort_unstable();
            let rank = (latencies.len() * 99 / 100).min(latencies.len().saturating_sub(1));
            let p99_ns = latencies.get(rank).copied().unwrap_or(0) as f64;
            let slack = (self.objective_ns - p99_ns) / self.objective_ns;
            self.slack[group] = 0.5 * self.slack[group] + 0.5 * slack;
        }
    }

    fn shift(&mut self, from: usize, to: usize) -> bool {
        let unit = UNIT.min(self.cores[from] - LEAST);
        if unit <= 0.0 || from == to {
            return false;
        }
        self.cores[from] -= unit;
        self.cores[to] += unit;
        true
    }
}

impl Controller for Parties {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick_ns(&self) -> u64 {
        500_000_000
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        self.measure(seen);
        self.rest = self.rest.saturating_sub(1);
        let by_slack = |a: &usize, b: &usize| self.slack[*a].total_cmp(&self.slack[*b]);
        let groups = || 0..self.cores.len();
        let (Some(least), Some(most)) = (groups().min_by(by_slack), groups().max_by(by_slack))
        else {
            return;
        };
        let moved = if self.slack[least] < LOW {
            match self.shrunk.take() {
                // The latest downsizing broke somebody's slack: take it back.
                Some((from, to)) => {
                    self.rest = REST;
                    self.shift(to, from)
                }
                None => self.shift(most, least),
            }
        } else if self.slack[most] > HIGH && self.rest == 0 && self.shift(most, least) {
            self.shrunk = Some((most, least));
            true
        } else {
            false
        };
        if moved || !self.begun {
            self.begun = true;
            out.push(Action::Shares {
                group_of: (0..self.cores.len()).collect(),
                cores: self.cores.clone(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::seen::SeenDone;
    use super::super::testkit::{lock_hog, plan, summary};
    use super::*;

    #[test]
    fn a_core_moves_from_the_client_with_most_slack_to_the_one_with_none() {
        let plan = plan(
            "innocent",
            "",
            "[[classes]]\nname = 'small'\nsteps = [{ cpu = '~4ms' }]\n\
             [[clients]]\nclass = 'small'\nsend = { poisson = 1.0 }\n\
             [[clients]]\nclass = 'small'\nsend = { poisson = 1.0 }\n",
        );
        let mut parties = Parties::new(&plan);
        let mut out = Vec::new();
        let done = |client, latency_ns| SeenDone { client, latency_ns };
        let seen = Seen {
            done: vec![done(0, 200_000_000), done(1, 1_000_000)],
            ..Seen::default()
        };
        parties.tick(&seen, &mut out);
        assert_eq!(
            out,
            [Action::Shares {
                group_of: vec![0, 1],
                cores: vec![3.0, 1.0]
            }]
        );
    }

    #[test]
    fn a_lock_hog_needs_no_cores_and_is_not_reached() {
        assert!(summary(&lock_hog(), "parties").bad_s > 3.0);
    }
}
