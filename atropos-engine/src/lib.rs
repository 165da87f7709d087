//! The deciding half: a state machine without clock, file, socket or thread. Inputs in, effects out.
//!
//! The same inputs give the same effects, byte for byte, on any machine: time comes from the inputs alone
//! (`CLOCK_MONOTONIC` nanoseconds of the machine that was watched), no iteration order depends on a hash seed, and no
//! arithmetic goes beyond what IEEE 754 fixes.
//!
//! An input changes the ledger (what is known of the target). A tick then asks, in this order: who is to blame for lost
//! time (`blame`); is the objective broken (`detector`); does a contended resource explain it (`estimator`); what would
//! ending each task free (`gain`); which of them may be ended (`guard`) and which is best (`policy`); and what became of
//! the order before (`pacing`). Apart from all that a session may be beyond a limit that the user has set (`excess`). What
//! holds throughout:
//! - Nothing is decided while an order is in flight, and nothing is cancelled on incomplete evidence.
//! - A task that is in nobody's way cannot be a candidate, unless it is beyond a limit that the user has set.
//! - A hold or wait leads to the same decision whether events or snapshots told of it.

pub mod input;
pub mod record;
pub mod settings;

mod absent;
mod again;
mod blame;
mod brief;
mod case;
mod choose;
mod climb;
mod decide;
mod detector;
mod estimator;
mod excess;
mod explain;
mod familiar;
mod flow;
mod gain;
mod graph;
mod group;
mod guard;
mod hints;
mod holds;
mod ledger;
mod live;
mod orders;
mod overload;
mod pacing;
mod peers;
mod policy;
mod progress;
mod realised;
mod requeue;
mod stillness;
mod table;
mod tenure;
mod unseen;
mod usage;
mod view;
mod waited;
mod window;

pub use decide::Survey;
use input::{Input, OrderReport, Tick};
use record::{Effect, OutcomeKind};
pub use settings::Settings;

use detector::{Detector, Flight};
use excess::Excesses;
use graph::Graph;
use guard::Guard;
use hints::Wakers;
use ledger::Ledger;
use overload::Overload;
use pacing::Flying;
use requeue::Requeue;

/// The engine.
#[derive(Clone, Debug)]
pub struct Engine {
    settings: Settings,
    ledger: Ledger,
    detector: Detector,
    guard: Guard,
    wakers: Wakers,
    overload: Overload,
    requeue: Requeue,
    /// Orders in flight, of one decision.
    flying: Vec<Flying>,
    advised: Vec<record::Task>,
    told: decide::Told,
    /// Room for a tick's requests in flight.
    flights: Vec<Flight>,
    excesses: Excesses,
    decision_count: u64,
    order_count: u64,
}

