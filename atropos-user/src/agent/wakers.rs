//! Whose wake-ups are asked for, and what an answer means: sessions that wait for what nobody can be told to hold. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::probes::WakeLook;
use super::watch::View;
use crate::engine::input::{InstanceKey, ResourceId, SessionKey, WakeUp, Woken};

/// Most threads that are asked for at once.
const MOST_ASKED: usize = 4096;

/// Most threads of one look whose numbers are asked for: where the target counts its own, each is a file to read.
const MOST_NUMBERS: usize = 1024;

/// Threads whose sessions wait so, with what for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    threads: BTreeMap<u32, Waits>,
}

/// What one thread's session waits for, or waited for a moment ago.
#[derive(Clone, Copy, Debug)]
struct Waits {
    session: SessionKey,
    resource: ResourceId,
    instance: InstanceKey,
    /// Since when it has been seen to.
    since_ns: u64,
    seen_ns: u64,
}

impl Asked {
    /// Notes who waits in this view for what nobody can be told to hold; whether anybody does.
    pub(super) fn note(&mut self, view: &View, now_ns: u64) -> bool {
        let mut unowned = view.snapshots.iter().flat_map(|snapshot| {
            let waits = snapshot.waits.iter();
            waits
                .filter(|wait| wait.blockers.is_empty())
                .map(|wait| (snapshot.resource, wait))
        });
        let Some(first) = unowned.next() else {
            return false;
        };
        let threads: HashMap<SessionKey, u32> = view
            .sessions
            .iter()
            .filter(|state| state.thread != 0 && !state.own)
            .map(|state| (state.session, state.thread))
            .collect();
        let mut anybody = false;
        for (resource, wait) in std::iter::once(first).chain(unowned) {
            let Some(thread) = threads.get(&wait.waiter) else {
                continue;
            };
            anybody = true;
            if self.threads.len() >= MOST_ASKED && !self.threads.contains_key(thread) {
                continue;
            }
            let waits = Waits {
                session: wait.waiter,
                resource,
                instance: wait.instance,
                since_ns: now_ns,
                seen_ns: now_ns,
            };
            let known = self.threads.entry(*thread).or_insert(waits);
            let same = (known.session, known.resource, known.instance)
                == (wait.waiter, resource, wait.instance);
            *known = Waits {
                since_ns: if same { known.since_ns } else { now_ns },
                ..waits
            };
        }
        anybody
    }

    /// What a look saw of those that were asked for: who woke them after they had been seen to wait. `theirs` is the target's
    /// number of a thread that the kernel calls so, `name` what the system calls it. Nothing if nobody was woken.
    pub(super) fn answer(
        &mut self,
        look: &WakeLook,
        view: &View,
        theirs: impl Fn(u32) -> Option<u32>,
        name: impl Fn(u32) -> String,
    ) -> Option<Woken> {
        let threads = std::mem::take(&mut self.threads);
        let mut numbers: HashMap<u32, Option<u32>> = HashMap::new();
        let mut theirs = |thread: u32| -> Option<u32> {
            let room = numbers.len() < MOST_NUMBERS;
            match numbers.get(&thread) {
                Some(known) => *known,
                None => *numbers
                    .entry(thread)
                    .or_insert(room.then(|| theirs(thread)).flatten()),
            }
        };
        let mut seen: Vec<(&Waits, u32, u64)> = look
            .wakes
            .iter()
            .filter(|wake| wake.waker != wake.woken)
            .filter_map(|wake| {
                let waits = threads.get(&theirs(wake.woken)?)?;
                let in_time = waits.seen_ns >= look.since_ns && wake.last_ns >= waits.since_ns;
                in_time.then_some((waits, wake.waker, wake.count))
            })
            .collect();
        seen.sort_by_key(|(waits, waker, count)| (Reverse(*count), *waker, waits.session));
        seen.truncate(Woken::MOST);
        let sessions: HashMap<u32, SessionKey> = view
            .sessions
            .iter()
            .filter(|state| state.thread != 0)
            .map(|state| (state.thread, state.session))
            .collect();
        let wakes: Vec<WakeUp> = seen
            .into_iter()
            .filter_map(|(waits, waker, count)| {
                let thread = theirs(waker)?;
                Some(WakeUp {
                    resource: waits.resource,
                    instance: waits.instance,
                    waiter: waits.session,
                    thread,
                    name: name(waker),
                    waker: sessions.get(&thread).copied(),
                    count,
                })
            })
            .collect();
        (!wakes.is_empty()).then_some(Woken {
            at_ns: look.until_ns,
            covered_ns: look.until_ns.saturating_sub(look.since_ns),
            wakes,
        })
    }
}

#[cfg(test)]
#[path = "wakers_tests.rs"]
mod tests;
