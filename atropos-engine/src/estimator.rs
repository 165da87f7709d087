//! How much each resource costs its users: the share of execution time lost to it, and how much of the latency above the
//! objective the resources explain together. Without a contended resource the overload is a regular one.

use super::detector::{Detector, Flight};
use super::graph::Graph;
use super::guard::id_of;
use super::input::{BlockKind, InstanceKey, ResourceId};
use super::ledger::Ledger;
use super::record::{Assessment, MostUsed};
use super::settings::{Kind, Settings};
use super::window::{seconds, within_ns};

/// The resources at a tick.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    pub(super) resources: Vec<Assessment>,
    /// Share of the latency above the limit that waits explain, 0 to 1.
    pub(super) explained: f64,
}

impl Estimate {
    /// Contention levels by resource, for the policy: a resource below the floor is no bottleneck and counts for nothing.
    pub(super) fn levels(&self, floor: f64) -> Vec<f64> {
        let contended = |level: f64| if level >= floor { level } else { 0.0 };
        self.resources
            .iter()
            .map(|resource| contended(resource.level))
            .collect()
    }

    /// A contended resource explains the overload.
    pub(super) fn is_resource_overload(&self, settings: &Settings) -> bool {
        let tuning = &settings.tuning;
        self.explained >= tuning.explained_floor
            && self
                .resources
                .iter()
                .any(|resource| resource.level >= tuning.contention_floor)
    }
}

/// Assesses every resource over the window.
pub(super) fn estimate(
    settings: &Settings,
    ledger: &Ledger,
    graph: &Graph,
    detector: &Detector,
    flights: &[Flight],
) -> Estimate {
    let busy_s = busy_s(ledger, detector);
    let resources = settings
        .resources
        .iter()
        .enumerate()
        .map(|(r, resource)| {
            let id = ResourceId(r as u16);
            let lost_s = seconds(ledger.lost_ns(id));
            let account = ledger.accounts.get(r);
            let doubt = account.and_then(|account| account.doubt(ledger.now_ns));
            let unseen = ledger.blind.get(r).cloned().flatten();
            let blind = unseen.or_else(|| doubt.map(str::to_owned));
            // What cannot be seen is never a reason to cancel.
            let level = if blind.is_some() {
                0.0
            } else {
                ratio(lost_s, busy_s).min(1.0)
            };
            let raw = match resource.kind {
                Kind::Lock => ratio(lost_s, used_s(ledger, graph, id)),
                _ => ratio(lost_s, (busy_s - lost_s).max(0.0)),
            };
            Assessment {
                resource: id,
                name: resource.name.clone(),
                kind: resource.kind,
                raw,
                level,
                lost_s,
                blind,
                most_used: account
                    .and_then(|account| account.most_used(ledger.now_ns))
                    .map(|(session, share)| MostUsed {
                        id: id_of(ledger, session),
                        share,
                    }),
            }
        })
        .collect();
    Estimate {
        resources,
        explained: explained(ledger, detector, flights),
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Request time within the window, seconds.
fn busy_s(ledger: &Ledger, detector: &Detector) -> f64 {
    let in_flight_ns: u64 = ledger
        .sessions
        .briefs()
        .filter_map(|(key, brief)| match brief.listed {
            Some(_) => brief.busy_since_ns(),
            // A session that no tick has listed yet runs a request if it waits.
            None if brief.waits => ledger.waits.get(key).map(|wait| wait.since_ns),
            None => None,
        })
        .map(|since_ns| within_ns(since_ns, ledger.now_ns, ledger.window_ns))
        .fold(0, u64::saturating_add);
    seconds(in_flight_ns) + detector.completed_s()
}

/// Time within the window in which contended instances were held, seconds.
fn used_s(ledger: &Ledger, graph: &Graph, resource: ResourceId) -> f64 {
    let ways = graph.nodes.iter().flat_map(|node| &node.in_way);
    let held = ways.filter(|way| way.resource == resource && way.kind == BlockKind::Granted);
    let mut held: Vec<(InstanceKey, u64)> = held.map(|way| (way.instance, way.since_ns)).collect();
    // The first holder of each instance comes first, and stays.
    held.sort_unstable();
    held.dedup_by_key(|(instance, _)| *instance);
    held.iter()
        .map(|(_, since_ns)| seconds(within_ns(*since_ns, ledger.now_ns, ledger.window_ns)))
        .sum()
}

/// Waiting time over latency above the limit, for requests in flight and those that completed in the window.
fn explained(ledger: &Ledger, detector: &Detector, flights: &[Flight]) -> f64 {
    let (now_ns, window_ns, limit_ns) = (ledger.now_ns, ledger.window_ns, detector.limit_ns());
    let (mut waited_ns, mut excess_ns) = (0, 0);
    for flight in flights {
        let age_ns = now_ns.saturating_sub(flight.since_ns);
        let above_ns = age_ns.saturating_sub(limit_ns).min(window_ns);
        waited_ns += flight.waited_ns.min(above_ns);
        excess_ns += above_ns;
    }
    let past_ns: u64 = ledger
        .past
        .iter()
        .zip(&ledger.blind)
        .filter(|(_, blind)| blind.is_none())
        .map(|(past, _)| past.sum_ns(now_ns))
        .fold(0, u64::saturating_add);
    let used_ns: u64 = ledger
        .accounts
        .iter()
        .zip(&ledger.blind)
        .filter(|(account, blind)| account.trusted && blind.is_none())
        .map(|(account, _)| account.past_lost_ns(now_ns))
        .fold(past_ns, u64::saturating_add);
    let completed_s = detector.completed_excess_s();
    ratio(
        seconds(waited_ns) + seconds(used_ns).min(completed_s),
        seconds(excess_ns) + completed_s,
    )
    .min(1.0)
}

#[cfg(test)]
#[path = "estimator_tests.rs"]
mod tests;
