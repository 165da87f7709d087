//! Work that was ended: when it can be run again, and when that would be too late.
//!
//! The paper runs cancelled work again once resources have stayed available, does not cancel it a second time, drops a
//! request whose time has passed meanwhile, and lets background work wait for no longer than a limit. Running it is the business of its client, or of what
//! stands in front of the server; the engine says when.

use super::Engine;
use super::estimator::Estimate;
use super::input::{Activity, ResourceId, SessionKey, SessionState};
use super::ledger::Ledger;
use super::pacing::Flying;
use super::record::{Advice, AdviceKind, Effect, Task};
use super::settings::{Rerun, Settings};
use super::window::seconds;

/// A task that was ended and has not been advised on.
#[derive(Clone, Debug)]
struct Held {
    order: u64,
    task: Task,
    ended_ns: u64,
    /// Those that it kept from others.
    resources: Vec<ResourceId>,
    /// How long it may wait.
    wait_ns: u64,
    background: bool,
}

/// The right of one piece of work to run to its end.
#[derive(Clone, Debug)]
struct Pass {
    given_ns: u64,
    principal: String,
    fingerprint: u64,
    /// Who took it.
    taken: Option<(SessionKey, u64)>,
}

/// Tasks that were ended, and those that run again.
#[derive(Clone, Debug, Default)]
pub(super) struct Requeue {
    held: Vec<Held>,
    passes: Vec<Pass>,
    /// Since when each resource has been available.
    free_since_ns: Vec<Option<u64>>,
}

impl Requeue {
    /// A task has let go. Only a request can be run again: of an idle session's transaction nobody knows the statements.
    pub(super) fn ended(&mut self, settings: &Settings, flying: &Flying, now_ns: u64) {
        let task = &flying.order.task;
        if task.activity != Activity::Busy {
            return;
        }
        let rerun = &settings.rerun;
        let background = rerun.of_class(flying.class);
        self.held.push(Held {
            order: flying.order.order,
            task: task.clone(),
            ended_ns: now_ns,
            resources: flying.resources.clone(),
            wait_ns: background.unwrap_or(rerun.wait_ns),
            background: background.is_some(),
        });
    }

    /// Notes at a tick which resources are available.
    fn look(&mut self, settings: &Settings, estimate: &Estimate, overloaded: bool, now_ns: u64) {
        self.free_since_ns.resize(estimate.resources.len(), None);
        let floor = settings.tuning.contention_floor;
        for (since_ns, resource) in self.free_since_ns.iter_mut().zip(&estimate.resources) {
            let free = !overloaded && resource.blind.is_none() && resource.level < floor;
            *since_ns = free.then(|| since_ns.unwrap_or(now_ns));
        }
    }

    /// What there is to advise at a tick: the oldest whose resources have stayed available, and all that have waited for
    /// as long as they may.
    fn due(&mut self, quiet_ns: u64, now_ns: u64) -> Vec<(Held, AdviceKind)> {
        let mut due = Vec::new();
        let free = |held: &Held| {
            held.resources.iter().all(|resource| {
                let since_ns = self.free_since_ns.get(usize::from(resource.0));
                since_ns
                    .and_then(|since_ns| *since_ns)
                    .is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= quiet_ns)
            })
        };
        if let Some(at) = self.held.iter().position(free) {
            let held = self.held.remove(at);
            // The next one waits until this one has shown what it does.
            for resource in &held.resources {
                self.free_since_ns[usize::from(resource.0)] = None;
            }
            due.push((held, AdviceKind::Retry));
        }
        let late = |held: &mut Held| now_ns.saturating_sub(held.ended_ns) >= held.wait_ns;
        due.extend(self.held.extract_if(.., late).map(|held| {
            let kind = if held.background {
                AdviceKind::Retry
            } else {
                AdviceKind::Drop
            };
            (held, kind)
        }));
        due
    }

    /// Whether a request is one that was ended before and runs again on advice.
    pub(super) fn runs_again(&self, state: &SessionState) -> bool {
        let taken = Some((state.session, state.request));
        self.passes.iter().any(|pass| pass.taken == taken)
    }

    /// Finds out which requests are those that were to be run again, and forgets those that are over.
    fn follow(&mut self, settings: &Settings, ledger: &Ledger) {
        let now_ns = ledger.now_ns;
        let valid_ns = settings.tuning.repeat_after_ns;
        self.passes.retain(|pass| match pass.taken {
            Some((session, request)) => {
                let state = ledger.state(session);
                state.is_some_and(|state| state.request == request)
            }
            None => now_ns.saturating_sub(pass.given_ns) < valid_ns,
        });
        for at in 0..self.passes.len() {
            let pass = &self.passes[at];
            if pass.taken.is_some() {
                continue;
            }
            let is_it = |state: &&SessionState| {
                state.activity == Activity::Busy
                    && state.since_ns >= pass.given_ns
                    && (state.fingerprint, &state.principal) == (pass.fingerprint, &pass.principal)
                    && !self.runs_again(state)
            };
            let states = ledger.sessions.iter_any();
            let first = states
                .filter_map(|(_, known)| known.state.as_ref())
                .filter(is_it)
                .min_by_key(|state| (state.since_ns, state.session));
            let taken = first.map(|state| (state.session, state.request));
            self.passes[at].taken = taken;
        }
    }
}

impl Engine {
    /// Says of what was ended whether it can be run again.
    pub(super) fn advise(&mut self, estimate: &Estimate, out: &mut Vec<Effect>) {
        let now_ns = self.ledger.now_ns;
        let overloaded = self.overload.is_on();
        self.requeue
            .look(&self.settings, estimate, overloaded, now_ns);
        let Rerun { quiet_ns, once, .. } = self.settings.rerun;
        for (held, kind) in self.requeue.due(quiet_ns, now_ns) {
            if once && kind == AdviceKind::Retry && held.task.fingerprint != 0 {
                self.requeue.passes.push(Pass {
                    given_ns: now_ns,
                    principal: held.task.principal.clone(),
                    fingerprint: held.task.fingerprint,
                    taken: None,
                });
            }
            out.push(Effect::Advice(advice(held, kind, now_ns)));
        }
        self.requeue.follow(&self.settings, &self.ledger);
    }
}

fn advice(held: Held, kind: AdviceKind, now_ns: u64) -> Advice {
    let waited_ns = now_ns.saturating_sub(held.ended_ns);
    let waited_s = seconds(waited_ns);
    let (who, order) = (held.task.id, held.order);
    let summary = match kind {
        AdviceKind::Retry if held.background && waited_ns >= held.wait_ns => format!(
            "what session {who} did when order {order} ended it has waited {waited_s:.1} s, which is as long as it may: run it again"
        ),
        AdviceKind::Retry => format!(
            "what session {who} did when order {order} ended it can be run again: what it kept from others has been free for a while"
        ),
        AdviceKind::Drop => format!(
            "what session {who} did when order {order} ended it is too late by now: {waited_s:.1} s have passed and nothing became free"
        ),
    };
    Advice {
        order: held.order,
        at_ns: now_ns,
        kind,
        task: held.task,
        waited_ns,
        summary,
    }
}
