//! What sessions used of resources with limited room since the look before, out of the running sums of the kernel half. Pure.
//!
//! The numbers begin with the first look after all probes of the resource were there. Whoever has only brought units in and
//! never driven out those of another has taken nothing from anybody: its use counts as none.

use std::collections::BTreeMap;

use atropos_common::record::{UsageKey, UsageValue};

use super::kept::Uses;
use crate::engine::input::{Evidence, ResourceId, SessionKey, SessionUsage, Usage};

/// Who took something is of interest for so long: two windows of the engine.
const RECENT_NS: u64 = 1_000_000_000;

/// The sums at the look before.
#[derive(Debug, Default)]
pub struct Sums {
    before: BTreeMap<ResourceId, Before>,
    /// When each session last took something, as the probes tell it.
    took_ns: BTreeMap<u64, u64>,
}

/// ... of one resource.
#[derive(Debug)]
struct Before {
    /// Since when its probes have been there.
    since_ns: u64,
    at_ns: u64,
    sums: BTreeMap<UsageKey, UsageValue>,
}

impl Sums {
    /// What was used since the look before: a report for each resource of which something was. `whole` says that nothing was
    /// lost meanwhile, without which nobody's share of the whole can be told.
    pub fn since_before(&mut self, uses: &Uses, whole: bool) -> Vec<Usage> {
        self.before
            .retain(|resource, _| uses.since.iter().any(|(one, _)| one == resource));
        let since = uses.since.iter();
        let usages: Vec<Usage> = since
            .filter_map(|(resource, since_ns)| self.of(*resource, *since_ns, uses, whole))
            .collect();
        let sessions = usages.iter().flat_map(|usage| &usage.sessions);
        let took = sessions.filter(|one| one.used > 0);
        self.took_ns
            .extend(took.map(|one| (one.session.0, uses.at_ns)));
        self.took_ns
            .retain(|_, took_ns| took_ns.saturating_add(RECENT_NS) > uses.at_ns);
        usages
    }

    /// Sessions that took something lately, as the probes tell them.
    pub fn takers(&self) -> impl Iterator<Item = u64> {
        self.took_ns.keys().copied()
    }

    fn of(
        &mut self,
        resource: ResourceId,
        since_ns: u64,
        uses: &Uses,
        whole: bool,
    ) -> Option<Usage> {
        let sums: BTreeMap<UsageKey, UsageValue> = uses
            .sums
            .iter()
            .filter(|(key, _)| key.resource == resource.0)
            .copied()
            .collect();
        let now = Before {
            since_ns,
            at_ns: uses.at_ns,
            sums,
        };
        let before = self
            .before
            .get(&resource)
            .filter(|before| before.since_ns == since_ns);
        let usage = before.and_then(|before| now.usage(before, resource, whole));
        self.before.insert(resource, now);
        usage
    }
}

impl Before {
    fn usage(&self, before: &Self, resource: ResourceId, whole: bool) -> Option<Usage> {
        let nothing = UsageValue::default();
        let sessions: Vec<SessionUsage> = self
            .sums
            .iter()
            .map(|(key, value)| used(key, value, before.sums.get(key).unwrap_or(&nothing)))
            .filter(|one| (one.used, one.lost_ns) != (0, 0))
            .collect();
        (!sessions.is_empty()).then(|| Usage {
            at_ns: self.at_ns,
            resource,
            covered_ns: self.at_ns.saturating_sub(before.at_ns),
            evidence: Evidence::Event,
            complete: whole,
            sessions,
        })
    }
}

fn used(key: &UsageKey, value: &UsageValue, before: &UsageValue) -> SessionUsage {
    let used = value.used.saturating_sub(before.used);
    SessionUsage {
        session: SessionKey(key.session),
        used: if value.evicted > 0 { used } else { 0 },
        lost_ns: value.lost_ns.saturating_sub(before.lost_ns),
        held: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: ResourceId = ResourceId(1);

    fn sum(session: u64, used: u64, evicted: u64, lost_ns: u64) -> (UsageKey, UsageValue) {
        let key = UsageKey {
            session,
            pid: 7,
            resource: CACHE.0,
            reserved: 0,
        };
        let value = UsageValue {
            used,
            evicted,
            lost_ns,
            ..UsageValue::default()
        };
        (key, value)
    }

    fn uses(at_ns: u64, since_ns: u64, sums: &[(UsageKey, UsageValue)]) -> Uses {
        Uses {
            at_ns,
            sums: sums.to_vec(),
            since: vec![(CACHE, since_ns)],
        }
    }

    /// Session, used, lost.
    fn told(usage: &Usage) -> Vec<(u64, u64, u64)> {
        let told = |one: &SessionUsage| (one.session.0, one.used, one.lost_ns);
        usage.sessions.iter().map(told).collect()
    }

    #[test]
    fn the_first_look_tells_nothing_and_the_next_what_came_to_it() {
        let mut sums = Sums::default();
        let first = uses(100, 90, &[sum(1, 500, 9, 5), sum(2, 7, 1, 0)]);
        assert!(sums.since_before(&first, true).is_empty());
        assert_eq!(sums.takers().count(), 0);
        let second = uses(
            150,
            90,
            &[sum(1, 540, 9, 5), sum(2, 7, 1, 0), sum(3, 2, 1, 30)],
        );
        let usages = sums.since_before(&second, true);
        assert_eq!(told(&usages[0]), [(1, 40, 0), (3, 2, 30)]);
        assert_eq!(
            (usages[0].at_ns, usages[0].covered_ns, usages[0].resource),
            (150, 50, CACHE)
        );
        assert!(usages[0].complete);
        assert_eq!(sums.takers().collect::<Vec<_>>(), [1, 3]);
        assert!(
            sums.since_before(&uses(200, 90, &second.sums), true)
                .is_empty(),
            "nobody used anything"
        );
        assert_eq!(sums.takers().count(), 2, "it was not long ago");
        sums.since_before(&uses(200 + RECENT_NS, 90, &second.sums), true);
        assert_eq!(sums.takers().count(), 0);
    }

    #[test]
    fn probes_that_were_away_begin_afresh() {
        let mut sums = Sums::default();
        sums.since_before(&uses(100, 90, &[sum(1, 5, 1, 0)]), true);
        let again = uses(150, 140, &[sum(1, 900, 1, 0)]);
        assert!(sums.since_before(&again, true).is_empty(), "attached again");
        let away = Uses::default();
        assert!(sums.since_before(&away, true).is_empty());
        let back = uses(250, 140, &[sum(1, 990, 1, 0)]);
        assert!(
            sums.since_before(&back, true).is_empty(),
            "not seen between"
        );
    }

    #[test]
    fn who_drove_nobody_out_took_nothing_from_anybody() {
        let mut sums = Sums::default();
        sums.since_before(&uses(100, 90, &[]), true);
        let filling = uses(150, 90, &[sum(1, 5_000, 0, 0), sum(2, 3, 0, 8)]);
        assert_eq!(
            told(&sums.since_before(&filling, true)[0]),
            [(2, 0, 8)],
            "a store that is being filled"
        );
    }

    #[test]
    fn after_a_loss_the_whole_is_not_known() {
        let mut sums = Sums::default();
        sums.since_before(&uses(100, 90, &[]), true);
        let usages = sums.since_before(&uses(150, 90, &[sum(1, 5, 1, 0)]), false);
        assert!(!usages[0].complete);
    }
}
