//! From names to indices: what a scenario's file says becomes what the world runs.

use anyhow::{Context as _, Result, anyhow, ensure};
use atropos_engine::settings as engine;

use super::time::{nanos, time};
use super::{Bring, Class, Client, LockGroup, Machine, Plan, Pool, Sending, Step, Trouble};
use crate::scenario::{
    Class as TypedClass, Client as TypedClient, Fault, Pick, ReadPages, Scenario, Send,
    Step as Typed, TakeLock,
};
use crate::world::lock::Mode;

impl Plan {
    pub(super) fn read_classes(&self) -> Result<Vec<Class>> {
        let mut engine_class = 0;
        let mut classes = Vec::new();
        for typed in &self.scenario.classes {
            let mut steps = Vec::new();
            self.compile(&typed.steps, &mut steps)
                .with_context(|| format!("class `{}`", typed.name))?;
            let nominal_ns = steps.iter().map(|step| self.nominal_ns(step)).sum();
            let known = is_known(typed);
            classes.push(Class {
                name: typed.name.clone(),
                principal: typed.principal.clone(),
                engine_class: known.then_some(engine_class),
                protected: typed.protected,
                culprit: self.scenario.answer.culprits.contains(&typed.name),
                undo: typed.undo,
                notice: time(&typed.notice)?,
                deaf: typed.deaf,
                progress: typed.progress,
                steps: steps.into(),
                nominal_ns,
            });
            engine_class += u16::from(known);
        }
        Ok(classes)
    }

    fn compile(&self, typed: &[Typed], steps: &mut Vec<Step>) -> Result<()> {
        for step in typed {
            steps.push(match step {
                Typed::Cpu(text) => Step::Cpu(time(text)?),
                Typed::Spread(spread) => Step::Spread(time(&spread.cpu)?, spread.threads.max(1)),
                Typed::Snapshot => Step::Snapshot,
                Typed::Versions(text) => Step::Versions(nanos(text)?),
                Typed::Sleep(text) => Step::Sleep(time(text)?),
                Typed::Idle(text) => Step::Idle(time(text)?),
                Typed::Disk(text) => Step::Disk(time(text)?),
                Typed::Lock(take) => {
                    self.compile_lock(take, steps)?;
                    continue;
                }
                Typed::Unlock(name) => {
                    let (first, end) = self.group(name)?;
                    Step::Unlock { first, end }
                }
                Typed::Read(read) => self.compile_read(read)?,
                Typed::Enter(name) => Step::Enter(self.pool(name)?),
                Typed::Leave(name) => Step::Leave(self.pool(name)?),
                Typed::Alloc(mbytes) => Step::Alloc(*mbytes),
                Typed::Repeat(repeat) => {
                    for _ in 0..repeat.times {
                        self.compile(&repeat.steps, steps)?;
                    }
                    continue;
                }
            });
        }
        Ok(())
    }

    fn compile_lock(&self, take: &TakeLock, steps: &mut Vec<Step>) -> Result<()> {
        let (first, end) = self.group(&take.of)?;
        let mode = if take.shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let one = |n: usize| Step::Lock {
            first: n,
            end: n + 1,
            mode,
        };
        match take.pick {
            Pick::Any => steps.push(Step::Lock { first, end, mode }),
            Pick::All => steps.extend((first..end).map(one)),
            Pick::Number(n) => {
                ensure!(first + n < end, "`{}` has no lock {n}", take.of);
                steps.push(one(first + n));
            }
        }
        Ok(())
    }

    fn compile_read(&self, read: &ReadPages) -> Result<Step> {
        let caches = &self.scenario.caches;
        let cache = caches.iter().position(|cache| cache.name == read.of);
        let bring = match &read.miss {
            Some(miss) => Bring::Cpu(time(miss)?),
            None => Bring::Disk {
                ahead: read.ahead.max(1),
            },
        };
        Ok(Step::Read {
            cache: cache.ok_or_else(|| anyhow!("no cache is called `{}`", read.of))?,
            page_count: read.pages,
            from: read.from,
            to: read.to,
            scan: read.scan,
            bring,
        })
    }

    fn group(&self, name: &str) -> Result<(usize, usize)> {
        let group = self.locks.iter().find(|group| group.name == name);
        group
            .map(|group| (group.first, group.end))
            .ok_or_else(|| anyhow!("no locks are called `{name}`"))
    }

    fn pool(&self, name: &str) -> Result<usize> {
        let pool = self.pools.iter().position(|pool| pool.name == name);
        pool.ok_or_else(|| anyhow!("no pool is called `{name}`"))
    }

    pub(super) fn read_clients(&self) -> Result<Vec<Client>> {
        self.scenario
            .clients
            .iter()
            .map(|client| self.read_client(client))
            .collect()
    }

    fn read_client(&self, typed: &TypedClient) -> Result<Client> {
        let class = self
            .classes
            .iter()
            .position(|class| class.name == typed.class);
        let send = match &typed.send {
            Send::Poisson(rate) => Sending::Poisson(*rate),
            Send::Even(rate) => Sending::Even(*rate),
            Send::Closed { clients, think } => Sending::Closed {
                count: *clients,
                think: time(think)?,
            },
            Send::At(moments) => {
                Sending::At(moments.iter().map(|at| nanos(at)).collect::<Result<_>>()?)
            }
        };
        let shape = typed
            .shape
            .iter()
            .map(|bend| Ok((nanos(&bend.at)?, bend.factor)))
            .collect::<Result<_>>()?;
        Ok(Client {
            class: class.ok_or_else(|| anyhow!("no class is called `{}`", typed.class))?,
            send,
            from_ns: nanos(&typed.from)?,
            to_ns: typed
                .to
                .as_ref()
                .map_or(Ok(self.duration_ns), |to| nanos(to))?,
            injected: typed.injected,
            shape,
            patience_ns: typed
                .patience
                .as_ref()
                .map(|patience| nanos(patience))
                .transpose()?,
            retry_count: typed.retries,
            backoff_ns: nanos(&typed.backoff)?,
        })
    }
}

