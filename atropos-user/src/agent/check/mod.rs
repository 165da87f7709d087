//! What of a preset can be seen in a process: every layout number, probe, walk and the way to end a task, tried for real.

#[cfg(feature = "ebpf")]
mod measure;
mod sight;

use serde::Serialize;

use super::clock;
use super::resolve::{Place, Resolved};
use crate::config::{Exact, Initiator, Location, Preset};
use crate::elf::Cost;
use crate::engine::record::Level;
use crate::governor::{Costs, Standing};
use crate::walk::Graph;
pub use sight::Sight;

/// Version of the JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// Looks that the walks are tried with.
const LOOKS: u32 = 8;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Preset.
    pub preset: String,
    /// What it covers.
    pub title: String,
    /// The process, if one was given.
    pub process: Option<Target>,
    /// Probes.
    pub probes: Vec<ProbeReport>,
    /// Resources.
    pub resources: Vec<ResourceReport>,
    /// Names of the preset that the process does not have.
    pub unlearned: Vec<String>,
    /// Ways to end a task, and whether they may be used.
    pub initiator: Option<InitiatorReport>,
    /// What a passing costs, if probes were attached.
    pub costs: Option<Costs>,
    /// What the probes may cost, as shares of the target's CPU time: in calm and when suspect.
    pub budget: (f64, f64),
    /// Things that could not be kept while probes were attached, whatever the cause.
    pub lost_count: Option<u64>,
    /// How each walk fares, by resource; the outer nothing is a resource without one.
    #[serde(skip)]
    walks: Vec<Option<Result<(), String>>>,
}

/// The process.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// Its id.
    pub pid: u32,
    /// The file that has the preset's symbols.
    pub file: String,
    /// The linker's build id of that file.
    pub build_id: String,
    /// The file on disk is no longer the one that runs.
    pub replaced: bool,
    /// Sessions listed, or why they cannot be.
    pub sessions: Result<usize, String>,
}

/// One probe.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// Name.
    pub name: String,
    /// What passing it means.
    pub op: String,
    /// When it is attached.
    pub level: Level,
    /// Where it sits; nothing without a process.
    pub place: Option<Result<PlaceReport, Vec<String>>>,
    /// Places that the preset offers.
    pub alternatives: Vec<String>,
    /// Why the kernel did not let it be attached, if that was tried in vain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Passings in the time of the check, if probes were attached.
    pub hits: Option<u64>,
    /// The same in more words.
    pub fired: Option<Fired>,
    /// How much of its time it may be attached in calm, by what it cost in the check.
    pub calm: Option<Standing>,
    /// The same when suspect.
    pub suspect: Option<Standing>,
}

/// How a probe fared while it was attached.
#[derive(Clone, Debug, Serialize)]
pub struct Fired {
    /// For how long it was attached, seconds: less than the time of the check if it is over budget.
    pub attached_s: f64,
    /// Passings a second of that time.
    pub per_s: f64,
    /// How long ago it fired last, seconds; if it never did, for how long it was attached.
    pub silent_s: f64,
    /// What one passing costs, nanoseconds; the dearest of its sites.
    pub cost_ns: f64,
    /// Share of the target's CPU time that it takes while it is attached, with those that stand and fall with it.
    pub share: f64,
    /// Passings whose arguments could not be read.
    pub lost_count: u64,
}

/// Where a probe sits.
#[derive(Clone, Debug, Serialize)]
pub struct PlaceReport {
    /// Which alternative, from 1.
    pub alternative: usize,
    /// Symbol that was found.
    pub symbol: String,
    /// File.
    pub file: String,
    /// File offset of the first site.
    pub offset: u64,
    /// How many sites the probe has there; more than one only with USDT.
    pub site_count: usize,
    /// `cheap`, `emulated` or `expensive`.
    pub cost: &'static str,
    /// How the site was chosen.
    pub why: String,
}

/// One resource.
#[derive(Clone, Debug, Serialize)]
pub struct ResourceReport {
    /// Name.
    pub name: String,
    /// How well it can be seen; nothing without a process.
    pub sight: Option<Sight>,
    /// Why it cannot be seen, or not wholly.
    pub reasons: Vec<String>,
    /// Why it is blind, if it is; nothing without a process.
    pub blind: Option<Option<String>>,
    /// Sessions that wait for it at this moment.
    pub waiting: usize,
    /// Of those, how many are confirmed by the futex that their thread blocks on.
    pub confirmed_by_futex: usize,
}

