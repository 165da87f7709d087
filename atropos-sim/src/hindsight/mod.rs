//! A recorded incident seen by another controller: what it would have decided at each moment, beside what was done.
//!
//! In: the settings and inputs of a recording. Out: lines. Nothing that the other decides changes the recording: from its
//! first decision on, what follows is a guess. It is a kind one: whoever it would have ended is gone at once, and so is
//! whoever waited for nobody else.

mod picture;
mod rerun;
mod rules;
mod waits;
mod which;

use atropos_engine::Settings;
use atropos_engine::input::{Input, OrderResult};
use atropos_engine::record::{Order, Task};
use atropos_engine::settings::{Slo, SloLimit};
use serde::Serialize;

use crate::controllers::names;
use rerun::{Done, Rerun};
use rules::Rules;
use which::Way;

/// Whose act a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// What was done when the recording was made.
    Done,
    /// What the other controller would have done.
    Would,
}

/// What happened at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// When, nanoseconds of the recorded machine's `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Whose act it is.
    pub side: Side,
    /// The act, or the answer to one.
    #[serde(flatten)]
    pub what: What,
}

/// An act, or the answer to one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// A task is ended, a wait is ended, or a request refused.
    Act(Act),
    /// What became of an order at the target's door.
    Answer {
        /// Number of the order.
        order: u64,
        /// What.
        result: OrderResult,
    },
}

/// A task is ended, a wait is ended, or a request refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Act {
    /// How: the rung's name, or `end statement`, `end session`, `end wait`, `refuse`.
    pub how: String,
    /// The number by which a person knows the session.
    pub id: u64,
    /// User, empty if unknown.
    pub principal: String,
    /// The statement without literals, empty if unknown.
    pub statement: String,
    /// It waits for somebody else itself.
    pub waits: bool,
    /// What it was doing, and in whose way it was.
    pub why: String,
}

/// How often either side acted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Orders that the target accepted.
    pub done: u64,
    /// Tasks and waits that the other would have ended.
    pub would: u64,
    /// ... of those that waited for somebody themselves.
    pub would_of_waiting: u64,
    /// Requests that it would have refused.
    pub refused: u64,
}

/// Why a controller cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HindsightError {
    /// There is none of that name.
    #[error("no controller is called `{0}` (`atropos simulate --list` lists them)")]
    Unknown(String),
    /// The recording does not hold what it needs.
    #[error("`{name}` cannot be judged by a recording: {why}")]
    NotJudged {
        /// Which.
        name: String,
        /// Why.
        why: &'static str,
    },
    /// It needs a limit in time.
    #[error(
        "`{0}` needs a limit in time, and the recording's objective is relative to what was usual: give one, such as `--slo p99=50ms`"
    )]
    Relative(String),
}

/// A controller, and what was done.
pub struct Hindsight {
    done: Done,
    other: Other,
    about: &'static str,
    misses: Option<&'static str>,
    counts: Counts,
}

enum Other {
    Engine(Box<Rerun>),
    Looks(Box<Rules>),
}

impl Hindsight {
    /// The controller of this name on a recording with these settings; with another objective if one is given.
    pub fn new(name: &str, settings: &Settings, slo: Option<Slo>) -> Result<Self, HindsightError> {
        let unknown = || HindsightError::Unknown(name.to_owned());
        let way = which::way(name).ok_or_else(unknown)?;
        let entry = names::ALL.iter().find(|entry| entry.name == name);
        let about = entry.ok_or_else(unknown)?.about;
        let mut changed = settings.clone();
        changed.slo = slo.unwrap_or(settings.slo);
        let (other, misses) = match way {
            Way::Engine => {
                let rerun = Rerun::new(changed, name == "atropos-again");
                (Other::Engine(Box::new(rerun)), None)
            }
            Way::Looks(misses) => {
                let SloLimit::Absolute { ns } = changed.slo.limit else {
                    return Err(HindsightError::Relative(name.to_owned()));
                };
                let rules = Rules::new(name, &changed, ns).ok_or_else(unknown)?;
                (Other::Looks(Box::new(rules)), misses)
            }
            Way::Not(why) => {
                let name = name.to_owned();
                return Err(HindsightError::NotJudged { name, why });
            }
        };
        Ok(Self {
            done: Done::new(settings),
            other,
            about,
            misses,
            counts: Counts::default(),
        })
    }

    /// The controllers that can be judged.
    pub fn judged() -> Vec<&'static str> {
        let names = names::ALL.iter().map(|entry| entry.name);
        names
            .filter(|name| !matches!(which::way(name), None | Some(Way::Not(_))))
            .collect()
    }

    /// The controller's rule in a few words.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// What a recording does not show this controller.
    pub fn misses(&self) -> Option<&'static str> {
        self.misses
    }

    /// How often either side has acted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes the next input of the recording in.
    pub fn handle(&mut self, input: &Input) -> Vec<Line> {
        let mut lines = Vec::new();
        self.done.handle(input, &mut lines);
        match &mut self.other {
            Other::Engine(rerun) => rerun.handle(input, &self.done, &mut lines),
            Other::Looks(rules) => rules.handle(input, &mut lines),
        }
        self.count(&lines);
        if let Other::Looks(rules) = &self.other {
            self.counts.refused = rules.refused_count();
        }
        lines
    }

    fn count(&mut self, lines: &[Line]) {
        for line in lines {
            match (line.side, &line.what) {
                (Side::Done, What::Answer { result, .. }) => {
                    self.counts.done += u64::from(*result == OrderResult::Accepted);
                }
                (Side::Would, What::Act(act)) if act.how != rules::REFUSE => {
                    self.counts.would += 1;
                    self.counts.would_of_waiting += u64::from(act.waits);
                }
                _ => {}
            }
        }
    }
}

/// The act of an order.
fn act(order: &Order, waits: bool, why: String) -> Act {
    let Task {
        id,
        principal,
        digest,
        ..
    } = &order.task;
    Act {
        how: order.rung_name.clone(),
        id: *id,
        principal: principal.clone(),
        statement: digest.clone(),
        waits,
        why,
    }
}

#[cfg(test)]
mod tests;
