//! The engine behind the trait of the controllers: what a look shows becomes the inputs that the kernel half and the
//! walks would give, and the engine's orders become commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use atropos_common::histogram::bucket_of;
use atropos_engine::input::{
    Activity, Blind, BlockKind, Blocker, Evidence, Input, InstanceKey, InstanceName, OrderReport,
    OrderResult, RequestStats, ResourceId, SessionKey, SessionState, SessionUsage, Snapshot, Tick,
    Usage, Wait,
};
use atropos_engine::record::{Advice, AdviceKind, Effect, Level, Order};
use atropos_engine::settings::Repeat;
use atropos_engine::{Engine, Settings};

use crate::controllers::seen::{SeenTask, SeenWait};
use crate::controllers::{Action, Controller, Report, Seen};
use crate::plan::{Machine, Plan};
use crate::world::task::TaskRef;

/// The engine as a controller.
pub(crate) struct Watched {
    plan: Arc<Plan>,
    engine: Engine,
    suspect: bool,
    keeps_cancelled: bool,
    /// Waits in the look before, by resource: one that has gone to none must still be told.
    waits_before: Vec<usize>,
    before_ns: u64,
    /// Who runs in each session, as of the latest look.
    tasks: BTreeMap<u64, TaskRef>,
    rungs: BTreeMap<u64, u8>,
    /// Everything that the engine said, for whoever wants to know why.
    said: Vec<Effect>,
}

impl Watched {
    /// An engine that watches a server that runs this plan.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self::with(plan, plan.engine.clone())
    }

    /// The same without the rule that the same work is not cancelled again, and without a budget for each minute: what
    /// these two cost where several culprits are alike.
    pub(crate) fn again(plan: &Arc<Plan>) -> Self {
        let mut settings = plan.engine.clone();
        settings.tuning.repeat = Repeat::Again;
        settings.tuning.per_minute = settings.tuning.per_hour;
        Self::with(plan, settings)
    }

    /// The same with something in front of the server that keeps what was cancelled and follows the engine's advice on it.
    pub(crate) fn rerun(plan: &Arc<Plan>) -> Self {
        let mut settings = plan.engine.clone();
        settings.rerun.once = true;
        Self {
            keeps_cancelled: true,
            ..Self::with(plan, settings)
        }
    }

    fn with(plan: &Arc<Plan>, settings: Settings) -> Self {
        Self {
            keeps_cancelled: false,
            engine: Engine::new(settings),
            suspect: false,
            waits_before: vec![0; plan.engine.resources.len()],
            before_ns: 0,
            tasks: BTreeMap::new(),
            rungs: BTreeMap::new(),
            said: Vec::new(),
            plan: plan.clone(),
        }
    }

    fn handle(&mut self, input: &Input, out: &mut Vec<Action>) {
        let mut effects = Vec::new();
        self.engine.handle(input, &mut effects);
        for effect in &effects {
            match effect {
                Effect::Level(level) => self.suspect = *level == Level::Suspect,
                Effect::Cancel(order) => out.push(self.command(order)),
                Effect::Advice(advice) => out.push(follow(advice)),
                _ => {}
            }
        }
        self.said.extend(effects);
    }

    fn command(&mut self, order: &Order) -> Action {
        self.rungs.insert(order.order, order.rung);
        let serial = order.task.request;
        let known = self
            .tasks
            .get(&order.task.session.0)
            .filter(|task| task.serial == serial);
        Action::Cancel {
            task: known.copied().unwrap_or(TaskRef { index: 0, serial }),
            with_session: order.rung > 0,
            number: order.order,
        }
    }

    /// What sessions used of the machine and lost to each other, as the kernel and the server would count it.
    fn usages(&self, seen: &Seen) -> Vec<Input> {
        let first = self.plan.line_count();
        let part = |(n, part): (usize, &Machine)| {
            Input::Usage(Usage {
                at_ns: seen.now_ns,
                resource: ResourceId((first + n) as u16),
                covered_ns: seen.now_ns - self.before_ns,
                evidence: Evidence::Event,
                complete: true,
                sessions: sessions_of(*part, seen),
            })
        };
        self.plan.machine.iter().enumerate().map(part).collect()
    }

    fn snapshots(&mut self, seen: &Seen) -> Vec<Input> {
        let mut by_resource: Vec<Vec<&SeenWait>> = vec![Vec::new(); self.waits_before.len()];
        for wait in &seen.waits {
            by_resource[wait.resource].push(wait);
        }
        let mut inputs = Vec::new();
        for (resource, waits) in by_resource.iter().enumerate() {
            let before = std::mem::replace(&mut self.waits_before[resource], waits.len());
            if before > 0 || !waits.is_empty() {
                inputs.push(Input::Snapshot(self.snapshot(seen.now_ns, resource, waits)));
            }
        }
        inputs
    }

    fn snapshot(&self, at_ns: u64, resource: usize, waits: &[&SeenWait]) -> Snapshot {
        let name = &self.plan.engine.resources[resource].name;
        let mut instances: Vec<usize> = waits.iter().map(|wait| wait.instance).collect();
        instances.sort_unstable();
        instances.dedup();
        Snapshot {
            at_ns,
            resource: ResourceId(resource as u16),
            evidence: Evidence::Walk,
            complete: true,
            waits: waits.iter().map(|wait| to_wait(wait)).collect(),
            instances: instances
                .into_iter()
                .map(|n| InstanceName {
                    instance: InstanceKey(n as u64 + 1),
                    name: format!("{name} {n}"),
                })
                .collect(),
        }
    }

    fn session(&self, task: &SeenTask) -> SessionState {
        let class = &self.plan.classes[task.class];
        SessionState {
            session: SessionKey(task.session),
            id: task.session,
            thread: task.session as u32,
            request: task.task.serial,
            activity: if task.idle_since_ns.is_some() {
                Activity::IdleInTransaction
            } else {
                Activity::Busy
            },
            since_ns: task.idle_since_ns.unwrap_or(task.started_ns),
            transaction_since_ns: task.idle_since_ns.map(|_| task.started_ns),
            class: class.engine_class,
            principal: class.principal.clone(),
            fingerprint: task.class as u64 + 1,
            digest: class.name.clone(),
            progress: task.progress,
            killed: task.killed,
            own: false,
        }
    }

    fn requests(&self, seen: &Seen) -> RequestStats {
        let covered = self.suspect || self.plan.always_covered();
        let mut latency = BTreeMap::new();
        for done in seen.done.iter().filter(|_| covered) {
            *latency
                .entry(bucket_of(done.latency_ns) as u16)
                .or_insert(0) += 1;
        }
        RequestStats {
            completed: Some(seen.done.len() as u64),
            covered_ns: if covered {
                seen.now_ns - self.before_ns
            } else {
                0
            },
            latency: latency.into_iter().collect(),
        }
    }

    fn blind(&self) -> Vec<Blind> {
        let locks = self
            .plan
            .locks
            .iter()
            .enumerate()
            .filter(|(_, group)| group.blind);
        locks
            .map(|(r, _)| Blind {
                resource: ResourceId(r as u16),
                reason: "no probe sees it".to_owned(),
            })
            .collect()
    }
}

