//! Who woke whom, kept for a while beside the reasons: a hint for a person where the holders of a resource are not seen.
//!
//! Nothing here reaches blame, gain or guard: a record with hints has the same orders as one without.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::explain;
use super::input::{Evidence, ResourceId, SessionKey, WakeUp, Woken};
use super::ledger::Ledger;
use super::record::{Effect, Hint, Hints};
use super::settings::Settings;

/// For how long a look is worth telling of. 5 s: as long as who is in the way now may have been in the way then.
const KEPT_NS: u64 = 5_000_000_000;

/// Most looks that are kept; the agent takes one a second.
const LOOKS: usize = 8;

/// Hints that are told of one resource: those who woke most often.
const TOLD: usize = 3;

/// Instances that one hint names.
const NAMED: usize = 3;

/// The looks of the last seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Wakers {
    looks: VecDeque<Look>,
    /// Resources of which something was told that is still kept.
    told: BTreeSet<ResourceId>,
}

#[derive(Clone, Debug)]
struct Look {
    at_ns: u64,
    /// Each with the name of what was waited for, which is forgotten elsewhere when nobody waits for it any more.
    wakes: Vec<(WakeUp, String)>,
}

/// One thread that woke waiters of one resource, over all looks.
#[derive(Default)]
struct Waker<'a> {
    name: &'a str,
    session: Option<SessionKey>,
    waiters: BTreeSet<SessionKey>,
    instances: BTreeSet<&'a str>,
    count: u64,
}

impl Wakers {
    /// Takes a look in.
    pub(super) fn look(&mut self, woken: &Woken, ledger: &Ledger) {
        let known = woken
            .wakes
            .iter()
            .filter(|wake| ledger.knows(wake.resource));
        let named = |wake: &WakeUp| (wake.clone(), ledger.name(wake.resource, wake.instance));
        self.looks.push_back(Look {
            at_ns: ledger.now_ns,
            wakes: known.take(Woken::MOST).map(named).collect(),
        });
        while self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        self.forget(ledger.now_ns);
    }

    /// Forgets what is too old.
    pub(super) fn forget(&mut self, now_ns: u64) {
        self.looks
            .retain(|look| now_ns.saturating_sub(look.at_ns) < KEPT_NS);
        let wakes = || self.looks.iter().flat_map(|look| &look.wakes);
        self.told
            .retain(|resource| wakes().any(|(wake, _)| wake.resource == *resource));
    }

    /// Wake-ups that are remembered.
    pub(super) fn count(&self) -> usize {
        self.looks.iter().map(|look| look.wakes.len()).sum()
    }

    /// What was seen in the last seconds: of each resource those who woke its waiters most often.
    pub(super) fn hints(&mut self, settings: &Settings, ledger: &Ledger) -> Vec<Hint> {
        self.forget(ledger.now_ns);
        let mut wakers: BTreeMap<(ResourceId, u32), Waker<'_>> = BTreeMap::new();
        for (wake, instance) in self.looks.iter().flat_map(|look| &look.wakes) {
            let waker = wakers.entry((wake.resource, wake.thread)).or_default();
            waker.name = &wake.name;
            waker.session = wake.waker;
            waker.waiters.insert(wake.waiter);
            waker.instances.insert(instance);
            waker.count = waker.count.saturating_add(wake.count);
        }
        let mut hints: Vec<Hint> = wakers
            .iter()
            .map(|((resource, thread), waker)| waker.hint(*resource, *thread, settings, ledger))
            .collect();
        hints.sort_by_key(|hint| (hint.resource, Reverse(hint.wake_count), hint.thread));
        let mut told: BTreeMap<ResourceId, usize> = BTreeMap::new();
        hints.retain(|hint| {
            let before = told.entry(hint.resource).or_default();
            *before += 1;
            *before <= TOLD
        });
        hints
    }

    /// Says of each resource who wakes its waiters: once, until nobody has been seen to for a while.
    pub(super) fn tell(&mut self, settings: &Settings, ledger: &Ledger, out: &mut Vec<Effect>) {
        let mut hints = self.hints(settings, ledger);
        hints.retain(|hint| !self.told.contains(&hint.resource));
        if hints.is_empty() {
            return;
        }
        self.told.extend(hints.iter().map(|hint| hint.resource));
        let at_ns = ledger.now_ns;
        out.push(Effect::Hints(Hints { at_ns, hints }));
    }
}

impl Waker<'_> {
    fn hint(
        &self,
        resource: ResourceId,
        thread: u32,
        settings: &Settings,
        ledger: &Ledger,
    ) -> Hint {
        let named = self.instances.iter().take(NAMED);
        let task = self
            .session
            .map(|session| explain::task(settings, ledger, session));
        let mut hint = Hint {
            resource,
            instances: named.map(|name| (*name).to_owned()).collect(),
            waiter_count: self.waiters.len() as u64,
            wake_count: self.count,
            thread,
            task,
            evidence: Evidence::Inference,
            says: String::new(),
        };
        hint.says = explain::hint(&hint, self.name);
        hint
    }
}

#[cfg(test)]
#[path = "hints_tests.rs"]
mod tests;