fn is_known(class: &TypedClass) -> bool {
    class.named
        || class.protected
        || class.protected_queued
        || class.undo > 0.0
        || class.background.is_some()
}

pub(super) fn troubles(fault: &Fault, duration_ns: u64) -> Result<Vec<Trouble>> {
    let (first_ns, lasts_ns) = (nanos(&fault.at)?, nanos(&fault.lasts)?);
    let every_ns = fault.every.as_ref().map(|every| nanos(every)).transpose()?;
    let starts = std::iter::successors(Some(first_ns), |at_ns| {
        every_ns.map(|every_ns| at_ns + every_ns.max(1))
    });
    Ok(starts
        .take_while(|at_ns| *at_ns < duration_ns)
        .map(|from_ns| Trouble {
            kind: fault.kind,
            from_ns,
            to_ns: from_ns + lasts_ns,
        })
        .collect())
}

/// What the agent would know of the server: resources in the order locks, pools; a ladder like a database's.
pub(super) fn settings(scenario: &Scenario) -> Result<engine::Settings> {
    let modes = vec!["shared".to_owned(), "exclusive".to_owned()];
    let locks = scenario.locks.iter().map(|group| engine::Resource {
        name: group.name.clone(),
        kind: engine::Kind::Lock,
        modes: modes.clone(),
    });
    let pools = scenario.pools.iter().map(|pool| engine::Resource {
        name: pool.name.clone(),
        kind: engine::Kind::Queue,
        modes: Vec::new(),
    });
    let machine = machine(scenario).into_iter().map(machine_resource);
    let classes = scenario
        .classes
        .iter()
        .filter(|class| is_known(class))
        .map(|class| engine::Class {
            name: class.name.clone(),
            protected: class.protected,
            protected_queued: class.protected_queued,
            undo: class.undo,
        });
    let rung = |name: &str, busy, idle| engine::Rung {
        name: name.to_owned(),
        busy,
        idle,
        deadline_ns: 1_000_000_000,
    };
    Ok(engine::Settings {
        preset: scenario.name.clone(),
        resources: locks.chain(pools).chain(machine).collect(),
        classes: classes.collect(),
        ladder: vec![rung("statement", true, false), rung("session", true, true)],
        slo: engine::Slo {
            percentile: 99.0,
            limit: engine::SloLimit::Absolute {
                ns: nanos(&scenario.slo)?,
            },
        },
        protected_principals: Vec::new(),
        mode: engine::Mode::Enforce,
        tuning: engine::Tuning::default(),
        rerun: engine::Rerun {
            background: background(scenario)?,
            ..engine::Rerun::default()
        },
    })
}

fn background(scenario: &Scenario) -> Result<Vec<engine::Background>> {
    let known = scenario.classes.iter().filter(|class| is_known(class));
    let waits = (0..).zip(known).filter_map(|(index, class)| {
        let wait = class.background.as_ref()?;
        Some(nanos(wait).map(|wait_ns| engine::Background {
            class: index,
            wait_ns,
        }))
    });
    waits.collect()
}

/// What there is of the machine in this scenario.
pub(super) fn machine(scenario: &Scenario) -> Vec<Machine> {
    let walks = scenario
        .classes
        .iter()
        .any(|class| class.steps.iter().any(keeps_versions));
    let there = [
        (Machine::Processor, true),
        (Machine::Disk, scenario.disk.is_some()),
        (Machine::Pages, !scenario.caches.is_empty()),
        (Machine::Heap, scenario.heap.is_some()),
        (Machine::Versions, walks),
    ];
    there
        .into_iter()
        .filter(|(_, there)| *there)
        .map(|(part, _)| part)
        .collect()
}

fn keeps_versions(step: &Typed) -> bool {
    match step {
        Typed::Snapshot | Typed::Versions(_) => true,
        Typed::Repeat(repeat) => repeat.steps.iter().any(keeps_versions),
        _ => false,
    }
}

fn machine_resource(part: Machine) -> engine::Resource {
    let (name, kind) = match part {
        Machine::Processor => ("processor", engine::Kind::Cpu),
        Machine::Disk => ("disk", engine::Kind::Io),
        Machine::Pages => ("pages", engine::Kind::Memory),
        Machine::Heap => ("heap", engine::Kind::Memory),
        Machine::Versions => ("old versions", engine::Kind::Memory),
    };
    engine::Resource {
        name: name.to_owned(),
        kind,
        modes: Vec::new(),
    }
}

/// Groups of locks, one behind the other.
pub(super) fn locks(scenario: &Scenario) -> Vec<LockGroup> {
    let mut locks = Vec::new();
    let mut next = 0;
    for group in &scenario.locks {
        locks.push(LockGroup {
            name: group.name.clone(),
            first: next,
            end: next + group.count,
            blind: group.blind,
        });
        next += group.count;
    }
    locks
}

/// Pools.
pub(super) fn pools(scenario: &Scenario) -> Vec<Pool> {
    let pools = scenario.pools.iter().map(|pool| Pool {
        name: pool.name.clone(),
        slot_count: pool.slots,
        queue_limit: pool.queue,
    });
    pools.collect()
}
