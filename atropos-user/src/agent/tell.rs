//! Tells what happens: to the screen, as text or JSON lines, to the audit log, and to a recording.

use std::sync::Arc;

use super::clock;
use super::line::Line;
use super::resolve::Resolved;
use super::screen::Screen;
use super::watch::View;
use crate::cancel::SentOrder;
use crate::engine::input::{Input, Lost, OrderResult, ResourceId};
use crate::engine::record::{Advice, Effect, Hints, Level, Order, OrderOutcome, OverloadNote};
use crate::engine::settings::{Mode, Settings};
use crate::governor::{Change, Costs, Standing};
use crate::journal::{Audit, Intent, Recorder};

/// Where to tell.
pub struct Teller {
    screen: Arc<Screen>,
    blind_before: Vec<ResourceId>,
    refused_before: Vec<String>,
    audit: Option<Audit>,
    recorder: Option<Recorder>,
    trouble_before: Option<String>,
}

impl Teller {
    /// Tells to the screen, and to an audit log and a recording if there are any.
    pub fn new(screen: Arc<Screen>, audit: Option<Audit>, recorder: Option<Recorder>) -> Self {
        Self {
            screen,
            blind_before: Vec::new(),
            refused_before: Vec::new(),
            audit,
            recorder,
            trouble_before: None,
        }
    }

    /// Everything is attached.
    pub fn attached(&mut self, resolved: &Resolved, settings: &Settings, at_ns: u64) {
        let pid = resolved.process.pid();
        self.line(
            &Line::Attached {
                at_ns,
                pid,
                preset: &settings.preset,
                mode: settings.mode,
            },
            || {
                format!(
                    "attached to {} (pid {pid}), preset {}, mode {}",
                    resolved.process.exe().display(),
                    settings.preset,
                    mode(settings.mode)
                )
            },
        );
    }

    /// An input came in.
    pub fn input(&mut self, input: &Input) {
        if let Some(recorder) = &mut self.recorder {
            recorder.push(input);
        }
    }

    /// The engine wants something.
    pub fn effect(&mut self, effect: &Effect, at_ns: u64) {
        if let Some(audit) = &self.audit {
            audit.effect(effect);
        }
        self.line(&Line::Effect { at_ns, effect }, || effect_text(effect));
    }

    /// An order is about to leave: its announcement goes to disk first.
    ///
    /// # Errors
    /// When there is an audit log and it cannot be written: an order that could not be explained afterwards must not leave.
    pub async fn announce(&mut self, order: &Order, command: &str) -> Result<(), String> {
        let Some(audit) = &mut self.audit else {
            return Ok(());
        };
        match audit.order(order, command).await {
            Intent::OnDisk | Intent::Late => Ok(()),
            Intent::Failed(error) => Err(format!("the audit log cannot be written: {error}")),
        }
    }

    /// An order was carried out.
    pub fn answered(&mut self, sent: &SentOrder) {
        if let Some(audit) = &self.audit {
            audit.answer(sent);
        }
        let SentOrder {
            order,
            command,
            sent_at_ns,
            answered_at_ns,
            answer,
        } = sent;
        let line = Line::OrderSent {
            at_ns: *answered_at_ns,
            order: order.order,
            command,
            sent_at_ns: *sent_at_ns,
            answered_at_ns: *answered_at_ns,
            result: &answer.result,
            detail: &answer.detail,
        };
        self.line(&line, || answer_text(sent));
    }

    /// The target told something of a decision.
    pub fn remarks(&self, decision: u64, said: &[String], at_ns: u64) {
        let line = Line::Remarks {
            at_ns,
            decision,
            said,
        };
        self.line(&line, || {
            format!("of decision {decision}: {}", said.join("; "))
        });
    }

    /// Events were lost.
    pub fn lost(&mut self, lost: &Lost) {
        let Lost { at_ns, count } = *lost;
        if let Some(audit) = &self.audit {
            audit.lost(lost);
        }
        self.line(&Line::Lost { at_ns, count }, || {
            format!("{count} events lost: nothing is cancelled for a while")
        });
    }

