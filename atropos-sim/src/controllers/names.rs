//! Controllers by name.

use std::sync::Arc;

use super::Controller;
use super::artifact::{Artifact, Library};
use super::both::Both;
use super::killers::{AgeKiller, TidbRunaway, TimeoutVictim};
use super::paper::{Paper, Rule};
use super::shedding::Shedding;
use super::{
    admission, breakwater, darc, opensearch, oracle, parties, pbox, protego, root_blocker,
};
use crate::plan::Plan;
use crate::view::Watched;

/// A controller that does nothing.
struct Nothing;

impl Controller for Nothing {
    fn sees_waits(&self) -> bool {
        false
    }
}

type Make = fn(&Arc<Plan>) -> Box<dyn Controller>;

/// A controller that can be asked for.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// What it does, for a person.
    pub(crate) about: &'static str,
    make: Make,
}

const fn entry(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry { name, about, make }
}

/// Every controller.
pub(crate) const ALL: &[Entry] = &[
    entry("none", "does nothing", |_| Box::new(Nothing)),
    entry(
        "oracle",
        "knows the culprits and ends them one look after they began",
        |plan| Box::new(oracle::Oracle::new(plan)),
    ),
    entry(
        "oracle-patient",
        "knows the culprits and ends each once it has been at work for as long as ending it has to free",
        |plan| Box::new(oracle::Oracle::patient(plan)),
    ),
    entry("atropos", "the engine with its defaults", |plan| {
        Box::new(Watched::new(plan))
    }),
    entry(
        "atropos-again",
        "the engine, free to end the same work again, without a budget for each minute",
        |plan| Box::new(Watched::again(plan)),
    ),
    entry(
        "atropos-rerun",
        "the engine, and a front that keeps what was cancelled and runs it again, once, on the engine's advice",
        |plan| Box::new(Watched::rerun(plan)),
    ),
    entry(
        "paper",
        "the paper's policy: the largest sum of contention times future usage",
        |plan| Box::new(Paper::new(plan, Rule::Future)),
    ),
    entry(
        "paper-current",
        "the paper's policy with usage so far in place of future usage",
        |plan| Box::new(Paper::new(plan, Rule::Current)),
    ),
    entry(
        "paper-greedy",
        "the paper's policy on the most contended resource alone",
        |plan| Box::new(Paper::new(plan, Rule::Greedy)),
    ),
    entry(
        "artifact-c",
        "the published artifact's rules for C programs: throughput halved for five seconds",
        |plan| Box::new(Artifact::new(plan, Library::C)),
    ),
    entry(
        "artifact-java",
        "the published artifact's rules for Java programs: throughput a fifth down for two seconds",
        |plan| Box::new(Artifact::new(plan, Library::Java)),
    ),
    entry(
        "protego",
        "admits by performance, and ends long waits for locks",
        |plan| Box::new(protego::Protego::new(plan)),
    ),
    entry(
        "pbox",
        "delays whoever made others wait, when it lets go",
        |plan| Box::new(pbox::PBox::new(plan)),
    ),
    entry("darc", "reserves workers for short requests", |plan| {
        Box::new(darc::Darc::new(plan))
    }),
    entry("parties", "moves cores between clients", |plan| {
        Box::new(parties::Parties::new(plan))
    }),
    entry(
        "breakwater",
        "admits by credits and queueing delay",
        |plan| Box::new(breakwater::Breakwater::new(plan)),
    ),
    entry("dagor", "admits by priority and queueing delay", |plan| {
        Box::new(admission::Dagor::new(plan))
    }),
    entry("seda", "admits at a rate by the client's p99", |plan| {
        Box::new(admission::Seda::new(plan))
    }),
    entry("shed-cap", "refuses beyond a cap in flight", |plan| {
        Box::new(Shedding::new(plan, true, false, false))
    }),
    entry("shed-length", "refuses when the queue is long", |plan| {
        Box::new(Shedding::new(plan, false, true, false))
    }),
    entry(
        "shed-deadline",
        "drops what is late when its turn comes",
        |plan| Box::new(Shedding::new(plan, false, false, true)),
    ),
    entry("shed-all", "all three ways to shed load", |plan| {
        Box::new(Shedding::new(plan, true, true, true))
    }),
    entry("atropos+cap", "the engine, and a cap at the door", |plan| {
        with_door(plan, true, false, false)
    }),
    entry(
        "atropos+length",
        "the engine, and a look at the queue",
        |plan| with_door(plan, false, true, false),
    ),
    entry("atropos+deadline", "the engine, and a deadline", |plan| {
        with_door(plan, false, false, true)
    }),
    entry(
        "atropos+all",
        "the engine, and all three at the door",
        |plan| with_door(plan, true, true, true),
    ),
    entry(
        "root-blocker",
        "ends the root of the largest wait-for tree once a lock wait exceeds the objective",
        |plan| Box::new(root_blocker::RootBlocker::new(plan)),
    ),
    entry(
        "pt-kill",
        "each second, ends the oldest busy request beyond ten objectives",
        |plan| Box::new(AgeKiller::pt_kill(plan)),
    ),
    entry(
        "pg-terminate",
        "each second, ends every session that is busy beyond ten objectives",
        |plan| Box::new(AgeKiller::pg_terminate(plan)),
    ),
    entry(
        "timeout-victim",
        "a lock timeout: ends every wait beyond the objective",
        |plan| Box::new(TimeoutVictim::new(plan)),
    ),
    entry(
        "timeout-any",
        "a statement timeout: ends every request beyond ten objectives",
        |plan| Box::new(AgeKiller::timeout_any(plan)),
    ),
    entry(
        "tidb-runaway",
        "ends every request beyond ten objectives, and refuses its like for ten minutes",
        |plan| Box::new(TidbRunaway::new(plan)),
    ),
    entry(
        "opensearch",
        "in duress of processor or heap, ends the requests that use most",
        |plan| Box::new(opensearch::Backpressure::new(plan)),
    ),
];

/// The engine inside, and load shedding at the door.
fn with_door(plan: &Arc<Plan>, cap: bool, length: bool, deadline: bool) -> Box<dyn Controller> {
    let door = Shedding::new(plan, cap, length, deadline);
    Box::new(Both::new(Box::new(Watched::new(plan)), Box::new(door)))
}

/// The controller of this name.
pub(crate) fn make(name: &str, plan: &Arc<Plan>) -> Option<Box<dyn Controller>> {
    ALL.iter()
        .find(|entry| entry.name == name)
        .map(|entry| (entry.make)(plan))
}
