//! The audit log: one JSON object a line, each explaining itself (`docs/audit.md`).
//!
//! Lines are made here and written by a thread of its own, so that a slow or full disk never holds up a decision. The
//! line of an order is on disk before the order is sent, unless the disk takes longer than [`INTENT_LIMIT`].

mod line;
mod writer;

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::cancel::SentOrder;
use crate::engine::input::Lost;
use crate::engine::record::{Decision, Effect, Hints, Level, Order, OrderOutcome, OverloadNote};
use crate::engine::settings::Mode;
use crate::governor::Change;

pub use line::SCHEMA;
pub use writer::Counts;

use line::{Body, Line, Where};
use writer::Writer;

/// How long an order may wait for its line to reach the disk. An order is worth more than its line: beyond this the
/// order is sent and the log says nothing wrong, only later.
pub const INTENT_LIMIT: Duration = Duration::from_millis(15);
/// Outcomes repeat whom their order named: as many orders are remembered.
const REMEMBERED_ORDERS: usize = 64;

/// The two clocks of a line.
#[derive(Clone, Copy, Debug)]
pub struct AuditClock {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub monotonic_ns: fn() -> u64,
    /// Nanoseconds since 1970.
    pub unix_ns: fn() -> u64,
}

/// Which run of the agent this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Version of atropos.
    pub version: String,
    /// Host name.
    pub host: String,
    /// Pid of the target.
    pub pid: u32,
    /// Its program.
    pub exe: String,
    /// Its build id in hexadecimal, empty if it has none.
    pub build_id: String,
    /// Preset.
    pub preset: String,
    /// Mode.
    pub mode: Mode,
    /// The objective as a person writes it: `p99=20ms`.
    pub slo: String,
}

/// What became of the line that announces an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It is on disk.
    OnDisk,
    /// It is on its way; the disk takes longer than [`INTENT_LIMIT`].
    Late,
    /// It could not be written. Counted, and said by [`Audit::trouble`].
    Failed(String),
}

/// The audit log of one run.
pub struct Audit {
    run: Run,
    clock: AuditClock,
    writer: Writer,
    orders: Vec<Order>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit")
            .field("run", &self.run)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Audit {
    /// Opens the file for appending, creating it for its owner alone, and writes the `start` line.
    pub fn open(path: &Path, run: Run, clock: AuditClock) -> io::Result<Self> {
        let audit = Self {
            run,
            clock,
            writer: Writer::open(path)?,
            orders: Vec::new(),
        };
        audit.put(&Body::Start { start: &audit.run }, true);
        Ok(audit)
    }

    /// A decision, whole. If it makes orders, the disk is waited for once, with the line of the first order.
    pub fn decision(&self, decision: &Decision) {
        self.put(&Body::Decision { decision }, decision.orders.is_empty());
    }

    /// Announces an order with its exact command. To be awaited before the order is sent.
    pub async fn order(&mut self, order: &Order, command: &str) -> Intent {
        if self.orders.len() == REMEMBERED_ORDERS {
            self.orders.remove(0);
        }
        self.orders.push(order.clone());
        match self.line(&Body::Order { order, command }) {
            Ok(line) => self.writer.put_and_wait(line, INTENT_LIMIT).await,
            Err(error) => Intent::Failed(error),
        }
    }

    /// What the target answered.
    pub fn answer(&self, sent: &SentOrder) {
        let SentOrder {
            order,
            command,
            sent_at_ns,
            answered_at_ns,
            answer,
        } = sent;
        let body = Body::Answer {
            order,
            command,
            sent_at_ns: *sent_at_ns,
            answered_at_ns: *answered_at_ns,
            took_ns: answered_at_ns.saturating_sub(*sent_at_ns),
            result: &answer.result,
            detail: &answer.detail,
        };
        self.put(&body, false);
    }

    /// What finally became of an order.
    pub fn outcome(&self, outcome: &OrderOutcome) {
        let task = self
            .orders
            .iter()
            .find(|order| order.order == outcome.order)
            .map(|order| &order.task);
        self.put(&Body::Outcome { outcome, task }, false);
    }

    /// The overload began, changed its nature, or ended.
    pub fn overload(&self, overload: &OverloadNote) {
        self.put(&Body::Overload { overload }, false);
    }

    /// Who may hold what nobody can be told to hold.
    pub fn hints(&self, hints: &Hints) {
        self.put(&Body::Hints { hints }, false);
    }

    /// The level of watching changed.
    pub fn level(&self, level: Level) {
        self.put(&Body::Level { level }, false);
    }

    /// The governor has let probes be attached for more or less of the time.
    pub fn probes(&self, change: &Change) {
        self.put(&Body::Probes { probes: change }, false);
    }

    /// Events were lost.
    pub fn lost(&self, lost: &Lost) {
        self.put(
            &Body::Lost {
                at_ns: lost.at_ns,
                event_count: lost.count,
            },
            false,
        );
    }

    /// Writes an effect of the engine. An order ([`Effect::Cancel`]) is left to [`Self::order`], which needs its command.
    pub fn effect(&self, effect: &Effect) {
        match effect {
            Effect::Level(level) => self.level(*level),
            Effect::Overload(note) => self.overload(note),
            Effect::Decision(decision) => self.decision(decision),
            Effect::Outcome(outcome) => self.outcome(outcome),
            Effect::Advice(advice) => self.put(&Body::Advice { advice }, false),
            Effect::Hints(hints) => self.hints(hints),
            Effect::Cancel(_) => {}
        }
    }

    /// Writes the `stop` line and waits for the disk, at most a second.
    pub async fn stop(self, reason: &str) {
        let body = Body::Stop {
            reason,
            lost_count: self.counts().lost,
        };
        if let Ok(line) = self.line(&body) {
            self.writer.put_and_wait(line, Duration::from_secs(1)).await;
        }
    }

    /// Lines written and lost so far.
    pub fn counts(&self) -> Counts {
        self.writer.counts()
    }

    /// The last reason why a line could not be written, if one could not.
    pub fn trouble(&self) -> Option<String> {
        self.writer.trouble()
    }

    fn put(&self, body: &Body<'_>, sync: bool) {
        match self.line(body) {
            Ok(line) => self.writer.put(line, sync),
            Err(error) => self.writer.lose(error),
        }
    }

    fn line(&self, body: &Body<'_>) -> Result<Vec<u8>, String> {
        let run = &self.run;
        let line = Line {
            schema: SCHEMA,
            time: super::wall::rfc3339((self.clock.unix_ns)()),
            mono_ns: (self.clock.monotonic_ns)(),
            target: Where {
                host: &run.host,
                pid: run.pid,
                preset: &run.preset,
                mode: run.mode,
            },
            body,
        };
        let mut bytes =
            serde_json::to_vec(&line).map_err(|error| format!("cannot encode a line: {error}"))?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}
