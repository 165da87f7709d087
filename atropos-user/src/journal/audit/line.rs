//! One line of the audit log as JSON.

use serde::Serialize;

use crate::engine::input::OrderResult;
use crate::engine::record::{
    Advice, Decision, Hints, Level, Order, OrderOutcome, OverloadNote, Task,
};
use crate::engine::settings::Mode;
use crate::governor::Change;

use super::Run;

/// Version of the lines. Fields may be added within one version; whoever reads must skip what it does not know.
pub const SCHEMA: u32 = 1;

/// A line.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    pub schema: u32,
    pub time: String,
    pub mono_ns: u64,
    pub target: Where<'a>,
    #[serde(flatten)]
    pub body: &'a Body<'a>,
}

/// What a line needs to be understood alone.
#[derive(Serialize)]
pub(super) struct Where<'a> {
    pub host: &'a str,
    pub pid: u32,
    pub preset: &'a str,
    pub mode: Mode,
}

/// What happened.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Body<'a> {
    Start {
        start: &'a Run,
    },
    Decision {
        decision: &'a Decision,
    },
    Order {
        order: &'a Order,
        command: &'a str,
    },
    Answer {
        order: &'a Order,
        command: &'a str,
        sent_at_ns: u64,
        answered_at_ns: u64,
        took_ns: u64,
        result: &'a OrderResult,
        detail: &'a str,
    },
    Advice {
        advice: &'a Advice,
    },
    Outcome {
        outcome: &'a OrderOutcome,
        task: Option<&'a Task>,
    },
    Overload {
        overload: &'a OverloadNote,
    },
    Hints {
        hints: &'a Hints,
    },
    Level {
        level: Level,
    },
    Probes {
        probes: &'a Change,
    },
    Lost {
        at_ns: u64,
        event_count: u64,
    },
    Stop {
        reason: &'a str,
        lost_count: u64,
    },
}
