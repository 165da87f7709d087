//! Ticks into the ledger: which sessions live, which requests run, and what is over and forgotten.

use std::collections::BTreeSet;
use std::hint::black_box;

use super::brief::Listed;
use super::input::{Activity, InstanceKey, ResourceId, SessionKey, SessionState, Tick};
use super::ledger::Ledger;

/// Sessions that are fetched from memory together.
const BLOCK: usize = 32;

impl Ledger {
    /// Takes the tick's view of the sessions in and forgets what is over.
    pub(super) fn tick(&mut self, tick: &Tick) {
        self.advance(tick.at_ns);
        for reason in &mut self.blind {
            *reason = None;
        }
        for blind in &tick.blind {
            if let Some(reason) = self.blind.get_mut(usize::from(blind.resource.0)) {
                *reason = Some(blind.reason.clone());
            }
        }
        self.tick_count += 1;
        for block in tick.sessions.chunks(BLOCK) {
            let places = self.places(block);
            for (state, place) in block.iter().zip(places) {
                self.session_seen(state, place, tick.at_ns);
            }
        }
        self.sessions_gone_idle(tick.at_ns);
        self.forget();
        self.forget_usage();
        self.familiar.forget(self.now_ns);
        self.note_stillness(tick);
        self.note_tenures();
    }

    /// Where sessions are kept, if they are known. All of a block are looked at before anything is done with the first, so that
    /// the memory fetches them together: one after the other is most of what a tick with thousands costs.
    fn places(&self, block: &[SessionState]) -> [Option<usize>; BLOCK] {
        let mut places = [None; BLOCK];
        for (place, state) in places.iter_mut().zip(block) {
            *place = self.sessions.place_of(&state.session);
        }
        let fetched = places.iter().flatten().filter_map(|place| {
            let brief = self.sessions.brief_at(*place)?;
            let state = self.sessions.at(*place)?.state.as_ref()?;
            Some(state.id ^ state.fingerprint ^ brief.listed_in)
        });
        black_box(fetched.fold(0, |sum, one| sum ^ one));
        places
    }

    /// `place` is where the session was kept a moment ago.
    fn session_seen(&mut self, state: &SessionState, place: Option<usize>, at_ns: u64) {
        let key = state.session;
        let (mut was_listed, mut same) = (false, false);
        let mut place = place
            .filter(|place| self.sessions.is_at(*place, &key))
            .or_else(|| self.sessions.place_of(&key));
        let known = place.and_then(|place| self.sessions.at(place));
        match known.and_then(|known| known.state.as_ref()) {
            Some(before) if before.id != state.id => {
                // The key was given to another session: whatever the former one did is over.
                self.end_session(key, at_ns);
                place = None;
            }
            Some(before) => {
                was_listed = true;
                same = is_same_request(before, state);
            }
            None => {}
        }
        let brief = place.and_then(|place| self.sessions.brief_at(place));
        if brief.is_some_and(|brief| brief.waits) {
            self.wait_goes_on(state, at_ns);
        }
        if !same {
            // What a session used before it was listed for the first time is already this request's.
            if was_listed {
                self.close_usage(key);
            }
            self.familiar.begun(state, at_ns);
        }
        let place = place.unwrap_or_else(|| self.sessions.entry(key).place());
        if let Some(brief) = self.sessions.brief_at_mut(place) {
            brief.listed_in = self.tick_count;
            brief.listed = Some(Listed::of(state));
            if !same {
                brief.waited_ns = 0;
                let killed_ns = brief.killed_ns;
                brief.killed_ns = killed_ns.filter(|killed_ns| *killed_ns >= state.since_ns);
            }
        }
        if let Some(known) = self.sessions.at_mut(place) {
            known.progress.look(state, same, at_ns);
            if known.state.is_none() {
                known.state = self.spare.pop();
            }
            match &mut known.state {
                Some(former) => renew(former, state),
                None => known.state = Some(state.clone()),
            }
        }
    }

