//! What is known of the target at this moment: sessions, who waits, who holds.
//!
//! In: events, ticks and snapshots, in whatever order they arrive. Out: open waits with who is in their way, and the
//! time lost in the window. It refuses to guess: a wait without known blockers has none.
//!
//! What always holds:
//! 1. Time never goes backwards: `now_ns` is the latest time that any input named, and no interval is negative.
//! 2. A session waits for at most one instance of one resource at a time.
//! 3. Size follows the sessions that a tick lists, the open waits and the holds; whatever ends is forgotten.
//! 4. A wait is charged only for time in which it was seen: one that vanishes between two snapshots ends at the first.
//! 5. What events told before a loss is no evidence until a snapshot confirms it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use super::brief::Brief;
use super::familiar::Familiar;
use super::holds::{Holders, Holds};
use super::input::{
    Blocker, Event, EventKind, Evidence, InstanceKey, ResourceId, SessionKey, SessionState,
};
use super::progress::Pace;
use super::settings::{Kind, Resource};
use super::stillness::Stillness;
use super::table::Table;
use super::tenure::Tenures;
use super::usage::Account;
use super::waited::Waited;
use super::window::SlidingSum;

/// One session.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    /// As the latest tick listed it; `None` if it is plainly idle or was never listed.
    pub(super) state: Option<SessionState>,
    /// How the current request gets on.
    pub(super) progress: Pace,
    /// The end of its latest wait.
    pub(super) last_wait: Option<PastWait>,
    /// What it lost to others.
    pub(super) waited: Waited,
    /// What it holds, as far as events told.
    pub(super) holds: Holds,
    /// A release whose acquisition has not come yet.
    pub(super) orphan_release: Option<(ResourceId, InstanceKey, u64)>,
}

impl Session {
    /// When its latest wait ended, 0 if it never waited.
    pub(super) fn last_wait_end_ns(&self) -> u64 {
        self.last_wait.map_or(0, |last| last.end_ns)
    }
}

/// A wait that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct PastWait {
    resource: ResourceId,
    instance: Option<InstanceKey>,
    begin_ns: u64,
    end_ns: u64,
    /// The end came before its begin.
    orphan: bool,
}

impl PastWait {
    /// It was a wait for this resource.
    pub(super) fn is_for(&self, resource: ResourceId) -> bool {
        self.resource == resource
    }

    /// When it began.
    pub(super) fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// When it ended.
    pub(super) fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

/// Who is in the way of a wait; shared by those of whom it was told alike.
pub(super) type List = Arc<Vec<Blocker>>;

/// A wait in progress.
#[derive(Clone, Debug)]
pub(super) struct OpenWait {
    /// Number of the wait, so that a session's next wait is not taken for this one.
    pub(super) number: u64,
    /// Who waits.
    pub(super) waiter: SessionKey,
    /// For what.
    pub(super) resource: ResourceId,
    /// For which one. Certain once a snapshot named it.
    pub(super) instance: InstanceKey,
    /// Since when.
    pub(super) since_ns: u64,
    /// When it was last seen in progress.
    pub(super) seen_ns: u64,
    /// The latest begin that an event told; events repeat for a wait that goes on.
    pub(super) last_begin_ns: u64,
    /// How it is known.
    pub(super) evidence: Evidence,
    /// Who is in its way, as the latest snapshot told; `None` if no snapshot has shown the wait.
    pub(super) listed: Option<List>,
}

/// Everything known of the target.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    pub(super) now_ns: u64,
    pub(super) window_ns: u64,
    pub(super) sessions: Table<SessionKey, Session, Brief>,
    pub(super) waits: Table<SessionKey, OpenWait>,
    pub(super) holders: Holders,
    /// Waits that snapshots have listed, by instance, as of the latest snapshot.
    pub(super) listed: Vec<((ResourceId, InstanceKey), SessionKey)>,
    /// Whom they named as in their way.
    pub(super) blockers: HashSet<SessionKey, FxBuildHasher>,
    pub(super) names: BTreeMap<(ResourceId, InstanceKey), String>,
    /// By resource.
    pub(super) kinds: Vec<Kind>,
    /// What sessions used and lost, by resource.
    pub(super) accounts: Vec<Account>,
    pub(super) tenures: Tenures,
    pub(super) stillness: Stillness,
    pub(super) familiar: Familiar,
    /// Waits that have ended.
    pub(super) ended_waits: u64,
    /// Waits that are over, by resource.
    pub(super) past: Vec<SlidingSum>,
    /// Resources whose latest snapshot did not show every wait.
    pub(super) partial: Vec<bool>,
    /// Why a resource cannot be seen.
    pub(super) blind: Vec<Option<String>>,
    pub(super) next_number: u64,
    pub(super) tick_count: u64,
    /// Room for the sessions that a tick does not list.
    pub(super) unlisted: Vec<SessionKey>,
    /// Room for the states of sessions that the next tick lists anew: what the latest one let go.
    pub(super) spare: Vec<SessionState>,
}

