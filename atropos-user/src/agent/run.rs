//! `atropos run`: the loop that looks, decides, acts and tells, twenty times a second.
//!
//! One task owns the engine. The carrier brings orders to the target on a task of its own; its answers come back over a
//! bounded channel and are fed at once, not at the next tick.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::carrier::{Carrier, Heard, Tools};
use super::clock;
use super::feed::{Eyes, Feed};
use super::initiator::{self, Question};
use super::levels::Levels;
use super::on_cpu::OnCpu;
use super::probes::Probes;
use super::resolve::Resolved;
use super::tell::Teller;
use super::told::Told;
use super::wakers::Asked;
use super::watch::View;
use crate::cancel::{Answer, Desk, SentOrder};
use crate::engine::Engine;
use crate::engine::input::Input;
use crate::engine::record::{Effect, Level, Order};
use crate::engine::settings::Settings;
use crate::kernel::give_back_heap;
use crate::target::{EndWatch, title_of};

/// The engine's tick.
pub const TICK: Duration = Duration::from_millis(50);

/// The tick in calm while nobody waits and requests pass no probe. A look costs the agent the same however little it shows; who
/// begins to wait then is seen 25 ms later on average, a tenth of the time that a decision may take.
const QUIET_TICK: Duration = Duration::from_millis(100);

/// Between the moment at which nothing of a dying process can be read any more and its end: its memory is given back, which
/// takes a while where there is much of it.
const GOING: Duration = Duration::from_secs(2);

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A person or the service manager asked.
    Asked,
    /// The target is gone.
    TargetGone,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel half could not be loaded or attached; nothing of it is left.
    #[error("cannot attach: {0:#}")]
    Attach(anyhow::Error),
    /// Something that the watch needs went away.
    #[error("{0:#}")]
    Watch(#[from] anyhow::Error),
}

/// Watches one process until it ends or the agent is asked to stop.
///
/// # Errors
/// When nothing can be attached, or the kernel half can no longer be read.
pub async fn run(
    resolved: &Resolved,
    settings: Settings,
    mut carrier: Carrier,
    teller: &mut Teller,
    stop: &mut StopSignals,
) -> Result<End, RunError> {
    let counter = resolved.preset.completed.as_ref();
    let completed = counter
        .map(|formula| formula.bind(&resolved.names))
        .transpose()
        .context("the counter of completed requests cannot be read")?;
    let feed = Feed::new(eyes(resolved)?, completed, resolved.never_seen());
    // What the server's symbols took for a moment.
    give_back_heap();
    // Before anybody is told that the watch has begun: from then on an end is an end and no failure to attach.
    let end = resolved.process.end().map_err(anyhow::Error::from)?;
    let mut probes = Probes::attach(resolved, clock::monotonic_ns()).map_err(RunError::Attach)?;
    probes.calibrate();
    let desk = probes.desk(resolved).map_err(RunError::Attach)?;
    let (asked, questions) = mpsc::channel(1);
    carrier.equip(Tools {
        desk: desk.map(|desk| Box::new(desk) as Box<dyn Desk>),
        proof: feed.hears_marks().then(|| initiator::proof_of_watch(asked)),
    });
    let closely = signal(SignalKind::user_defined1()).context("cannot listen for signals")?;
    give_back_heap();
    teller.attached(resolved, &settings, clock::monotonic_ns());
    let engine = Engine::new(settings);
    let mut watch = Watch {
        resolved,
        engine,
        feed,
        on_cpu: OnCpu::new(&resolved.preset, &resolved.process),
        probes,
        carrier,
        questions,
        teller,
        levels: Levels::default(),
        asked: Asked::default(),
    };
    let done = watch.until_end(&end, stop, closely).await;
    watch.wind_down().await;
    match done {
        // Where the process is going, nothing can be attached or read any more.
        Err(_) if end.is_over_within(GOING) => Ok(End::TargetGone),
        done => Ok(done?),
    }
}

