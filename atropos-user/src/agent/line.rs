//! What `atropos run --json` prints.

use serde::Serialize;

use crate::engine::input::OrderResult;
use crate::engine::record::{Effect, Level};
use crate::engine::settings::Mode;
use crate::governor::{Change, Costs};

/// One JSON line.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Line<'a> {
    Attached {
        at_ns: u64,
        pid: u32,
        preset: &'a str,
        mode: Mode,
    },
    Effect {
        at_ns: u64,
        effect: &'a Effect,
    },
    OrderSent {
        at_ns: u64,
        order: u64,
        command: &'a str,
        sent_at_ns: u64,
        answered_at_ns: u64,
        result: &'a OrderResult,
        detail: &'a str,
    },
    Remarks {
        at_ns: u64,
        decision: u64,
        said: &'a [String],
    },
    Lost {
        at_ns: u64,
        count: u64,
    },
    Blind {
        at_ns: u64,
        reasons: &'a [String],
    },
    Refused {
        at_ns: u64,
        reasons: &'a [String],
    },
    Probes {
        at_ns: u64,
        #[serde(flatten)]
        change: &'a Change,
    },
    Costs {
        at_ns: u64,
        costs: Option<&'a Costs>,
        trouble: Option<&'a str>,
    },
    Wakes {
        at_ns: u64,
        trouble: &'a str,
    },
    Operator {
        at_ns: u64,
        level: Level,
    },
    Control {
        at_ns: u64,
        trouble: Option<&'a str>,
    },
    Journal {
        at_ns: u64,
        trouble: &'a str,
    },
    Unshown {
        at_ns: u64,
        count: u64,
    },
    Stopped {
        at_ns: u64,
        reason: &'a str,
    },
}
