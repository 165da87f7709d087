//! Where requests come from: open and closed loops, patience, retries.

use super::World;
use super::queue::Happening;
use super::rng::Rng;
use super::task::{Failure, State, Task, TaskRef};
use crate::controllers::Verdict;
use crate::measure::Fate;
use crate::plan::Sending;

/// A client's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    rng: Option<Rng>,
    request_count: u64,
    /// Its next request may not start before this.
    pub(super) penalty_until_ns: u64,
}

impl World {
    /// Plans each client's first requests.
    pub(super) fn open_sources(&mut self) {
        for client in 0..self.plan.clients.len() {
            self.sources[client].rng = Some(Rng::of(self.seed, client as u64, u64::MAX));
            let plan = self.plan.clients[client].clone();
            match plan.send {
                Sending::Closed { count, think } => {
                    for _ in 0..count {
                        let pause_ns = self.draw_ns(client, think);
                        self.plan_arrival(client, plan.from_ns + pause_ns);
                    }
                }
                Sending::At(moments) => {
                    for at_ns in moments {
                        self.plan_arrival(client, at_ns.max(plan.from_ns));
                    }
                }
                Sending::Poisson(_) | Sending::Even(_) => self.plan_next(client, plan.from_ns),
            }
        }
    }

    fn draw_ns(&mut self, client: usize, time: super::rng::Time) -> u64 {
        self.sources[client]
            .rng
            .as_mut()
            .map_or(0, |rng| rng.draw_ns(time))
    }

    fn plan_arrival(&mut self, client: usize, at_ns: u64) {
        if at_ns < self.plan.clients[client].to_ns {
            self.queue.at(at_ns, Happening::Arrival { client });
        }
    }

    /// The next arrival of an open loop. A changing rate thins out a stream of the highest one.
    fn plan_next(&mut self, client: usize, mut at_ns: u64) {
        let plan = self.plan.clone();
        let plan = &plan.clients[client];
        let (rate, even) = match plan.send {
            Sending::Poisson(rate) => (rate, false),
            Sending::Even(rate) => (rate, true),
            _ => return,
        };
        let peak = plan
            .shape
            .iter()
            .map(|(_, factor)| *factor)
            .fold(1.0, f64::max);
        let gap_ns = (1e9 / (rate * peak).max(1e-9)) as u64;
        let Some(rng) = self.sources[client].rng.as_mut() else {
            return;
        };
        while at_ns < plan.to_ns {
            at_ns += if even {
                gap_ns.max(1)
            } else {
                rng.draw_ns(super::rng::Time::Exp(gap_ns)).max(1)
            };
            let bend = plan
                .shape
                .iter()
                .rev()
                .find(|(from_ns, _)| *from_ns <= at_ns);
            let share = bend.map_or(1.0, |(_, factor)| *factor) / peak;
            if share >= 1.0 || rng.unit() < share {
                break;
            }
        }
        self.plan_arrival(client, at_ns);
    }

    /// A client's next request is due.
    pub(super) fn arrival(&mut self, client: usize) {
        let source = &mut self.sources[client];
        source.request_count += 1;
        let (request, penalty_ns) = (source.request_count, source.penalty_until_ns);
        self.plan_next(client, self.now_ns);
        if penalty_ns > self.now_ns {
            let first_ns = self.now_ns;
            self.queue.at(
                penalty_ns,
                Happening::Again {
                    client,
                    request,
                    attempt: 0,
                    first_ns,
                },
            );
        } else {
            self.ask(client, request, 0, self.now_ns);
        }
    }