    /// The governor has let probes be attached for more or less of the time.
    pub fn probes(&mut self, change: &Change, at_ns: u64) {
        if let Some(audit) = &self.audit {
            audit.probes(change);
        }
        self.line(&Line::Probes { at_ns, change }, || change_text(change));
    }

    /// Says when the kernel begins or ceases to refuse probes; the watch goes on without them.
    pub fn refused(&mut self, reasons: &[String], at_ns: u64) {
        if reasons == self.refused_before {
            return;
        }
        self.line(&Line::Refused { at_ns, reasons }, || {
            if reasons.is_empty() {
                "every probe can be attached again".to_owned()
            } else {
                format!(
                    "goes on without probes, tried again in some seconds: {}",
                    reasons.join("; ")
                )
            }
        });
        self.refused_before = reasons.to_vec();
    }

    /// What a passing costs was measured, or could not be.
    pub fn costs(&mut self, measured: &Result<Costs, String>, at_ns: u64) {
        let line = Line::Costs {
            at_ns,
            costs: measured.as_ref().ok(),
            trouble: measured.as_ref().err().map(String::as_str),
        };
        self.line(&line, || match measured {
            Ok(costs) => costs_text(costs),
            Err(why) => {
                format!("what a probe costs could not be measured, usual costs are taken: {why}")
            }
        });
    }

    /// Who wakes whom cannot be seen.
    pub fn no_wakes(&self, trouble: &str, at_ns: u64) {
        self.line(&Line::Wakes { at_ns, trouble }, || {
            format!("who wakes whom cannot be seen, which costs hints alone: {trouble}")
        });
    }

    /// Somebody asked to watch closely for a while, or no longer.
    pub fn operator(&mut self, level: Level, at_ns: u64) {
        self.line(&Line::Operator { at_ns, level }, || {
            match level {
                Level::Suspect => "asked to watch closely for a while",
                Level::Calm => "no longer asked to watch closely",
            }
            .to_owned()
        });
    }

    /// The way to the target is open again, or is not.
    pub fn control(&mut self, trouble: Option<&str>, at_ns: u64) {
        self.line(&Line::Control { at_ns, trouble }, || {
            trouble.map_or_else(
                || "control connection is open".to_owned(),
                |why| format!("no control connection: {why}"),
            )
        });
    }

    /// A look was taken: says when a resource goes blind or can be seen again.
    pub fn looked(&mut self, view: &View, at_ns: u64) {
        let blind: Vec<ResourceId> = view.blind.iter().map(|blind| blind.resource).collect();
        if blind != self.blind_before {
            let reasons: Vec<String> = view
                .blind
                .iter()
                .map(|blind| blind.reason.clone())
                .collect();
            self.line(
                &Line::Blind {
                    at_ns,
                    reasons: &reasons,
                },
                || {
                    if reasons.is_empty() {
                        "everything can be seen again".to_owned()
                    } else {
                        format!("blind: {}", reasons.join("; "))
                    }
                },
            );
        }
        self.blind_before = blind;
        self.journal(at_ns);
        self.screen.catch_up();
    }

    /// Says when the audit log or the recording is in trouble.
    fn journal(&mut self, at_ns: u64) {
        let audit = self.audit.as_ref().and_then(Audit::trouble);
        let trouble = audit.or_else(|| self.recorder.as_ref().and_then(Recorder::trouble));
        if trouble != self.trouble_before {
            if let Some(trouble) = &trouble {
                self.line(&Line::Journal { at_ns, trouble }, || trouble.clone());
            }
            self.trouble_before = trouble;
        }
    }

