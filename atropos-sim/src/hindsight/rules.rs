//! A controller that looks at the server, on looks made from a recording.

use std::sync::Arc;

use atropos_engine::Settings;
use atropos_engine::input::{Activity, Input, Tick};

use super::picture::{Known, Picture};
use super::{Act, Line, Side, What};
use crate::controllers::{Action, Controller, Job, Seen, Verdict, names};
use crate::plan::Plan;
use crate::world::task::TaskRef;

/// How a refused request is told.
pub(super) const REFUSE: &str = "refuse";

/// A recorded tick that comes a little early still counts for a look that is due: half of the usual time between two.
const EARLY_NS: u64 = 25_000_000;

/// The controller and its picture of the server.
pub(super) struct Rules {
    controller: Box<dyn Controller>,
    picture: Picture,
    due_ns: u64,
    refused_count: u64,
    /// Statements whose refusal has been told.
    refused: Vec<usize>,
}

impl Rules {
    /// The controller of this name, scaled to this objective.
    pub(super) fn new(name: &str, settings: &Settings, slo_ns: u64) -> Option<Self> {
        let plan = Arc::new(Plan::of_recording(settings, slo_ns));
        Some(Self {
            controller: names::make(name, &plan)?,
            picture: Picture::new(settings),
            due_ns: 0,
            refused_count: 0,
            refused: Vec::new(),
        })
    }

    /// Requests that it would have refused so far.
    pub(super) fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// Takes the next input in.
    pub(super) fn handle(&mut self, input: &Input, lines: &mut Vec<Line>) {
        match input {
            Input::Event(event) => self.picture.event(event),
            Input::Lost(_) => self.picture.lost(),
            Input::Snapshot(snapshot) => self.picture.snapshot(snapshot),
            Input::Tick(tick) => self.tick(tick, lines),
            // The rules look at processor, pages and heap in a unit of their own, which a recording does not have; limits that
            // the user has set are no rule of theirs. A rule that sees nothing at a tick does nothing.
            Input::Outcome(_)
            | Input::Usage(_)
            | Input::Unseen(_)
            | Input::Woken(_)
            | Input::Excess(_) => {}
        }
    }

    fn tick(&mut self, tick: &Tick, lines: &mut Vec<Line>) {
        for job in self.picture.tick(tick) {
            self.at_the_door(&job, lines);
        }
        if tick.at_ns + EARLY_NS < self.due_ns {
            return;
        }
        let every_ns = self.controller.tick_ns().max(1);
        let on_time = self.due_ns + every_ns > tick.at_ns + EARLY_NS;
        self.due_ns = every_ns + if on_time { self.due_ns } else { tick.at_ns };
        let seen = self.picture.look();
        let mut actions = Vec::new();
        self.controller.tick(&seen, &mut actions);
        for action in actions {
            let told = match action {
                Action::Cancel {
                    task, with_session, ..
                } => Some((
                    task,
                    if with_session {
                        "end session"
                    } else {
                        "end statement"
                    },
                )),
                Action::AbortWaiter(task) => Some((task, "end wait")),
                Action::LetIn(_)
                | Action::RunAgain(_)
                | Action::GiveUpOn(_)
                | Action::Shares { .. } => None,
            };
            lines.extend(told.and_then(|(task, how)| self.end(task, how, &seen)));
        }
    }

    /// A request that it refuses never ran; its statement is told once.
    fn at_the_door(&mut self, job: &Job, lines: &mut Vec<Line>) {
        if self.controller.admit(job) != Verdict::Reject {
            return;
        }
        self.refused_count += 1;
        if !self.refused.contains(&job.class) {
            self.refused.push(job.class);
            let known = self.picture.find(job.task);
            let why = "its like ran too long before".to_owned();
            lines.extend(known.map(|known| line(job.now_ns, REFUSE, known, false, why)));
        }
        self.picture.end(job.task);
    }

    fn end(&mut self, task: TaskRef, how: &str, seen: &Seen) -> Option<Line> {
        if !self.picture.end(task) {
            return None;
        }
        let known = self.picture.find(task)?;
        let (waits, why) = self.facts(known, seen);
        Some(line(seen.now_ns, how, known, waits, why))
    }

    /// Whether a task waits itself, and in words what it is doing and in whose way it is.
    fn facts(&self, known: &Known, seen: &Seen) -> (bool, String) {
        let seconds = |since_ns: u64| seen.now_ns.saturating_sub(since_ns) as f64 / 1e9;
        let for_s = seconds(known.state.since_ns);
        let doing = match known.state.activity {
            Activity::Busy => format!("running {for_s:.2} s"),
            Activity::IdleInTransaction => format!("idle in a transaction for {for_s:.2} s"),
            Activity::IdleWithLocks => format!("idle with locks for {for_s:.2} s"),
        };
        let own = seen.waits.iter().find(|wait| wait.task == known.task);
        let waiting = own.map_or(String::new(), |own| {
            let name = self.picture.name(own.resource, own.instance);
            format!(", waiting {:.2} s for {name}", seconds(own.since_ns))
        });
        let behind = seen.waits.iter().filter(|wait| {
            let mut blockers = wait.blockers.iter();
            blockers.any(|blocker| blocker.task == known.task)
        });
        let mut names: Vec<String> = behind
            .clone()
            .map(|wait| self.picture.name(wait.resource, wait.instance))
            .collect();
        names.sort();
        names.dedup();
        let behind = match (behind.count(), names.as_slice()) {
            (0, _) | (_, []) => ", in nobody's way".to_owned(),
            (count, [name]) => format!(", {count} behind it at {name}"),
            (count, [name, ..]) => format!(", {count} behind it at {name} and others"),
        };
        (own.is_some(), format!("{doing}{waiting}{behind}"))
    }
}

fn line(at_ns: u64, how: &str, known: &Known, waits: bool, why: String) -> Line {
    let act = Act {
        how: how.to_owned(),
        id: known.state.id,
        principal: known.state.principal.clone(),
        statement: known.state.digest.clone(),
        waits,
        why,
    };
    Line {
        at_ns,
        side: Side::Would,
        what: What::Act(act),
    }
}