    /// A request arrives at the server.
    pub(super) fn ask(&mut self, client: usize, request: u64, attempt: u32, first_ns: u64) {
        let class = self.plan.clients[client].class;
        self.serial += 1;
        let serial = self.serial;
        let session = self.sessions.pop().unwrap_or_else(|| {
            self.session_count += 1;
            self.session_count
        });
        let owner = self.unused.pop().unwrap_or_else(|| {
            self.tasks.push(Task::unused());
            self.tasks.len() - 1
        });
        self.tasks[owner] = Task {
            serial,
            class,
            client,
            request,
            attempt,
            first_ns,
            arrived_ns: self.now_ns,
            session,
            rng: Rng::of(self.seed, client as u64, request),
            ..Task::unused()
        };
        if let Some(patience_ns) = self.plan.clients[client].patience_ns {
            self.queue.at(
                self.now_ns + patience_ns,
                Happening::Patience { owner, serial },
            );
        }
        self.enter_state(owner, State::Outside);
        let job = self.job(owner);
        match self.controller.admit(&job) {
            Verdict::Admit => self.let_in(owner),
            Verdict::Reject => self.refuse(owner, Failure::Rejected),
            Verdict::Hold => {}
        }
    }

    /// A request enters the server.
    pub(super) fn let_in(&mut self, owner: usize) {
        self.tasks[owner].started_ns = self.now_ns;
        self.enter_state(owner, State::Asleep);
        self.advance(owner);
    }

    /// A request is refused before it entered.
    pub(super) fn refuse(&mut self, owner: usize, failure: Failure) {
        self.failed(owner, failure);
        self.free(owner);
    }

    /// The client stops waiting. The server goes on with what it has begun.
    pub(super) fn lose_patience(&mut self, owner: usize, serial: u64) {
        if self.tasks[owner].serial != serial || self.tasks[owner].forsaken {
            return;
        }
        self.failed(owner, Failure::TimedOut);
        self.tasks[owner].forsaken = true;
        if self.tasks[owner].state == State::Outside {
            self.free(owner);
        }
    }

    /// An attempt failed: the client tries again or takes the loss.
    pub(super) fn failed(&mut self, owner: usize, failure: Failure) {
        let task = &self.tasks[owner];
        let (class, client, request, attempt, first_ns) = (
            task.class,
            task.client,
            task.request,
            task.attempt,
            task.first_ns,
        );
        if task.forsaken {
            return;
        }
        let plan = &self.plan.clients[client];
        if attempt < plan.retry_count {
            let backoff_ns = plan.backoff_ns << attempt.min(16);
            let jitter = self.tasks[owner].rng.unit() + 0.5;
            let at_ns = self.now_ns + (backoff_ns as f64 * jitter) as u64;
            self.queue.at(
                at_ns,
                Happening::Again {
                    client,
                    request,
                    attempt: attempt + 1,
                    first_ns,
                },
            );
            self.measure.retry_count += 1;
            return;
        }
        self.measure
            .over(class, first_ns, self.now_ns, Fate::Failed(failure));
        self.next_of_closed(client);
    }

    /// A closed loop sends its next request after a pause.
    pub(super) fn next_of_closed(&mut self, client: usize) {
        if let Sending::Closed { think, .. } = self.plan.clients[client].send {
            let pause_ns = self.draw_ns(client, think);
            self.plan_arrival(client, self.now_ns + pause_ns);
        }
    }

    /// The place and session of a task can be used again.
    pub(super) fn free(&mut self, owner: usize) {
        let task = &mut self.tasks[owner];
        let session = task.session;
        task.serial = 0;
        task.ticket = 0;
        self.sessions.push(session);
        self.unused.push(owner);
    }

    /// The run is over: whatever is still open is counted as it is.
    pub(super) fn close(&mut self) {
        for owner in 0..self.tasks.len() {
            let task = &self.tasks[owner];
            if task.serial > 0 && !task.forsaken {
                self.measure
                    .over(task.class, task.first_ns, self.now_ns, Fate::Open);
            }
        }
    }

    /// A task that is still the one meant.
    pub(super) fn is_current(&self, task: TaskRef) -> bool {
        self.tasks
            .get(task.index)
            .is_some_and(|known| known.serial == task.serial && task.serial > 0)
    }
}