    /// The run is over: what is still to be written is written.
    pub async fn stopped(&mut self, reason: &str) {
        if let Some(audit) = self.audit.take() {
            audit.stop(reason).await;
        }
        if let Some(Err(trouble)) = self.recorder.take().map(Recorder::finish) {
            self.line(
                &Line::Journal {
                    at_ns: clock::monotonic_ns(),
                    trouble: &trouble,
                },
                || trouble.clone(),
            );
        }
        let line = Line::Stopped {
            at_ns: clock::monotonic_ns(),
            reason,
        };
        let text = || format!("stopped: {reason}");
        self.screen.show_last(&line, text).await;
    }

    fn line(&self, line: &Line<'_>, text: impl FnOnce() -> String) {
        self.screen.show(line, text);
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "observe (nothing is cancelled)",
        Mode::DryRun => "dry-run (orders are written, not sent)",
        Mode::Enforce => "enforce",
    }
}

/// An effect for a person; empty for what only programs care about.
pub(crate) fn effect_text(effect: &Effect) -> String {
    match effect {
        Effect::Level(Level::Calm) => "calm".to_owned(),
        Effect::Level(Level::Suspect) => "suspect: watching closely".to_owned(),
        Effect::Overload(OverloadNote { reason, .. }) => format!("overload: {reason}"),
        Effect::Decision(decision) => format!("decision: {}", decision.summary),
        Effect::Cancel(Order {
            task, rung_name, ..
        }) => format!("order: {rung_name} for session {}", task.id),
        Effect::Outcome(OrderOutcome { summary, .. }) => format!("outcome: {summary}"),
        Effect::Advice(Advice { summary, .. }) => format!("advice: {summary}"),
        Effect::Hints(Hints { hints, .. }) => {
            let says: Vec<&str> = hints.iter().map(|hint| hint.says.as_str()).collect();
            format!("hint: {}", says.join("; "))
        }
    }
}

/// What the governor changed, for a person.
fn change_text(change: &Change) -> String {
    let Change {
        unit: _,
        probes,
        level,
        from,
        to,
        share,
        budget,
    } = change;
    let names = probes.join(", ");
    let level = match level {
        Level::Calm => "calm",
        Level::Suspect => "suspect",
    };
    let costs = format!(
        "{:.2} % of the target's CPU time while attached, budget {:.2} % ({level})",
        share * 100.0,
        budget * 100.0
    );
    match to {
        Standing::Shed => format!("over budget: {names} detached; {costs}"),
        _ if to < from => format!("over budget: {names} attached {to}; {costs}"),
        _ => format!("within budget again: {names} attached {to}; {costs}"),
    }
}

/// What a passing costs, for a person.
pub(crate) fn costs_text(costs: &Costs) -> String {
    let Costs {
        emulated_ns,
        usdt_ns,
        stepped_ns,
        counted_ns,
        sent_ns,
        calibrated,
        took_ms,
    } = costs;
    let whence = if *calibrated {
        format!("measured here in {took_ms:.0} ms")
    } else {
        "elsewhere, not measured here".to_owned()
    };
    format!(
        "a passing costs ({whence}): {emulated_ns:.0} ns at an emulated site, {usdt_ns:.0} ns at a USDT site, {stepped_ns:.0} ns at a \
         single-stepped one; {counted_ns:.0} ns more for a request, {sent_ns:.0} ns more for a record"
    )
}

fn answer_text(sent: &SentOrder) -> String {
    let took_ms = sent.answered_at_ns.saturating_sub(sent.sent_at_ns) as f64 / 1e6;
    let result = match &sent.answer.result {
        OrderResult::Accepted => format!("accepted after {took_ms:.1} ms"),
        OrderResult::Missed => format!("missed, the task had ended: {}", sent.answer.detail),
        OrderResult::Refused(reason) => format!("refused: {reason}"),
        OrderResult::NotSent => format!("not sent: {}", sent.answer.detail),
        OrderResult::Unknown(reason) => format!("no answer, it may still be carried out: {reason}"),
        OrderResult::Unsent(reason) => format!("could not be sent: {reason}"),
    };
    format!("{}: {result}", sent.command)
}
