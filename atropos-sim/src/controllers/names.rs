//! Controllers by name.

use std::sync::Arc;

use super::Controller;
use super::artifact::{Artifact, Library};
use super::both::Both;
use super::killers::{PgTerminate, PtKill, TidbRunaway, TimeoutAny, TimeoutVictim};
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

/// Every controller: its name, and how to make one.
pub(crate) const ALL: &[(&str, Make)] = &[
    ("none", |_| Box::new(Nothing)),
    ("oracle", |plan| Box::new(oracle::Oracle::new(plan))),
    ("atropos", |plan| Box::new(Watched::new(plan))),
    ("atropos-again", |plan| Box::new(Watched::again(plan))),
    ("paper", |plan| Box::new(Paper::new(plan, Rule::Future))),
    ("paper-current", |plan| {
        Box::new(Paper::new(plan, Rule::Current))
    }),
    ("paper-greedy", |plan| {
        Box::new(Paper::new(plan, Rule::Greedy))
    }),
    ("artifact-c", |plan| {
        Box::new(Artifact::new(plan, Library::C))
    }),
    ("artifact-java", |plan| {
        Box::new(Artifact::new(plan, Library::Java))
    }),
    ("protego", |plan| Box::new(protego::Protego::new(plan))),
    ("pbox", |plan| Box::new(pbox::PBox::new(plan))),
    ("darc", |plan| Box::new(darc::Darc::new(plan))),
    ("parties", |plan| Box::new(parties::Parties::new(plan))),
    ("breakwater", |plan| {
        Box::new(breakwater::Breakwater::new(plan))
    }),
    ("dagor", |plan| Box::new(admission::Dagor::new(plan))),
    ("seda", |plan| Box::new(admission::Seda::new(plan))),
    ("shed-cap", |plan| {
        Box::new(Shedding::new(plan, true, false, false))
    }),
    ("shed-length", |plan| {
        Box::new(Shedding::new(plan, false, true, false))
    }),
    ("shed-deadline", |plan| {
        Box::new(Shedding::new(plan, false, false, true))
    }),
    ("shed-all", |plan| {
        Box::new(Shedding::new(plan, true, true, true))
    }),
    ("atropos+cap", |plan| with_door(plan, true, false, false)),
    ("atropos+length", |plan| with_door(plan, false, true, false)),
    ("atropos+deadline", |plan| {
        with_door(plan, false, false, true)
    }),
    ("atropos+all", |plan| with_door(plan, true, true, true)),
    ("root-blocker", |plan| {
        Box::new(root_blocker::RootBlocker::new(plan))
    }),
    ("pt-kill", |plan| Box::new(PtKill::new(plan))),
    ("pg-terminate", |plan| Box::new(PgTerminate::new(plan))),
    ("timeout-victim", |plan| Box::new(TimeoutVictim::new(plan))),
    ("timeout-any", |plan| Box::new(TimeoutAny::new(plan))),
    ("tidb-runaway", |plan| Box::new(TidbRunaway::new(plan))),
    ("opensearch", |plan| {
        Box::new(opensearch::Backpressure::new(plan))
    }),
];

/// The engine inside, and load shedding at the door.
fn with_door(plan: &Arc<Plan>, cap: bool, length: bool, deadline: bool) -> Box<dyn Controller> {
    let door = Shedding::new(plan, cap, length, deadline);
    Box::new(Both::new(Box::new(Watched::new(plan)), Box::new(door)))
}

/// The controller of this name.
pub(crate) fn make(name: &str, plan: &Arc<Plan>) -> Option<Box<dyn Controller>> {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, make)| make(plan))
}