/// The way to end a task.
#[derive(Clone, Debug, Serialize)]
pub struct InitiatorReport {
    /// `mysql`, `postgres`, `signal` or `exec`.
    pub initiator: &'static str,
    /// Rungs, gentlest first.
    pub rungs: Vec<String>,
    /// What came of trying it on an own idle session; nothing if it was not tried.
    pub permission: Option<Result<(), String>>,
    /// Where a session's own thread finds an order; nothing if the preset has no such way.
    pub exact: Option<ExactReport>,
}

/// Where a session's own thread finds an order.
#[derive(Clone, Debug, Serialize)]
pub struct ExactReport {
    /// How long an order waits to be found, milliseconds.
    pub within_ms: f64,
    /// The places, all of those that the process has.
    pub places: Vec<OrderPlace>,
}

/// A place where a thread finds an order.
#[derive(Clone, Debug, Serialize)]
pub struct OrderPlace {
    /// As the preset names it.
    pub name: String,
    /// Where it lies; nothing without a process.
    pub place: Option<Result<PlaceReport, Vec<String>>>,
}

impl ExactReport {
    fn of(exact: &Exact) -> Self {
        let place = |probe: &crate::config::Probe| OrderPlace {
            name: probe.name.value.clone(),
            place: None,
        };
        Self {
            within_ms: exact.within.as_secs_f64() * 1e3,
            places: exact.places.iter().map(place).collect(),
        }
    }
}

impl Report {
    /// What the preset says, without a process.
    pub fn of_preset(preset: &Preset) -> Self {
        let probe = |probe: &crate::config::Probe| ProbeReport {
            name: probe.name.value.clone(),
            op: format!("{:?}", probe.op),
            level: probe.level,
            place: None,
            alternatives: probe
                .alternatives
                .iter()
                .map(|alternative| location(&alternative.location.value))
                .collect(),
            refused: None,
            hits: None,
            fired: None,
            calm: None,
            suspect: None,
        };
        let resource = |resource: &crate::config::Resource| ResourceReport {
            name: resource.name.value.clone(),
            sight: None,
            reasons: Vec::new(),
            blind: None,
            waiting: 0,
            confirmed_by_futex: 0,
        };
        let rungs = |cancel: &crate::config::Cancel| {
            cancel
                .rungs
                .iter()
                .map(|rung| rung.name.value.clone())
                .collect()
        };
        Self {
            schema_version: SCHEMA_VERSION,
            preset: preset.name.value.clone(),
            title: preset.title.clone(),
            process: None,
            probes: preset.probes.iter().map(probe).collect(),
            resources: preset.resources.iter().map(resource).collect(),
            unlearned: Vec::new(),
            costs: None,
            budget: (preset.budget.calm, preset.budget.suspect),
            lost_count: None,
            walks: vec![None; preset.resources.len()],
            initiator: preset.cancel.as_ref().map(|cancel| InitiatorReport {
                initiator: match cancel.initiator {
                    Initiator::Mysql => "mysql",
                    Initiator::Postgres => "postgres",
                    Initiator::Signal => "signal",
                    Initiator::Exec => "exec",
                },
                rungs: rungs(cancel),
                permission: None,
                exact: cancel.exact.as_ref().map(ExactReport::of),
            }),
        }
    }

    /// What of it can be seen in a process. Probes are resolved and not attached.
    pub fn of_process(resolved: &Resolved) -> Self {
        let mut report = Self::of_preset(&resolved.preset);
        for (probe, found) in report.probes.iter_mut().zip(&resolved.probes) {
            probe.place = Some(found.place.as_ref().map(place).map_err(Clone::clone));
        }
        let exact = report.initiator.as_mut().and_then(|one| one.exact.as_mut());
        let order_places = exact.into_iter().flat_map(|exact| &mut exact.places);
        for (one, found) in order_places.zip(&resolved.order_places) {
            one.place = Some(found.as_ref().map(place).map_err(Clone::clone));
        }
        report.unlearned = resolved.unlearned.iter().map(ToString::to_string).collect();
        report.walk(resolved);
        report.see(resolved);
        report
    }

    /// Judges how well each resource can be seen, by what is known so far.
    fn see(&mut self, resolved: &Resolved) {
        let walks = self.walks.clone();
        sight::judge(self, &resolved.preset, &walks);
    }

