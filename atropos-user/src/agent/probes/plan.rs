//! Which sites there are, what passing one costs, and which probes stand and fall together.

use anyhow::{Context as _, Result, anyhow};
use atropos_common::limits::MAX_SITES;
use atropos_common::op::Op;
use atropos_common::site::SiteSpec;

use crate::agent::resolve::{PlacedSite, Resolved};
use crate::config::Probe;
use crate::engine::input::ResourceId;
use crate::engine::record::Level;
use crate::governor::{Unit, Way, Work};
use crate::target::HeldPath;

/// A site that can be attached.
#[derive(Debug)]
pub(super) struct Planned {
    /// Its probe; a USDT probe may have several sites.
    pub(super) name: String,
    pub(super) cookie: u16,
    pub(super) file: HeldPath,
    pub(super) site: PlacedSite,
    pub(super) work: Work,
    /// Its waits and holds are read out of the kernel half: an application that tells by marks shows them nowhere else.
    pub(super) keeps: bool,
}

impl Planned {
    /// How the kernel gets to the program and back.
    pub(super) fn way(&self) -> Way {
        if !self.site.site.cost.is_emulated() {
            Way::Stepped
        } else if self.site.semaphore_offset.is_some() {
            Way::Usdt
        } else {
            Way::Emulated
        }
    }

    /// What the site means, with its flags.
    pub(super) fn spec(&self) -> SiteSpec {
        let sends = match self.work {
            Work::Counted => 0,
            Work::Sent => SiteSpec::EMIT,
        };
        let keeps = if self.keeps { SiteSpec::KEEP } else { 0 };
        SiteSpec {
            flags: sends | keeps,
            ..self.site.spec
        }
    }
}

/// Probes that stand and fall together, with their sites.
#[derive(Debug)]
pub(super) struct PlannedUnit {
    pub(super) unit: Unit,
    /// Requests begin and end here: latencies are known while it is attached.
    pub(super) times_requests: bool,
    /// The kernel half sums what sessions use here.
    pub(super) sums_use: bool,
    /// What the kernel half keeps open between its passings: holds, or waits.
    pub(super) keeps: Option<Keeps>,
    pub(super) sites: Vec<Planned>,
}

/// What the kernel half keeps open of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keeps {
    pub(super) resource: ResourceId,
    pub(super) holds: bool,
}

/// What makes probes one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bond {
    Requests,
    Waits(ResourceId),
    Holds(ResourceId),
    Units(ResourceId),
    Alone(usize),
}

/// Every probe that has a place, with a cookie of its own for each site. One of the calm set without a place is an error: the
/// preset counts on it.
pub(super) fn plan(resolved: &Resolved) -> Result<Vec<PlannedUnit>> {
    let mut units: Vec<(Bond, PlannedUnit)> = Vec::new();
    let marks = resolved.preset.matching.marks;
    let mut taken = 0;
    for resolved_probe in &resolved.probes {
        let probe = &resolved.preset.probes[resolved_probe.probe];
        let name = &probe.name.value;
        let place = match &resolved_probe.place {
            Ok(place) => place,
            Err(tried) if probe.level == Level::Calm => {
                return Err(anyhow!(
                    "cannot attach probe `{name}`: {}",
                    tried.join("; ")
                ));
            }
            Err(_) => continue,
        };
        let bond = bond(probe, resolved_probe.probe);
        // Those of the fuller set do not keep those of the calm set back, and the other way round.
        let known = units
            .iter_mut()
            .find(|(other, unit)| *other == bond && unit.unit.level == probe.level);
        let planned = if let Some((_, planned)) = known {
            join(&mut planned.unit, probe);
            planned
        } else {
            units.push((bond, alone(probe, bond, marks)));
            &mut units.last_mut().context("a unit was just added")?.1
        };
        for site in &place.sites {
            planned.sites.push(Planned {
                name: name.clone(),
                cookie: cookie(taken, name)?,
                file: resolved.held.path(&place.file),
                site: site.clone(),
                work: work(probe.op, marks),
                keeps: marks,
            });
            taken += 1;
        }
    }
    Ok(units.into_iter().map(|(_, planned)| planned).collect())
}

/// Cookie of the site with this index.
pub(super) fn cookie(index: usize, name: &str) -> Result<u16> {
    u16::try_from(index + 1)
        .ok()
        .filter(|cookie| u32::from(*cookie) < MAX_SITES)
        .with_context(|| {
            format!(
                "cannot attach probe `{name}`: the preset has more sites than the {MAX_SITES} of the kernel half"
            )
        })
}

fn bond(probe: &Probe, index: usize) -> Bond {
    let of = |bond: fn(ResourceId) -> Bond| probe.resource.map_or(Bond::Alone(index), bond);
    match probe.op {
        Op::RequestBegin | Op::RequestEnd => Bond::Requests,
        Op::WaitBegin | Op::WaitEnd | Op::Enqueue | Op::Dequeue => of(Bond::Waits),
        Op::Acquire | Op::Release | Op::ReleaseAll => of(Bond::Holds),
        Op::Use | Op::Evict | Op::FetchBegin | Op::FetchEnd => of(Bond::Units),
        Op::SessionEnd | Op::Killed | Op::Progress | Op::Work | Op::Label | Op::Exit | Op::Fork => {
            Bond::Alone(index)
        }
    }
}

/// A unit of one probe, without its sites.
fn alone(probe: &Probe, bond: Bond, marks: bool) -> PlannedUnit {
    let times_requests = matches!(probe.op, Op::RequestBegin | Op::RequestEnd);
    PlannedUnit {
        unit: Unit {
            probes: vec![probe.name.value.clone()],
            level: probe.level,
            resource: probe.resource,
            value: probe.priority,
            hot: probe.hot,
            sample: probe.sample,
            // What an application runs is known by its marks alone: a part of them would tell of tasks that have ended.
            divisible: !marks && (times_requests || probe.op == Op::Progress),
        },
        times_requests,
        sums_use: matches!(bond, Bond::Units(_)),
        keeps: match bond {
            _ if !marks => None,
            Bond::Waits(resource) => Some(Keeps {
                resource,
                holds: false,
            }),
            Bond::Holds(resource) => Some(Keeps {
                resource,
                holds: true,
            }),
            Bond::Requests | Bond::Units(_) | Bond::Alone(_) => None,
        },
        sites: Vec::new(),
    }
}

/// One more probe of the unit: it is worth what the best of them is, and as hot as the hottest.
fn join(unit: &mut Unit, probe: &Probe) {
    unit.probes.push(probe.name.value.clone());
    unit.value = unit.value.max(probe.priority);
    unit.hot |= probe.hot;
    unit.sample = unit.sample.or(probe.sample);
}

/// Requests, their work and what they use are summed in the kernel; everything else is rare and sent, but for the holds that an
/// application tells by marks, which are read out of the kernel's map.
fn work(op: Op, marks: bool) -> Work {
    match op {
        Op::Acquire | Op::Release if marks => Work::Counted,
        Op::RequestBegin
        | Op::RequestEnd
        | Op::Progress
        | Op::Work
        | Op::Use
        | Op::Evict
        | Op::FetchBegin
        | Op::FetchEnd => Work::Counted,
        _ => Work::Sent,
    }
}
