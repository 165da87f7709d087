//! pBox (SOSP 2023): whoever makes others wait beyond their share is made to wait at release. Source:
//! OrderLab/psandbox-kernel `src/kernel/psandbox/psandbox.c`.
//!
//! A box is a client. Goal 50 %: a box may be deferred for half of its execution time. Long penalty
//! `min(sqrt(P x exec) - victim's exec, exec x goal) x step`, else short `min(100 x victim's exec, exec x goal) x bad
//! actions`, at most 10 s. It acts only when something is released: a holder that does not release is never reached.

use std::sync::Arc;

use super::{Controller, Ended, Letting};
use crate::plan::Plan;

const GOAL_PERCENT: f64 = 50.0;
const MAX_PENALTY_NS: f64 = 10e9;

/// A box.
#[derive(Clone, Copy, Debug)]
struct Sandbox {
    defer_ns: f64,
    exec_ns: f64,
    count: f64,
    bad_actions: f64,
    step: f64,
}

impl Sandbox {
    fn mean_defer_ns(&self) -> f64 {
        self.defer_ns / self.count.max(1.0)
    }

    fn mean_exec_ns(&self) -> f64 {
        self.exec_ns / self.count.max(1.0)
    }
}

/// pBox.
pub(crate) struct PBox {
    boxes: Vec<Sandbox>,
}

impl PBox {
    /// A box for each client.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        let fresh = Sandbox {
            defer_ns: 0.0,
            exec_ns: 0.0,
            count: 0.0,
            bad_actions: 1.0,
            step: 1.0,
        };
        Self {
            boxes: vec![fresh; plan.clients.len()],
        }
    }
}

impl Controller for PBox {
    fn sees_waits(&self) -> bool {
        false
    }

    fn ended(&mut self, ended: &Ended, _out: &mut Vec<super::Action>) {
        let known = &mut self.boxes[ended.job.client];
        known.defer_ns += ended.job.waited_ns as f64;
        known.exec_ns += ended.service_ns.saturating_sub(ended.job.waited_ns) as f64;
        known.count += 1.0;
    }

    fn let_go(&mut self, letting: &Letting) -> u64 {
        let now_ns = letting.job.now_ns;
        let (mut noisy, mut worst, mut victim) = (false, (0.0, 0.0), None);
        for (client, waits_since_ns, runs_since_ns) in &letting.waiters {
            if *client == letting.job.client {
                continue;
            }
            let known = &self.boxes[*client];
            let defer_ns = (now_ns - waits_since_ns) as f64;
            let exec_ns = (waits_since_ns - runs_since_ns).max(1) as f64;
            let well = known.mean_defer_ns() * 1000.0 < 9.0 * known.mean_exec_ns() * GOAL_PERCENT;
            if well && known.count > 0.0 && defer_ns * 100.0 <= exec_ns * GOAL_PERCENT {
                continue;
            }
            noisy |= defer_ns * 100.0 > exec_ns * GOAL_PERCENT;
            if defer_ns / exec_ns > worst.0 {
                worst = (defer_ns / exec_ns, defer_ns);
                victim = Some(*client);
            }
        }
        let Some(victim) = victim.filter(|_| noisy && worst.1 > 10_000.0) else {
            return 0;
        };
        self.penalty_ns(letting, victim, worst.1)
    }
}

impl PBox {
    fn penalty_ns(&mut self, letting: &Letting, victim: usize, defer_ns: f64) -> u64 {
        let victim_exec_ns = self.boxes[victim].mean_exec_ns();
        let noisy = &mut self.boxes[letting.job.client];
        // A box that has finished nothing yet is judged by what it has held.
        let exec_ns = if noisy.count > 0.0 {
            noisy.mean_exec_ns()
        } else {
            letting.held_ns as f64
        };
        let share_ns = exec_ns * GOAL_PERCENT / 100.0;
        let penalty_ns = if defer_ns > 1000.0 * victim_exec_ns {
            ((defer_ns * exec_ns).sqrt() - victim_exec_ns).min(share_ns) * noisy.step
        } else {
            (100.0 * victim_exec_ns).min(share_ns) * noisy.bad_actions
        };
        noisy.bad_actions += 1.0;
        noisy.step += 1.0;
        penalty_ns.clamp(0.0, MAX_PENALTY_NS) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{lock_hog, plan, summary};

    #[test]
    fn a_holder_that_keeps_its_lock_is_not_reached() {
        let with = summary(&lock_hog(), "pbox");
        assert!(
            with.culprit_drops < f64::EPSILON && with.bad_s > 3.0,
            "{with:?}"
        );
    }

    #[test]
    fn a_client_that_comes_again_and_again_is_slowed_down() {
        let again = plan(
            "synchronisation",
            "'hog'",
            "locks = [{ name = 'table' }]\n\
             [[classes]]\nname = 'small'\nsteps = [{ lock = { of = 'table' } }, { cpu = '~1ms' }]\n\
             [[classes]]\nname = 'hog'\nsteps = [{ lock = { of = 'table' } }, { sleep = '300ms' }]\n\
             [[clients]]\nclass = 'small'\nsend = { poisson = 100.0 }\n\
             [[clients]]\nclass = 'hog'\nsend = { closed = { clients = 1, think = '10ms' } }\nfrom = '2s'\ninjected = true\n",
        );
        let (with, without) = (summary(&again, "pbox"), summary(&again, "none"));
        assert!(with.bad_s < 0.8 * without.bad_s, "{with:?} {without:?}");
    }
}
