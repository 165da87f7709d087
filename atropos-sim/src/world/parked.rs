//! Requests that were cancelled and are kept by what stands in front of the server, until the controller says what to do.

use super::World;
use super::task::Failure;
use crate::measure::Fate;

/// A request without a place in the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    class: usize,
    client: usize,
    request: u64,
    attempt: u32,
    /// When its client first asked.
    first_ns: u64,
    /// When its client stops waiting.
    until_ns: Option<u64>,
}

impl World {
    /// Keeps a cancelled request by its number, if the controller wants that and its client still waits.
    pub(super) fn park(&mut self, owner: usize) -> bool {
        let task = &self.tasks[owner];
        if task.forsaken || !self.controller.keeps_cancelled() {
            return false;
        }
        let patience_ns = self.plan.clients[task.client].patience_ns;
        let parked = Parked {
            class: task.class,
            client: task.client,
            request: task.request,
            attempt: task.attempt,
            first_ns: task.first_ns,
            until_ns: patience_ns.map(|patience_ns| task.arrived_ns + patience_ns),
        };
        self.parked.insert(task.serial, parked);
        true
    }

    /// Sends a kept request into the server again.
    pub(super) fn run_again(&mut self, serial: u64) {
        let Some(parked) = self.parked.remove(&serial) else {
            return;
        };
        let Parked {
            client,
            request,
            attempt,
            first_ns,
            until_ns,
            ..
        } = parked;
        if until_ns.is_some_and(|until_ns| until_ns <= self.now_ns) {
            self.lose(parked, Failure::TimedOut);
        } else {
            self.ask(client, request, attempt, first_ns);
        }
    }

    /// Tells a kept request's client that there will be no answer.
    pub(super) fn give_up_on(&mut self, serial: u64) {
        if let Some(parked) = self.parked.remove(&serial) {
            self.lose(parked, Failure::Dropped);
        }
    }

    fn lose(&mut self, parked: Parked, failure: Failure) {
        let fate = Fate::Failed(failure);
        self.measure
            .over(parked.class, parked.first_ns, self.now_ns, fate);
        self.next_of_closed(parked.client);
    }

    /// The run is over: whatever is still kept is counted as it is.
    pub(super) fn close_parked(&mut self) {
        for parked in std::mem::take(&mut self.parked).into_values() {
            self.measure
                .over(parked.class, parked.first_ns, self.now_ns, Fate::Open);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::controllers::testkit::{lock_hog, plan, summary};
    use crate::plan::Plan;

    #[test]
    fn what_was_cancelled_runs_again_once_and_is_served_at_the_cost_of_the_others() {
        let plain = summary(&lock_hog(), "atropos");
        let rerun = summary(&lock_hog(), "atropos-rerun");
        assert!((plain.culprit_drops, rerun.culprit_drops) == (1.0, 0.0));
        assert!((plain.cancel_count, rerun.cancel_count) == (1.0, 1.0));
        assert!(
            rerun.bad_s > plain.bad_s + 3.0,
            "it holds the lock for four seconds: {rerun:?}"
        );
    }

    #[test]
    fn a_client_that_has_stopped_waiting_gets_no_second_run() {
        let text = "locks = [{ name = 'table' }]\n\
             [[classes]]\nname = 'small'\nsteps = [{ lock = { of = 'table', shared = true } }, { cpu = '~4ms' }]\n\
             [[classes]]\nname = 'hog'\nsteps = [{ lock = { of = 'table' } }, { sleep = '4s' }]\n\
             [[clients]]\nclass = 'small'\nsend = { poisson = 200.0 }\n\
             [[clients]]\nclass = 'hog'\nsend = { at = ['2s'] }\ninjected = true\npatience = '1s'\n";
        let impatient: Arc<Plan> = plan("synchronisation", "'hog'", text);
        let rerun = summary(&impatient, "atropos-rerun");
        assert!((rerun.culprit_drops, rerun.cancel_count) == (1.0, 1.0));
        assert!(rerun.bad_s < 1.0, "{rerun:?}");
    }
}
