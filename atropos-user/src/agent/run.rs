//! `atropos run`: the loop that looks, decides, acts and tells, twenty times a second.
//!
//! One task owns the engine. The carrier brings orders to the target on a task of its own; its answers come back over a
//! bounded channel and are fed at once, not at the next tick.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::carrier::Carrier;
use super::clock;
use super::feed::Feed;
use super::probes::Probes;
use super::resolve::Resolved;
use super::tell::Teller;
use crate::cancel::SentOrder;
use crate::engine::Engine;
use crate::engine::input::{Input, OrderReport, OrderResult};
use crate::engine::record::{Effect, Order};
use crate::engine::settings::Settings;

/// The engine's tick.
pub const TICK: Duration = Duration::from_millis(50);

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A person or the service manager asked.
    Asked,
    /// The target is gone.
    TargetGone,
}

/// Watches one process until it ends or the agent is asked to stop.
///
/// # Errors
/// When nothing can be attached, or the kernel half can no longer be read.
pub async fn run(resolved: &Resolved, settings: Settings, carrier: Carrier, teller: &mut Teller) -> Result<End> {
    let completed = resolved.preset.completed.as_ref().map(|formula| formula.bind(&resolved.names)).transpose()?;
    let feed = Feed::new(resolved.watcher()?, completed);
    let probes = Probes::attach(resolved, clock::monotonic_ns())?;
    let (interrupt, terminate) = (stop_signal(SignalKind::interrupt())?, stop_signal(SignalKind::terminate())?);
    teller.attached(resolved, &settings, clock::monotonic_ns());
    let engine = Engine::new(settings);
    let mut watch = Watch { resolved, engine, feed, probes, carrier, teller };
    watch.until_end(interrupt, terminate).await
}

fn stop_signal(kind: SignalKind) -> Result<Signal> {
    signal(kind).context("cannot listen for signals")
}

/// A run in progress.
struct Watch<'a> {
    resolved: &'a Resolved,
    engine: Engine,
    feed: Feed,
    probes: Probes,
    carrier: Carrier,
    teller: &'a mut Teller,
}

impl Watch<'_> {
    async fn until_end(&mut self, mut interrupt: Signal, mut terminate: Signal) -> Result<End> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = interrupt.recv() => return Ok(End::Asked),
                _ = terminate.recv() => return Ok(End::Asked),
                Some(sent) = self.carrier.answers.recv() => self.answered(&sent)?,
                _ = tick.tick() => {
                    if !self.resolved.process.still_same() {
                        return Ok(End::TargetGone);
                    }
                    self.tick()?;
                }
            }
        }
    }

    /// One tick: look, feed, act.
    fn tick(&mut self) -> Result<()> {
        let harvest = self.probes.harvest(clock::monotonic_ns())?;
        let own = self.carrier.own_ids.borrow().clone();
        let now_ns = clock::monotonic_ns();
        let (inputs, view) = self.feed.inputs(&harvest, &self.resolved.memory, now_ns, &own);
        for input in &inputs {
            if let Input::Lost(lost) = input {
                self.teller.lost(lost);
            }
            self.handle(input)?;
        }
        if self.carrier.trouble.has_changed().unwrap_or(false) {
            let trouble = self.carrier.trouble.borrow_and_update().clone();
            self.teller.control(trouble.as_deref(), now_ns);
        }
        self.teller.looked(&view, now_ns);
        Ok(())
    }

    fn answered(&mut self, sent: &SentOrder) -> Result<()> {
        self.teller.answered(sent);
        self.handle(&Input::Outcome(sent.report()))
    }

    /// Feeds one input and does what it makes the engine want.
    fn handle(&mut self, input: &Input) -> Result<()> {
        self.teller.input(input);
        let mut effects = Vec::new();
        self.engine.handle(input, &mut effects);
        for effect in &effects {
            // The intent is on disk before the order leaves.
            self.teller.effect(effect, input_time(input));
            match effect {
                Effect::Level(level) => self.probes.set_level(*level, clock::monotonic_ns())?,
                Effect::Cancel(order) => self.send(order)?,
                Effect::Overload(_) | Effect::Decision(_) | Effect::Outcome(_) => {}
            }
        }
        Ok(())
    }

    fn send(&mut self, order: &Order) -> Result<()> {
        if self.carrier.hand_over(order.clone()) {
            return Ok(());
        }
        let result = OrderResult::Refused("the order before this one is still under way".to_owned());
        let report = OrderReport { at_ns: clock::monotonic_ns(), order: order.order, rung: order.rung, result };
        self.handle(&Input::Outcome(report))
    }
}

/// When an input happened.
fn input_time(input: &Input) -> u64 {
    match input {
        Input::Event(event) => event.at_ns,
        Input::Lost(lost) => lost.at_ns,
        Input::Tick(tick) => tick.at_ns,
        Input::Snapshot(snapshot) => snapshot.at_ns,
        Input::Outcome(report) => report.at_ns,
    }
}
