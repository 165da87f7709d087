//! The processor: cores shared in equal parts by all who run, in one or several groups of cores.
//!
//! Work advances on a virtual clock that runs at the rate each job gets, so that a change in the number of jobs costs a
//! logarithm and not a pass over all of them.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashSet};

/// A job by the ticket that its owner gave it.
#[derive(Clone, Copy, Debug)]
struct Job {
    end_v: f64,
    ticket: u64,
    owner: usize,
    threads: usize,
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Job {}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Job {
    fn cmp(&self, other: &Self) -> Ordering {
        self.end_v
            .total_cmp(&other.end_v)
            .then(self.ticket.cmp(&other.ticket))
    }
}

/// A group of cores.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    count: f64,
    running: usize,
    virtual_ns: f64,
    at_ns: u64,
    jobs: BinaryHeap<Reverse<Job>>,
    gone: HashSet<u64>,
    busy_ns: f64,
    /// Number of the latest change: a completion planned before it is void.
    pub(crate) epoch: u64,
}

impl Cores {
    /// So many cores, idle.
    pub(crate) fn new(cores: f64) -> Self {
        Self {
            count: cores,
            running: 0,
            virtual_ns: 0.0,
            at_ns: 0,
            jobs: BinaryHeap::new(),
            gone: HashSet::new(),
            busy_ns: 0.0,
            epoch: 0,
        }
    }

    fn rate(&self) -> f64 {
        if self.running == 0 {
            return 1.0;
        }
        (self.count / self.running as f64).min(1.0)
    }

    fn advance(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.at_ns) as f64;
        self.virtual_ns += passed_ns * self.rate();
        self.busy_ns += passed_ns * (self.running as f64).min(self.count);
        self.at_ns = now_ns;
    }

    /// Changes the number of cores.
    pub(crate) fn resize(&mut self, cores: f64, now_ns: u64) {
        self.advance(now_ns);
        self.count = cores;
        self.epoch += 1;
    }

    /// Starts a job on so many threads; returns the virtual time at which it starts.
    pub(crate) fn start(
        &mut self,
        owner: usize,
        ticket: u64,
        (work_ns, threads): (u64, u32),
        now_ns: u64,
    ) -> f64 {
        self.advance(now_ns);
        self.running += threads as usize;
        self.epoch += 1;
        self.jobs.push(Reverse(Job {
            end_v: self.virtual_ns + work_ns as f64 / f64::from(threads),
            ticket,
            owner,
            threads: threads as usize,
        }));
        self.virtual_ns
    }

    /// Takes a job off before it is done.
    pub(crate) fn stop(&mut self, ticket: u64, threads: u32, now_ns: u64) {
        self.advance(now_ns);
        self.running -= threads as usize;
        self.epoch += 1;
        self.gone.insert(ticket);
    }

    /// Work that each thread of a job which started at `start_v` has got so far, nanoseconds.
    pub(crate) fn worked_ns(&self, start_v: f64, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.at_ns) as f64;
        (self.virtual_ns + passed_ns * self.rate() - start_v).max(0.0) as u64
    }

    fn skip_gone(&mut self) {
        while let Some(Reverse(job)) = self.jobs.peek() {
            if !self.gone.remove(&job.ticket) {
                return;
            }
            self.jobs.pop();
        }
    }

    /// When the next job will be done if nothing changes.
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        self.skip_gone();
        let Reverse(job) = self.jobs.peek()?;
        let rate = self.rate();
        if rate <= 0.0 {
            return None;
        }
        let left_ns = ((job.end_v - self.virtual_ns) / rate).max(0.0).ceil();
        Some(self.at_ns.saturating_add(left_ns as u64))
    }

    /// A job that is done: its owner and ticket.
    pub(crate) fn pop_done(&mut self, now_ns: u64) -> Option<(usize, u64)> {
        self.advance(now_ns);
        self.skip_gone();
        let Reverse(job) = *self.jobs.peek()?;
        // Half a nanosecond of rounding.
        if job.end_v > self.virtual_ns + 0.5 {
            return None;
        }
        self.jobs.pop();
        self.running -= job.threads;
        self.epoch += 1;
        Some((job.owner, job.ticket))
    }

    /// Jobs for each core.
    pub(crate) fn load(&self) -> f64 {
        if self.count > 0.0 {
            self.running as f64 / self.count
        } else {
            self.running as f64
        }
    }

    /// Core time used so far, nanoseconds.
    pub(crate) fn busy_ns(&mut self, now_ns: u64) -> f64 {
        self.advance(now_ns);
        self.busy_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_jobs_on_two_cores_take_half_as_long_again() {
        let mut cores = Cores::new(2.0);
        for ticket in 0..3 {
            cores.start(ticket as usize, ticket, (1_000, 1), 0);
        }
        assert_eq!(cores.next_ns(), Some(1_500));
        assert_eq!(cores.pop_done(1_500), Some((0, 0)));
    }

    #[test]
    fn a_stopped_job_gives_its_share_to_the_others() {
        let mut cores = Cores::new(1.0);
        let start_v = cores.start(0, 0, (1_000, 1), 0);
        cores.start(1, 1, (1_000, 1), 0);
        assert_eq!(cores.worked_ns(start_v, 500), 250);
        cores.stop(0, 1, 500);
        assert_eq!(cores.next_ns(), Some(1_250));
    }

    #[test]
    fn a_job_on_three_threads_gets_three_shares() {
        let mut cores = Cores::new(2.0);
        cores.start(0, 0, (3_000, 3), 0);
        cores.start(1, 1, (1_000, 1), 0);
        assert_eq!(cores.next_ns(), Some(2_000));
        assert_eq!(cores.pop_done(2_000), Some((0, 0)));
        assert_eq!(cores.pop_done(2_000), Some((1, 1)));
    }

    #[test]
    fn without_cores_nothing_ends() {
        let mut cores = Cores::new(1.0);
        cores.start(0, 0, (1_000, 1), 0);
        cores.resize(0.0, 400);
        assert_eq!(cores.next_ns(), None);
        cores.resize(1.0, 10_000);
        assert_eq!(cores.next_ns(), Some(10_600));
    }
}
