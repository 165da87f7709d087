//! What of a preset can be seen in a process: every layout number, probe, walk and the way to end a task, tried for real.

use serde::Serialize;

use super::clock;
use super::resolve::{Place, Resolved};
use crate::config::{Location, Preset};
use crate::elf::Cost;
use crate::engine::record::Level;
use crate::walk::Graph;

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
    /// Passings in the time of the check, if probes were attached.
    pub hits: Option<u64>,
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
    /// `seen`, or why it is blind; nothing without a process.
    pub blind: Option<Option<String>>,
    /// Sessions that wait for it at this moment.
    pub waiting: usize,
    /// Of those, how many are confirmed by the futex that their thread blocks on.
    pub confirmed_by_futex: usize,
}

/// The way to end a task.
#[derive(Clone, Debug, Serialize)]
pub struct InitiatorReport {
    /// Rungs, gentlest first.
    pub rungs: Vec<String>,
    /// What came of trying it on an own idle session; nothing if it was not tried.
    pub permission: Option<Result<(), String>>,
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
            hits: None,
        };
        let resource = |resource: &crate::config::Resource| ResourceReport {
            name: resource.name.value.clone(),
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
            initiator: preset.cancel.as_ref().map(|cancel| InitiatorReport {
                rungs: rungs(cancel),
                permission: None,
            }),
        }
    }

    /// What of it can be seen in a process. Probes are resolved and not attached.
    pub fn of_process(resolved: &Resolved) -> Self {
        let mut report = Self::of_preset(&resolved.preset);
        for (probe, found) in report.probes.iter_mut().zip(&resolved.probes) {
            probe.place = Some(found.place.as_ref().map(place).map_err(Clone::clone));
        }
        report.unlearned = resolved.unlearned.iter().map(ToString::to_string).collect();
        report.walk(resolved);
        report
    }

    /// Whether everything that the preset wants can be seen, and the initiator, if tried, may act.
    pub fn is_whole(&self) -> bool {
        let probes = self
            .probes
            .iter()
            .all(|probe| !matches!(probe.place, Some(Err(_))));
        let resources = self
            .resources
            .iter()
            .all(|resource| !matches!(resource.blind, Some(Some(_))));
        let initiator = self
            .initiator
            .as_ref()
            .is_none_or(|initiator| !matches!(initiator.permission, Some(Err(_))));
        probes && resources && initiator && self.unlearned.is_empty()
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
            match seen {
                Ok((walk, graph)) => {
                    resource.blind = Some(None);
                    resource.waiting = graph.waits.len();
                    resource.confirmed_by_futex = confirmed(resolved, walk, &graph);
                }
                Err(reason) => resource.blind = Some(Some(reason)),
            }
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