/// What the process is seen with.
fn eyes(resolved: &Resolved) -> Result<Eyes> {
    if resolved.preset.matching.marks {
        return Ok(Eyes::Marks(Box::new(Told::new(&resolved.preset))));
    }
    Ok(Eyes::Memory(Box::new(resolved.watcher()?)))
}

/// The signals that ask the agent to stop.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Listens from here on.
    ///
    /// # Errors
    /// When the runtime cannot listen for signals.
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits until somebody asks.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A run in progress.
struct Watch<'a> {
    resolved: &'a Resolved,
    engine: Engine,
    feed: Feed,
    on_cpu: Option<OnCpu>,
    probes: Probes,
    carrier: Carrier,
    /// What the ladder asks before it signals.
    questions: mpsc::Receiver<Question>,
    teller: &'a mut Teller,
    levels: Levels,
    asked: Asked,
}

impl Watch<'_> {
    async fn until_end(
        &mut self,
        end: &EndWatch,
        stop: &mut StopSignals,
        mut closely: Signal,
    ) -> Result<End> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.asked() => return Ok(End::Asked),
                Some(()) = closely.recv() => self.asked_to_watch_closely()?,
                Some(question) = self.questions.recv() => self.look_again(question),
                Some(heard) = self.carrier.heard() => self.heard(heard).await?,
                _ = tick.tick() => {
                    if end.is_over() {
                        return Ok(End::TargetGone);
                    }
                    if self.tick().await? {
                        tick.reset_after(QUIET_TICK);
                    }
                }
            }
        }
    }

    /// Nothing is decided and no order leaves any more: tells what became of those that have left. The probes stay for as long, since an
    /// order that was put down for the session's own thread is found there.
    async fn wind_down(mut self) {
        // Whom nobody proves is not signalled.
        self.questions.close();
        for sent in self.carrier.finish().await {
            self.teller.answered(&sent);
        }
    }

    /// The ladder is about to signal: looks whether the task is still what was meant.
    fn look_again(&self, question: Question) {
        let pid = self.resolved.process.pid();
        let seen = self.probes.still_since_ns(&question.task, pid);
        // Who has given up waiting signals nobody.
        let _ = question.answer.send(seen);
    }

    /// Somebody asked to watch closely, or no longer.
    fn asked_to_watch_closely(&mut self) -> Result<()> {
        let now_ns = clock::monotonic_ns();
        let asked = self.levels.toggle(now_ns);
        self.teller.operator(asked, now_ns);
        self.probes.set_level(self.levels.now(), now_ns)
    }

    /// One tick: look, feed, act. Whether all is so quiet that the next look may come later.
    async fn tick(&mut self) -> Result<bool> {
        let now_ns = clock::monotonic_ns();
        if self.levels.is_over(now_ns) {
            self.teller.operator(Level::Calm, now_ns);
            self.probes.set_level(self.levels.now(), now_ns)?;
        }
        let harvest = self.probes.harvest(now_ns)?;
        for change in &harvest.changes {
            self.teller.probes(change, now_ns);
        }
        self.teller.refused(&harvest.refused, now_ns);
        if let Some(measured) = &harvest.calibrated {
            self.teller.costs(measured, now_ns);
        }
        let own = self.carrier.own_ids.borrow().clone();
        self.feed.follow_clock(clock::epoch_minus_monotonic_ns());
        let now_ns = clock::monotonic_ns();
        let (mut inputs, view) = self
            .feed
            .inputs(&harvest, &self.resolved.memory, now_ns, &own);
        let level = self.levels.now();
        let on_cpu = self
            .on_cpu
            .as_mut()
            .and_then(|on_cpu| on_cpu.look(&view.sessions, &view.snapshots, level, now_ns));
        // Before the tick, which is the last and drives the decision.
        let tick = inputs.len().saturating_sub(1);
        inputs.splice(tick..tick, on_cpu.map(Input::Usage));
        for input in &inputs {
            if let Input::Lost(lost) = input {
                self.teller.lost(lost);
            }
            self.handle(input).await?;
        }
        self.look_at_wakes(&view, now_ns).await?;
        if self.carrier.trouble.has_changed().unwrap_or(false) {
            let trouble = self.carrier.trouble.borrow_and_update().clone();
            self.teller.control(trouble.as_deref(), now_ns);
        }
        self.teller.looked(&view, now_ns);
        let nobody_waits = harvest.events.is_empty() && view.waiting_count == 0;
        Ok(nobody_waits && self.levels.now() == Level::Calm && !self.probes.times_requests())
    }

    /// Who wakes those that wait for what nobody can be told to hold: a hint, for which nothing else fails.
    async fn look_at_wakes(&mut self, view: &View, now_ns: u64) -> Result<()> {
        let wanted = self.asked.note(view, now_ns);
        match self.probes.look_at_wakes(wanted, now_ns) {
            Ok(Some(look)) => {
                let process = &self.resolved.process;
                let theirs = |thread| process.theirs(thread);
                if let Some(woken) = self.asked.answer(&look, view, theirs, title_of) {
                    self.handle(&Input::Woken(woken)).await?;
                }
            }
            Ok(None) => {}
            Err(error) => self.teller.no_wakes(&format!("{error:#}"), now_ns),
        }
        Ok(())
    }

    /// The carrier has brought something back.
    async fn heard(&mut self, heard: Heard) -> Result<()> {
        match heard {
            Heard::Answer(sent) => {
                self.teller.answered(&sent);
                self.handle(&Input::Outcome(sent.report())).await?;
            }
            Heard::Remarks { decision, said } => {
                self.teller.remarks(decision, &said, clock::monotonic_ns());
            }
        }
        Ok(())
    }

    /// Feeds one input and does what it makes the engine want.
    async fn handle(&mut self, input: &Input) -> Result<()> {
        let mut returned = VecDeque::from(self.feed_one(input).await?);
        while let Some(input) = returned.pop_front() {
            returned.extend(self.feed_one(&input).await?);
        }
        Ok(())
    }

    /// Feeds one input; each order that could not be handed over comes back as an input of its own.
    async fn feed_one(&mut self, input: &Input) -> Result<Vec<Input>> {
        self.teller.input(input);
        let mut effects = Vec::new();
        let mut returned = Vec::new();
        self.engine.handle(input, &mut effects);
        for effect in &effects {
            self.teller.effect(effect, input.at_ns());
            match effect {
                Effect::Level(level) => {
                    self.levels.engine = *level;
                    self.probes
                        .set_level(self.levels.now(), clock::monotonic_ns())?;
                }
                Effect::Cancel(order) => returned.extend(self.send(order).await),
                Effect::Overload(_)
                | Effect::Decision(_)
                | Effect::Outcome(_)
                | Effect::Advice(_)
                | Effect::Hints(_) => {}
            }
        }
        // Behind the orders, which go first.
        for effect in &effects {
            if let Effect::Decision(decision) = effect {
                self.carrier.ask(decision);
            }
        }
        Ok(returned)
    }

    /// Hands an order to the carrier, once its announcement is on disk. Of one that cannot leave the target hears nothing.
    async fn send(&mut self, order: &Order) -> Option<Input> {
        let command = initiator::describe(self.resolved, usize::from(order.rung), &order.task);
        let reason = match self.teller.announce(order, &command).await {
            Ok(()) if self.carrier.hand_over(order.clone(), command.clone()) => return None,
            Ok(()) => "the order before this one is still under way".to_owned(),
            Err(reason) => reason,
        };
        let at_ns = clock::monotonic_ns();
        let unsent = SentOrder {
            order: order.clone(),
            command,
            sent_at_ns: at_ns,
            answered_at_ns: at_ns,
            answer: Answer::unsent(reason),
        };
        self.teller.answered(&unsent);
        Some(Input::Outcome(unsent.report()))
    }
}