/// How much the engine remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Sessions with something known about them.
    pub sessions: usize,
    /// Waits in progress.
    pub waits: usize,
    /// Holds known from events.
    pub holds: usize,
    /// Instances with a name.
    pub instances: usize,
    /// Sessions whose use of a resource is known, for each resource.
    pub usages: usize,
    /// Threads that were seen to wake waiters.
    pub wakers: usize,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            ledger: Ledger::new(&settings.resources, settings.tuning.window_ns),
            detector: Detector::new(settings.slo, &settings.tuning),
            guard: Guard::default(),
            wakers: Wakers::default(),
            overload: Overload::default(),
            requeue: Requeue::default(),
            flying: Vec::new(),
            advised: Vec::new(),
            told: decide::Told::default(),
            flights: Vec::new(),
            excesses: Excesses::default(),
            decision_count: 0,
            order_count: 0,
            settings,
        }
    }

    /// Takes one input in and appends what it makes the engine want.
    pub fn handle(&mut self, input: &Input, out: &mut Vec<Effect>) {
        match input {
            Input::Event(event) => self.ledger.event(event),
            Input::Snapshot(snapshot) => self.ledger.snapshot(snapshot),
            Input::Lost(lost) => {
                self.ledger.lose_trust(lost.at_ns);
                self.guard.lost(&self.settings, self.ledger.now_ns);
            }
            Input::Outcome(report) => {
                self.ledger.advance(report.at_ns);
                self.report(report, out);
            }
            Input::Usage(usage) => self.ledger.usage(usage),
            Input::Woken(woken) => {
                self.ledger.advance(woken.at_ns);
                self.wakers.look(woken, &self.ledger);
                self.wakers.tell(&self.settings, &self.ledger, out);
            }
            Input::Excess(excess) => self.excesses.tell(excess),
            Input::Tick(tick) => self.ledger.tick(tick),
            Input::Unseen(unseen) => self.unseen(unseen, out),
        }
        for flying in &mut self.flying {
            flying.watch(&self.ledger);
        }
        if let Input::Tick(tick) = input {
            self.tick(tick, out);
        }
    }

    /// How much is remembered: bounded by live sessions, open waits and holds.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        Footprint {
            sessions: self.ledger.sessions.len(),
            waits: self.ledger.waits.len(),
            holds: self.ledger.hold_count(),
            instances: self.ledger.names.len(),
            usages: self.ledger.usage_count(),
            wakers: self.wakers.count(),
        }
    }

    fn tick(&mut self, tick: &Tick, out: &mut Vec<Effect>) {
        let now_ns = self.ledger.now_ns;
        self.guard.forget(&self.settings, now_ns);
        self.wakers.forget(now_ns);
        self.detector.count(&tick.requests, now_ns);
        let graph = blame::assign(&self.ledger);
        let mut flights = std::mem::take(&mut self.flights);
        self.look_in_flight(&graph, &mut flights);
        let reading = self.detector.assess(&flights, now_ns);
        self.watch_level(&reading, out);
        if self.overload.is_calm() {
            self.detector.learn();
        }
        self.pace(&graph, out);
        let estimate = estimator::estimate(
            &self.settings,
            &self.ledger,
            &graph,
            &self.detector,
            &flights,
        );
        self.flights = flights;
        let is_due = self.watch_overload(&reading, &estimate, out);
        self.advise(&estimate, out);
        if is_due && self.flying.is_empty() {
            self.decide(&reading, &estimate, &graph, out);
        }
        self.guard.again.follow(&self.ledger);
        self.end_excess(tick.at_ns, &reading, &estimate, out);
    }

    /// Requests whose latency the objective is about: not the agent's own, not those of protected classes (background
    /// work), and not those that are to blame for others' waiting.
    fn look_in_flight(&self, graph: &Graph, flights: &mut Vec<Flight>) {
        let ledger = &self.ledger;
        flights.clear();
        for (key, brief) in ledger.sessions.briefs() {
            let wait = brief.waits.then(|| ledger.waits.get(key)).flatten();
            let since_ns = match (&brief.listed, wait) {
                (Some(listed), _) if !listed.is_foreign_and_busy() => continue,
                (Some(listed), _) if self.is_protected(listed.class) => continue,
                (Some(listed), _) => listed.since_ns,
                (None, Some(wait)) => wait.since_ns,
                (None, None) => continue,
            };
            let culprit = graph.get(*key).is_some_and(|node| {
                node.is_blamed()
                    && !node.in_cycle
                    && (node.waiting.is_none() || node.waits_in_line())
            });
            if culprit {
                continue;
            }
            let seen = wait.filter(|wait| !ledger.is_blind(wait.resource));
            let open_ns = seen.map_or(0, |wait| ledger.now_ns.saturating_sub(wait.since_ns));
            let waited_ns = brief
                .waited_ns
                .saturating_add(open_ns)
                .saturating_add(ledger.lost_to_use_ns(*key));
            flights.push(Flight {
                session: *key,
                since_ns,
                waiting: seen.is_some(),
                waited_ns,
            });
        }
    }

    fn is_protected(&self, class: Option<u16>) -> bool {
        guard::class_at(&self.settings, class).is_some_and(|class| class.protected)
    }

    fn report(&mut self, report: &OrderReport, out: &mut Vec<Effect>) {
        let Some(at) = self
            .flying
            .iter()
            .position(|flying| flying.order.order == report.order)
        else {
            return;
        };
        let flying = &mut self.flying[at];
        let Some(result) = flying.report(&self.settings, report) else {
            return;
        };
        out.push(Effect::Outcome(flying.outcome(&self.ledger, result)));
        let flying = self.flying.remove(at);
        let (order, now_ns) = (&flying.order, self.ledger.now_ns);
        match result {
            // By the rung before.
            OutcomeKind::Missed if flying.was_accepted() => {
                self.requeue.ended(&self.settings, &flying, now_ns);
            }
            OutcomeKind::Missed => {
                self.guard.missed(&flying, now_ns);
                self.excesses.missed(order.task.session);
            }
            OutcomeKind::Refused => self.guard.refused(order),
            OutcomeKind::Unsent => {
                self.guard.unsent(order, now_ns);
                self.excesses.missed(order.task.session);
            }
            _ => self.advised.push(flying.order.task),
        }
    }
}

#[cfg(test)]
mod testkit;