/// Everybody's part of one resource of the machine.
fn sessions_of(part: Machine, seen: &Seen) -> Vec<SessionUsage> {
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    for task in &seen.tasks {
        let holds = match part {
            Machine::Heap => task.heap_mbytes as u64,
            Machine::Versions => task.view_age_ns,
            _ => 0,
        };
        if holds > 0 {
            held.insert(task.session, holds);
        }
    }
    let mut sessions: BTreeMap<u64, (u64, u64)> = held.keys().map(|key| (*key, (0, 0))).collect();
    for (session, spent) in &seen.spent {
        let (used, lost_ns) = match part {
            Machine::Processor => (spent.cpu_ns, spent.cpu_lost_ns),
            Machine::Disk => (spent.disk_ns, spent.disk_lost_ns),
            Machine::Pages => (spent.page_count, spent.page_lost_ns),
            Machine::Heap => (spent.heap_mbytes, spent.heap_lost_ns),
            Machine::Versions => (0, spent.version_lost_ns),
        };
        if used > 0 || lost_ns > 0 {
            sessions.insert(*session, (used, lost_ns));
        }
    }
    sessions
        .into_iter()
        .map(|(session, (used, lost_ns))| SessionUsage {
            session: SessionKey(session),
            used,
            lost_ns,
            held: held.get(&session).copied().unwrap_or(0),
        })
        .collect()
}

/// A request's number is that of the task.
fn follow(advice: &Advice) -> Action {
    match advice.kind {
        AdviceKind::Retry => Action::RunAgain(advice.task.request),
        AdviceKind::Drop => Action::GiveUpOn(advice.task.request),
    }
}

fn to_wait(wait: &SeenWait) -> Wait {
    let blockers = wait.blockers.iter().map(|blocker| Blocker {
        session: SessionKey(blocker.session),
        kind: if blocker.queued {
            BlockKind::Queued
        } else {
            BlockKind::Granted
        },
        mode: blocker.mode,
        since_ns: blocker.since_ns,
    });
    Wait {
        waiter: SessionKey(wait.session),
        instance: InstanceKey(wait.instance as u64 + 1),
        mode: wait.mode,
        since_ns: wait.since_ns,
        blockers: blockers.collect(),
    }
}

impl Controller for Watched {
    fn keeps_cancelled(&self) -> bool {
        self.keeps_cancelled
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        self.tasks = seen
            .tasks
            .iter()
            .map(|task| (task.session, task.task))
            .collect();
        for input in self.snapshots(seen) {
            self.handle(&input, out);
        }
        for input in self.usages(seen) {
            self.handle(&input, out);
        }
        let tick = Tick {
            at_ns: seen.now_ns,
            requests: self.requests(seen),
            sessions: seen.tasks.iter().map(|task| self.session(task)).collect(),
            blind: self.blind(),
        };
        self.before_ns = seen.now_ns;
        self.handle(&Input::Tick(tick), out);
    }

    fn report(&mut self, report: &Report, out: &mut Vec<Action>) {
        let rung = self.rungs.remove(&report.number).unwrap_or(0);
        let result = if report.accepted {
            OrderResult::Accepted
        } else {
            OrderResult::Missed
        };
        let input = OrderReport {
            at_ns: report.at_ns,
            order: report.number,
            rung,
            result,
        };
        self.handle(&Input::Outcome(input), out);
    }

    fn explain(&self) -> Vec<String> {
        self.said.iter().filter_map(line).collect()
    }
}

fn line(effect: &Effect) -> Option<String> {
    let at = |ns: u64| ns as f64 / 1e9;
    match effect {
        Effect::Level(_) | Effect::Cancel(_) | Effect::Hints(_) => None,
        Effect::Overload(note) => Some(format!(
            "{:8.3} s {:?}: {}",
            at(note.at_ns),
            note.state,
            note.reason
        )),
        Effect::Decision(decision) => Some(format!(
            "{:8.3} s decision: {}",
            at(decision.at_ns),
            decision.summary
        )),
        Effect::Outcome(outcome) => Some(format!(
            "{:8.3} s outcome: {}",
            at(outcome.at_ns),
            outcome.summary
        )),
        Effect::Advice(advice) => Some(format!(
            "{:8.3} s advice: {}",
            at(advice.at_ns),
            advice.summary
        )),
    }
}