    /// A session is listed, and waits as far as is known.
    fn wait_goes_on(&mut self, state: &SessionState, at_ns: u64) {
        let key = state.session;
        if state.activity == Activity::Busy {
            self.clip_wait_to_request(key, state.since_ns.min(self.now_ns));
        } else if self
            .waits
            .get(&key)
            .is_some_and(|wait| wait.listed.is_none() && wait.since_ns <= at_ns)
        {
            self.close_wait(key, at_ns);
        }
    }

    /// A wait belongs to the request that runs: an older one is over, and a listed one cannot be older than the request.
    fn clip_wait_to_request(&mut self, key: SessionKey, request_since_ns: u64) {
        let Some(wait) = self.waits.get_mut(&key) else {
            return;
        };
        if wait.since_ns >= request_since_ns {
            return;
        }
        if wait.seen_ns < request_since_ns {
            let seen_ns = wait.seen_ns;
            self.close_wait(key, seen_ns);
        } else {
            wait.since_ns = request_since_ns;
        }
    }

    fn sessions_gone_idle(&mut self, at_ns: u64) {
        let mut unlisted = std::mem::take(&mut self.unlisted);
        unlisted.clear();
        self.spare.clear();
        self.spare.shrink_to(2 * self.sessions.len());
        let all = self.sessions.briefs();
        let missing = all.filter(|(_, brief)| brief.listed_in != self.tick_count);
        unlisted.extend(missing.map(|(key, _)| *key));
        for key in &unlisted {
            let brief = self.sessions.brief(key);
            if brief.is_none_or(|brief| brief.listed.is_none()) {
                continue;
            }
            if self
                .waits
                .get(key)
                .is_some_and(|wait| wait.since_ns <= at_ns)
            {
                self.close_wait(*key, at_ns);
            }
            let (known, brief) = self.sessions.entry(*key).both();
            self.spare.extend(known.state.take());
            brief.listed = None;
            brief.waited_ns = 0;
        }
        self.unlisted = unlisted;
    }

    /// Forgets what is over; to be called after those that the tick does not list have gone idle.
    fn forget(&mut self) {
        let (now_ns, window_ns) = (self.now_ns, self.window_ns);
        let stale: Vec<(SessionKey, u64)> = self
            .waits
            .iter_any()
            .filter(|(_, wait)| {
                wait.listed.is_some() && wait.seen_ns.saturating_add(window_ns) < now_ns
            })
            .map(|(_, wait)| (wait.waiter, wait.seen_ns))
            .collect();
        for (key, seen_ns) in stale {
            self.close_wait(key, seen_ns);
        }
        for key in &self.unlisted {
            let known = self.sessions.get(key);
            let holds = known.is_some_and(|known| !known.holds.is_empty());
            if !holds && !self.waits.contains_key(key) {
                self.sessions.discard(key);
            }
        }
        self.sessions.give_back();
        self.holders.retain(|_, sessions| !sessions.is_empty());
        self.forget_names();
    }

    fn forget_names(&mut self) {
        if self.names.is_empty() {
            return;
        }
        let wanted: BTreeSet<(ResourceId, InstanceKey)> = self
            .waits
            .values()
            .map(|wait| (wait.resource, wait.instance))
            .collect();
        let holders = &self.holders;
        self.names
            .retain(|key, _| wanted.contains(key) || holders.contains_key(key));
    }
}

/// The session still does what it did, as far as the target tells.
fn is_same_request(before: &SessionState, state: &SessionState) -> bool {
    before.activity == state.activity
        && if state.request == 0 {
            before.since_ns == state.since_ns
        } else {
            before.request == state.request
        }
}

/// As a clone, in the room that the former's texts have. Never compared with it first: what is read of thousands must come from
/// memory before anything goes on, and what is written need not.
fn renew(former: &mut SessionState, state: &SessionState) {
    let (mut principal, mut digest) = (
        std::mem::take(&mut former.principal),
        std::mem::take(&mut former.digest),
    );
    for (text, told) in [
        (&mut principal, &state.principal),
        (&mut digest, &state.digest),
    ] {
        if !text.is_empty() || !told.is_empty() {
            text.clear();
            text.push_str(told);
        }
    }
    *former = SessionState {
        principal,
        digest,
        ..*state
    };
}