    /// Whether everything that the preset wants can be seen.
    pub fn is_seen(&self) -> bool {
        let probes = self
            .probes
            .iter()
            .all(|probe| !matches!(probe.place, Some(Err(_))) && probe.refused.is_none());
        let resources = self
            .resources
            .iter()
            .all(|resource| resource.sight.is_none_or(|sight| sight == Sight::Seen));
        probes && resources && self.unlearned.is_empty()
    }

    /// Whether tasks may be ended, as far as that was tried.
    pub fn may_cancel(&self) -> bool {
        let initiator = self.initiator.as_ref();
        initiator.is_none_or(|initiator| !matches!(initiator.permission, Some(Err(_))))
    }

    /// Lists sessions and walks the locks, as `run` would.
    fn walk(&mut self, resolved: &Resolved) {
        let listed = match &resolved.sessions {
            Some(Ok(list)) => {
                let tries = (0..LOOKS)
                    .map(|_| list.read(&resolved.memory, clock::epoch_minus_monotonic_ns()));
                let mut last = Err("the preset does not list sessions".to_owned());
                for seen in tries {
                    last = seen.map_err(|error| error.to_string());
                    if last.is_ok() {
                        break;
                    }
                }
                last
            }
            Some(Err(reason)) => Err(reason.clone()),
            None => Err("the preset does not list sessions".to_owned()),
        };
        for (index, walk) in resolved.walks.iter().enumerate() {
            let resource =
                &mut self.resources[usize::from(resolved.preset.walks[index].resource.0)];
            let seen = walk.as_ref().map_err(Clone::clone).and_then(|walk| {
                let sessions = listed.as_ref().map_err(Clone::clone)?;
                let mut last = Err(String::new());
                for _ in 0..LOOKS {
                    let memory = &resolved.memory;
                    let is_session = |key| match &resolved.sessions {
                        Some(Ok(list)) => list.proves(key, memory),
                        _ => false,
                    };
                    last = walk
                        .graph(sessions, memory, memory, &is_session)
                        .map_err(|error| error.to_string());
                    if last.is_ok() {
                        break;
                    }
                }
                last.map(|graph| (walk, graph))
            });
            let fares = seen.map(|(walk, graph)| {
                resource.waiting = graph.waits.len();
                resource.confirmed_by_futex = confirmed(resolved, walk, &graph);
            });
            self.walks[usize::from(resolved.preset.walks[index].resource.0)] = Some(fares);
        }
        self.process = Some(Target {
            pid: resolved.process.pid(),
            file: resolved.binary.path_in_target.display().to_string(),
            build_id: resolved
                .binary
                .build_id
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            replaced: resolved.binary.replaced,
            sessions: listed.map(|sessions| sessions.len()),
        });
    }
}

/// Waiters whose thread blocks on a futex that leads back to the same session: two independent ways to one answer.
fn confirmed(resolved: &Resolved, walk: &crate::walk::LockWalk, graph: &Graph) -> usize {
    let threads = resolved.process.thread_ids().unwrap_or_default();
    let futexes = threads
        .iter()
        .filter_map(|thread| resolved.process.blocked_on(*thread).ok().flatten());
    let sessions: Vec<u64> = futexes
        .flat_map(|futex| walk.sessions_of_futex(futex.address, &resolved.memory))
        .collect();
    graph
        .waits
        .iter()
        .filter(|wait| sessions.contains(&wait.waiter))
        .count()
}

/// A place as the preset names it.
fn location(location: &Location) -> String {
    match location {
        Location::Symbol { pattern, offset: 0 } => pattern.clone(),
        Location::Symbol { pattern, offset } => format!("{pattern}+{offset:#x}"),
        Location::Address { address, build_id } => format!("{address:#x} of build {build_id}"),
        Location::Usdt { pattern } => format!("usdt {pattern}"),
    }
}

fn place(place: &Place) -> PlaceReport {
    // The one that costs most speaks for all.
    let dearest = place
        .sites
        .iter()
        .max_by_key(|placed| !placed.site.cost.is_emulated())
        .map(|placed| &placed.site);
    PlaceReport {
        alternative: place.alternative + 1,
        symbol: place.symbol.clone(),
        file: place.file.display().to_string(),
        offset: place
            .sites
            .first()
            .map_or(0, |first| first.site.file_offset),
        site_count: place.sites.len(),
        cost: match dearest.map(|site| site.cost) {
            Some(Cost::Cheap) => "cheap",
            Some(Cost::Emulated) => "emulated",
            Some(Cost::Expensive) | None => "expensive",
        },
        why: dearest.map(|site| site.why.clone()).unwrap_or_default(),
    }
}