impl Ledger {
    /// An empty ledger for these resources.
    pub(super) fn new(resources: &[Resource], window_ns: u64) -> Self {
        let resource_count = resources.len();
        Self {
            kinds: resources.iter().map(|resource| resource.kind).collect(),
            accounts: vec![Account::new(window_ns); resource_count],
            tenures: Tenures::default(),
            stillness: Stillness::default(),
            familiar: Familiar::default(),
            ended_waits: 0,
            now_ns: 0,
            window_ns,
            sessions: Table::default(),
            waits: Table::default(),
            holders: Holders::default(),
            listed: Vec::new(),
            blockers: HashSet::default(),
            unlisted: Vec::new(),
            spare: Vec::new(),
            names: BTreeMap::new(),
            past: vec![SlidingSum::new(window_ns); resource_count],
            partial: vec![false; resource_count],
            blind: vec![None; resource_count],
            next_number: 0,
            tick_count: 0,
        }
    }

    /// Moves time forward; never back.
    pub(super) fn advance(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// Takes one transition in.
    pub(super) fn event(&mut self, event: &Event) {
        self.advance(event.at_ns);
        let (at_ns, session) = (event.at_ns, event.session);
        match event.kind {
            EventKind::RequestBegin => {
                if let Some(brief) = self.sessions.brief_mut(&session) {
                    brief.waited_ns = 0;
                    brief.killed_ns = None;
                }
            }
            EventKind::RequestEnd => self.close_older_wait(session, at_ns),
            EventKind::SessionEnd => self.end_session(session, at_ns),
            EventKind::WaitBegin { resource, instance } => {
                self.wait_begin(session, resource, instance, at_ns);
            }
            EventKind::WaitEnd { resource, instance } => {
                self.wait_end(session, resource, instance, at_ns);
            }
            EventKind::Acquire {
                resource,
                instance,
                mode,
            } => self.acquire(session, resource, instance, mode, at_ns),
            EventKind::Release { resource, instance } => {
                self.release(session, resource, instance, at_ns);
            }
            EventKind::ReleaseAll { resource } => self.release_all(session, Some(resource)),
            EventKind::Killed => self.sessions.entry(session).brief().killed_ns = Some(at_ns),
        }
    }

    /// Events were lost: what they told so far may be over, so it is no evidence any more.
    pub(super) fn lose_trust(&mut self, at_ns: u64) {
        self.advance(at_ns);
        let sessions = self.sessions.values_mut();
        for hold in sessions.flat_map(|known| known.holds.iter_mut()) {
            hold.evidence = Evidence::Inference;
        }
        for wait in self.waits.values_mut().filter(|wait| wait.listed.is_none()) {
            wait.evidence = Evidence::Inference;
        }
    }

    /// Holds known from events.
    pub(super) fn hold_count(&self) -> usize {
        self.sessions.values().map(|known| known.holds.len()).sum()
    }

    pub(super) fn knows(&self, resource: ResourceId) -> bool {
        usize::from(resource.0) < self.past.len()
    }

    fn wait_begin(
        &mut self,
        session: SessionKey,
        resource: ResourceId,
        instance: InstanceKey,
        at_ns: u64,
    ) {
        if !self.knows(resource) {
            return;
        }
        match self.waits.get_mut(&session) {
            Some(wait) if wait.resource == resource => {
                wait.since_ns = wait.since_ns.min(at_ns);
                wait.last_begin_ns = wait.last_begin_ns.max(at_ns);
                wait.seen_ns = wait.seen_ns.max(at_ns);
                return;
            }
            Some(wait) if wait.since_ns > at_ns => return,
            Some(_) => self.close_wait(session, at_ns),
            None => {}
        }
        let last = self.sessions.entry(session).or_default().last_wait;
        if let Some(last) = last
            && last.resource == resource
            && at_ns <= last.end_ns
        {
            // Its end came first, or this repeats the begin of a wait that is over.
            if last.orphan {
                let begun = PastWait {
                    begin_ns: at_ns,
                    orphan: false,
                    ..last
                };
                self.book(session, begun);
            }
            return;
        }
        self.open_wait(OpenWait {
            number: 0,
            waiter: session,
            resource,
            instance,
            since_ns: at_ns,
            seen_ns: at_ns,
            last_begin_ns: at_ns,
            evidence: Evidence::Event,
            listed: None,
        });
    }

    pub(super) fn open_wait(&mut self, mut wait: OpenWait) {
        self.next_number += 1;
        wait.number = self.next_number;
        self.sessions.entry(wait.waiter).brief().waits = true;
        self.waits.insert(wait.waiter, wait);
    }

    fn wait_end(
        &mut self,
        session: SessionKey,
        resource: ResourceId,
        instance: InstanceKey,
        at_ns: u64,
    ) {
        if !self.knows(resource) {
            return;
        }
        match self.waits.get(&session) {
            Some(wait) if wait.resource == resource => {
                let next_begin_ns = wait.last_begin_ns;
                let instance = wait.instance;
                self.close_wait(session, at_ns);
                if at_ns < next_begin_ns {
                    // The begin of the next wait overtook this end.
                    self.wait_begin(session, resource, instance, next_begin_ns);
                }
            }
            _ => {
                let known = self.sessions.entry(session).or_default();
                if known.last_wait.is_none_or(|last| last.end_ns < at_ns) {
                    let instance = Some(instance);
                    known.last_wait = Some(PastWait {
                        resource,
                        instance,
                        begin_ns: at_ns,
                        end_ns: at_ns,
                        orphan: true,
                    });
                }
            }
        }
    }

    fn close_older_wait(&mut self, session: SessionKey, at_ns: u64) {
        if self
            .waits
            .get(&session)
            .is_some_and(|wait| wait.since_ns <= at_ns)
        {
            self.close_wait(session, at_ns);
        }
    }

    /// Ends a session's wait and books the time.
    pub(super) fn close_wait(&mut self, session: SessionKey, end_ns: u64) {
        let Some(wait) = self.waits.remove(&session) else {
            return;
        };
        self.ended_waits += 1;
        let end_ns = end_ns.min(self.now_ns).max(wait.since_ns);
        self.sessions.entry(session).brief().waits = false;
        let past = PastWait {
            resource: wait.resource,
            instance: wait.listed.is_some().then_some(wait.instance),
            begin_ns: wait.since_ns,
            end_ns,
            orphan: false,
        };
        self.book(session, past);
    }

    /// Books a wait that is over.
    fn book(&mut self, session: SessionKey, past: PastWait) {
        let PastWait {
            resource,
            begin_ns,
            end_ns,
            ..
        } = past;
        let waited_ns = end_ns.saturating_sub(begin_ns);
        let counts = !self.is_blind(resource);
        let is_for_others = self.keeps_waiting(resource);
        let (known, brief) = self.sessions.entry(session).both();
        known.last_wait = Some(past);
        // What cannot be seen whole must not explain why a request is slow.
        if counts {
            brief.waited_ns = brief.waited_ns.saturating_add(waited_ns);
        }
        if is_for_others {
            known.waited.add(begin_ns, end_ns, waited_ns);
        }
        if !brief.is_own() {
            self.past[usize::from(resource.0)].add(begin_ns, end_ns);
        }
    }

    /// Until when the session waited for this instance, or may have.
    pub(super) fn waited_until_ns(
        &self,
        session: SessionKey,
        resource: ResourceId,
        instance: InstanceKey,
    ) -> u64 {
        self.sessions
            .get(&session)
            .and_then(|known| known.last_wait)
            .filter(|last| {
                last.resource == resource && last.instance.is_none_or(|known| known == instance)
            })
            .map_or(0, |last| last.end_ns)
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
