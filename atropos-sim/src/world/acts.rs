//! What the controller does to the server.

use super::World;
use super::cpu::Cores;
use super::queue::Happening;
use super::task::{Failure, State, TaskRef};
use crate::controllers::{Action, Report};

/// From the controller to the server's door, nanoseconds: a command over a warm local connection.
const COMMAND_NS: u64 = 1_000_000;

/// A command on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    task: TaskRef,
    with_session: bool,
    number: u64,
}

impl World {
    /// The controller looks and acts.
    pub(super) fn tick(&mut self) {
        let seen = self.look();
        let mut actions = Vec::new();
        self.controller.tick(&seen, &mut actions);
        self.act(actions);
        self.queue
            .at(self.now_ns + self.controller.tick_ns(), Happening::Tick);
    }

    /// Carries actions out.
    pub(super) fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Cancel {
                    task,
                    with_session,
                    number,
                } => {
                    self.command_count += 1;
                    self.commands.insert(
                        self.command_count,
                        Command {
                            task,
                            with_session,
                            number,
                        },
                    );
                    let happening = Happening::Command {
                        number: self.command_count,
                    };
                    self.queue.at(self.now_ns + COMMAND_NS, happening);
                }
                Action::AbortWaiter(task) => self.abort_waiter(task),
                Action::LetIn(task) => {
                    if self.is_current(task) && self.tasks[task.index].state == State::Outside {
                        self.let_in(task.index);
                    }
                }
                Action::RunAgain(serial) => self.run_again(serial),
                Action::GiveUpOn(serial) => self.give_up_on(serial),
                Action::Shares { group_of, cores } => self.divide(group_of, cores),
            }
        }
    }

    fn abort_waiter(&mut self, task: TaskRef) {
        if !self.is_current(task) {
            return;
        }
        if self.tasks[task.index].state == State::Outside {
            self.refuse(task.index, Failure::Dropped);
            return;
        }
        if matches!(
            self.tasks[task.index].state,
            State::ForLock { .. } | State::ForSlot { .. }
        ) {
            self.measure.abort_count += 1;
            self.stop(task.index, Failure::Aborted);
        }
    }

    /// Divides the cores. Who runs already goes on in the group where it is.
    fn divide(&mut self, group_of: Vec<usize>, cores: Vec<f64>) {
        while self.cores.len() < cores.len() {
            self.cores.push(Cores::new(0.0));
        }
        self.group_of = group_of;
        self.group_cores = cores;
        self.group_cores.resize(self.cores.len(), 0.0);
        self.resize_cores();
    }

    /// A command to end a task is at the server's door.
    pub(super) fn command_arrives(&mut self, number: u64) {
        let Some(command) = self.commands.remove(&number) else {
            return;
        };
        let task = command.task;
        let accepted = self.is_current(task)
            && (command.with_session || self.tasks[task.index].state != State::Idle)
            && self.tasks[task.index].state != State::Outside;
        if accepted {
            let class = &self.plan.classes[self.tasks[task.index].class];
            let (notice, deaf, culprit) = (class.notice, class.deaf, class.culprit);
            if !self.tasks[task.index].killed {
                self.measure
                    .cancelled(self.tasks[task.index].class, culprit, self.now_ns);
            }
            self.tasks[task.index].killed = true;
            let notice_ns = self.tasks[task.index].rng.draw_ns(notice);
            if !deaf || command.with_session {
                let happening = Happening::Notice {
                    owner: task.index,
                    serial: task.serial,
                };
                self.queue.at(self.now_ns + notice_ns, happening);
            }
        }
        let report = Report {
            at_ns: self.now_ns,
            number: command.number,
            accepted,
        };
        let mut actions = Vec::new();
        self.controller.report(&report, &mut actions);
        self.act(actions);
    }
}
