//! `[decide]`: what an operator wants of decisions.

use super::super::fields::Fields;
use crate::engine::settings::{Repeat, Rerun, Tuning};

/// What happens to work that comes back after it was ended.
const REPEATS: [(&str, Repeat); 4] = [
    ("endure", Repeat::Endure),
    ("back-off", Repeat::BackOff),
    ("alert", Repeat::Alert),
    ("again", Repeat::Again),
];

/// Most orders that a budget allows.
const MOST_ORDERS: i64 = 1_000_000;

/// Reads the table, over the defaults.
pub(super) fn read(fields: &Fields<'_>) -> (Tuning, Rerun) {
    let usual = Tuning::default();
    let span = |key: &str, usual_ns: u64| fields.duration_ns(key).unwrap_or(usual_ns);
    let orders = |key: &str, usual: u32| {
        let count = fields.integer(key, 0, MOST_ORDERS);
        count.map_or(usual, |count| count as u32)
    };
    let seconds = |key: &str, usual_s: f64| {
        let ns = fields.duration_ns(key);
        ns.map_or(usual_s, |ns| ns as f64 / 1e9)
    };
    let tuning = Tuning {
        repeat: fields
            .choice("repeat", "rule for work that comes back", &REPEATS)
            .unwrap_or(usual.repeat),
        repeat_pause_ns: span("repeat_pause", usual.repeat_pause_ns),
        repeat_after_ns: span("repeat_after", usual.repeat_after_ns),
        end_groups: fields.flag("end_groups", usual.end_groups),
        min_gain_s: seconds("min_gain", usual.min_gain_s),
        min_idle_ns: span("min_idle", usual.min_idle_ns),
        nearly_done: fields.share("nearly_done").unwrap_or(usual.nearly_done),
        per_decision: orders("per_decision", usual.per_decision),
        per_minute: orders("per_minute", usual.per_minute),
        per_hour: orders("per_hour", usual.per_hour),
        ..usual
    };
    let usual = Rerun::default();
    let rerun = Rerun {
        quiet_ns: span("retry_quiet", usual.quiet_ns),
        wait_ns: span("retry_wait", usual.wait_ns),
        once: fields.flag("retry_once", usual.once),
        ..usual
    };
    (tuning, rerun)
}
