//! A scenario with every name resolved and every time in nanoseconds: what the world runs.

mod compile;
mod recording;
mod time;

use std::sync::Arc;

use anyhow::{Result, ensure};
use atropos_engine::settings as engine;

use crate::scenario::{Coverage, FaultKind, Progress, Scenario};
use crate::world::lock::Mode;
use crate::world::rng::Time;

/// A step of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Cpu(Time),
    /// Work of all threads together, and how many.
    Spread(Time, u32),
    Snapshot,
    /// Work for each second of age of the oldest snapshot, nanoseconds.
    Versions(u64),
    Sleep(Time),
    Idle(Time),
    Disk(Time),
    /// One of the locks `first..end`.
    Lock {
        first: usize,
        end: usize,
        mode: Mode,
    },
    Unlock {
        first: usize,
        end: usize,
    },
    Read {
        cache: usize,
        page_count: u32,
        from: u64,
        to: u64,
        scan: bool,
        bring: Bring,
    },
    Enter(usize),
    Leave(usize),
    Alloc(f64),
}

/// How a page that is not in the cache gets there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bring {
    /// From disk, so many at once.
    Disk { ahead: usize },
    /// It is computed.
    Cpu(Time),
}

/// A class of requests.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_field_names,
    reason = "the engine has classes of its own"
)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) principal: String,
    /// Index into the engine's classes.
    pub(crate) engine_class: Option<u16>,
    pub(crate) protected: bool,
    pub(crate) culprit: bool,
    pub(crate) undo: f64,
    pub(crate) notice: Time,
    pub(crate) deaf: bool,
    pub(crate) progress: Progress,
    pub(crate) steps: Arc<[Step]>,
    /// Work in all steps, as far as it can be told beforehand, nanoseconds.
    pub(crate) nominal_ns: u64,
}

/// A source of requests.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) class: usize,
    pub(crate) send: Sending,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) injected: bool,
    /// (From when, how many times the rate.)
    pub(crate) shape: Vec<(u64, f64)>,
    pub(crate) patience_ns: Option<u64>,
    pub(crate) retry_count: u32,
    pub(crate) backoff_ns: u64,
}

/// When requests come.
#[derive(Clone, Debug)]
pub(crate) enum Sending {
    Poisson(f64),
    Even(f64),
    Closed { count: usize, think: Time },
    At(Vec<u64>),
}

/// A group of locks: `first..end` of all.
#[derive(Clone, Debug)]
pub(crate) struct LockGroup {
    pub(crate) name: String,
    pub(crate) first: usize,
    pub(crate) end: usize,
    pub(crate) blind: bool,
}

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) slot_count: usize,
    pub(crate) queue_limit: usize,
}

/// Something of the machine that requests use up without waiting for it in a line; after locks and pools in the engine's
/// resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// Cores.
    Processor,
    /// The disk.
    Disk,
    /// Pages of all caches.
    Pages,
    /// The heap, and the collection of its garbage.
    Heap,
    /// Old versions that an open view keeps alive.
    Versions,
}

/// A time of trouble outside of the requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: FaultKind,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

/// The plan.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) duration_ns: u64,
    pub(crate) from_ns: u64,
    pub(crate) slo_ns: u64,
    pub(crate) cores: f64,
    pub(crate) page_ns: u64,
    pub(crate) locks: Vec<LockGroup>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) machine: Vec<Machine>,
    pub(crate) classes: Vec<Class>,
    pub(crate) clients: Vec<Client>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) engine: engine::Settings,
}

impl Plan {
    /// Reads a scenario.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let scenario: Scenario = toml::from_str(text)?;
        Self::of(scenario)
    }

    fn of(scenario: Scenario) -> Result<Self> {
        let duration_ns = time::nanos(&scenario.duration)?;
        let mut plan = Self {
            duration_ns,
            from_ns: time::nanos(&scenario.from)?,
            slo_ns: time::nanos(&scenario.slo)?,
            cores: scenario.cores,
            page_ns: scenario
                .disk
                .as_ref()
                .map_or(Ok(100_000), |disk| time::nanos(&disk.page))?,
            locks: compile::locks(&scenario),
            pools: compile::pools(&scenario),
            machine: compile::machine(&scenario),
            classes: Vec::new(),
            clients: Vec::new(),
            troubles: Vec::new(),
            engine: compile::settings(&scenario)?,
            scenario,
        };
        for culprit in &plan.scenario.answer.culprits {
            ensure!(
                plan.scenario
                    .classes
                    .iter()
                    .any(|class| class.name == *culprit),
                "culprit `{culprit}` is no class"
            );
        }
        plan.classes = plan.read_classes()?;
        plan.clients = plan.read_clients()?;
        for fault in &plan.scenario.faults {
            plan.troubles.extend(compile::troubles(fault, duration_ns)?);
        }
        Ok(plan)
    }

    /// The same without the trouble: what the innocents would have got.
    pub(crate) fn without_trouble(&self) -> Self {
        let mut plan = self.clone();
        for client in &mut plan.clients {
            if client.injected {
                client.to_ns = 0;
            }
        }
        plan.troubles.clear();
        plan
    }

    /// Work of a step, as far as it can be told beforehand: waits for others are no work.
    pub(crate) fn nominal_ns(&self, step: &Step) -> u64 {
        match *step {
            Step::Cpu(time) | Step::Sleep(time) | Step::Idle(time) | Step::Disk(time) => {
                time.mean_ns()
            }
            Step::Spread(time, _) => time.mean_ns(),
            Step::Read {
                page_count,
                bring: Bring::Disk { .. },
                ..
            } => u64::from(page_count) * self.page_ns,
            Step::Read {
                page_count,
                bring: Bring::Cpu(time),
                ..
            } => u64::from(page_count) * time.mean_ns(),
            _ => 0,
        }
    }

    /// How many of the engine's resources are waited for in a line: locks and pools, before those of the machine.
    pub(crate) fn line_count(&self) -> usize {
        self.engine.resources.len() - self.machine.len()
    }

    /// Mean work of a request of those clients that are not the trouble, nanoseconds.
    pub(crate) fn mean_service_ns(&self) -> u64 {
        let calm = self.clients.iter().filter(|client| !client.injected);
        let works: Vec<u64> = calm
            .map(|client| self.classes[client.class].nominal_ns)
            .collect();
        works.iter().sum::<u64>() / works.len().max(1) as u64
    }

    /// Latencies of completed requests are seen even while nothing is suspected.
    pub(crate) fn always_covered(&self) -> bool {
        self.scenario.latency == Coverage::Always
    }
}
