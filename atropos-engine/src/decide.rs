//! The decision: candidates, verdicts, the choice, its record and its order.

use serde::Serialize;

use super::Engine;
use super::blame::{self, Graph};
use super::detector::Reading;
use super::estimator::{self, Estimate};
use super::explain;
use super::gain::{self, Role, Scored};
use super::guard::class_of;
use super::input::{Activity, SessionKey};
use super::pacing::Flying;
use super::policy::{self, MultiObjective, Policy};
use super::record::{Assessment, Candidate, Decision, Effect, Order, PassedOver, Trigger};

/// A task to blame for less than this share of what the main holder is to blame for is no cause worth a cancel: ending it
/// leaves the overload where it is, however long it has been there.
const MINOR_SHARE: f64 = 0.25;

/// Candidates that a record lists.
const LISTED: usize = 64;

/// What has been said in this overload, so that it is not said at every tick.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    last: Option<(SessionKey, PassedOver)>,
    small: bool,
}

impl Told {
    /// The overload is over.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether a decision that cancels nothing has something to say that has not been said.
    fn is_news(&mut self, best: SessionKey, reason: &PassedOver) -> bool {
        match reason {
            // Passes by itself within a tick or two.
            PassedOver::TooYoung => false,
            // Among equals the best is another one at every tick, now in a statement and now between two.
            PassedOver::GainTooSmall
            | PassedOver::MinorCause
            | PassedOver::NotIdleLongEnough
            | PassedOver::Victim { .. } => !std::mem::replace(&mut self.small, true),
            _ => {
                let news = self
                    .last
                    .as_ref()
                    .is_none_or(|(key, before)| *key != best || before != reason);
                self.last = Some((best, reason.clone()));
                news
            }
        }
    }
}

/// One look at the target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Survey {
    /// Every resource with its level.
    pub resources: Vec<Assessment>,
    /// Every task that is in somebody's way, best first. `passed_over` is `None` for the one that would be chosen.
    pub candidates: Vec<Candidate>,
}

/// A candidate with its verdict.
struct Judged {
    scored: Scored,
    score: f64,
    verdict: Option<PassedOver>,
}

impl Engine {
    /// Decides, and says so if there is something to say.
    pub(super) fn decide(
        &mut self,
        reading: &Reading,
        estimate: &Estimate,
        graph: &Graph,
        out: &mut Vec<Effect>,
    ) {
        let scored = gain::score(&self.settings, &self.ledger, graph);
        if self.is_advised(&scored) {
            return;
        }
        let levels = estimate.levels(self.settings.tuning.contention_floor);
        let judged = self.judge(&levels, graph, scored);
        let chosen = judged
            .iter()
            .find(|judged| judged.verdict.is_none())
            .map(|judged| judged.scored.clone());
        match (&chosen, judged.first()) {
            (None, None) => return,
            (None, Some(best)) => {
                let reason = best.verdict.clone().unwrap_or(PassedOver::LowerScore);
                if !self.told.is_news(best.scored.session, &reason) {
                    return;
                }
            }
            (Some(_), _) => {}
        }
        self.decision_count += 1;
        let order = chosen.and_then(|chosen| self.order(&chosen));
        let decision = self.record(reading, estimate, graph, &judged, order.as_ref());
        out.push(Effect::Decision(Box::new(decision)));
        if let Some(order) = order {
            self.follow(order, out);
        }
    }

    /// The same advice is given once: while the task that it named is still there, there is nothing to add.
    fn is_advised(&mut self, scored: &[Scored]) -> bool {
        let Some(advised) = &self.advised else {
            return false;
        };
        let there = scored.iter().any(|candidate| {
            candidate.session == advised.session
                && super::guard::id_of(&self.ledger, candidate.session) == advised.id
        });
        if !there {
            self.advised = None;
        }
        there
    }

    /// Passes the guard's verdict on each, ranks those that may be cancelled, and sorts all, best first.
    fn judge(&self, levels: &[f64], graph: &Graph, scored: Vec<Scored>) -> Vec<Judged> {
        let main = scored
            .iter()
            .filter(|candidate| candidate.role == Role::Root)
            .map(|candidate| policy::blame(levels, candidate))
            .fold(0.0, f64::max);
        let mut judged: Vec<Judged> = scored
            .into_iter()
            .filter_map(|scored| {
                let node = graph.get(&scored.session)?;
                let minor = policy::blame(levels, &scored) < MINOR_SHARE * main;
                let verdict = self
                    .guard
                    .check(&self.settings, &self.ledger, node, &scored)
                    .or_else(|| minor.then_some(PassedOver::MinorCause));
                Some(Judged {
                    score: policy::score(levels, &scored),
                    scored,
                    verdict,
                })
            })
            .collect();
        self.rank(levels, &mut judged);
        judged.sort_by(|a, b| {
            let victim =
                |judged: &Judged| matches!(judged.verdict, Some(PassedOver::Victim { .. }));
            (victim(a).cmp(&victim(b)))
                .then(b.score.total_cmp(&a.score))
                .then(a.verdict.is_some().cmp(&b.verdict.is_some()))
                .then(a.scored.session.cmp(&b.scored.session))
        });
        judged
    }

    /// Chooses among those that may be cancelled, and says why not the others.
    fn rank(&self, levels: &[f64], judged: &mut [Judged]) {
        let eligible: Vec<usize> = (0..judged.len())
            .filter(|index| judged[*index].verdict.is_none())
            .collect();
        let candidates: Vec<Scored> = eligible
            .iter()
            .map(|index| judged[*index].scored.clone())
            .collect();
        for (place, ranked) in MultiObjective
            .rank(levels, &candidates)
            .into_iter()
            .enumerate()
        {
            let by = ranked
                .dominated_by
                .map(|by| super::guard::id_of(&self.ledger, candidates[by].session));
            judged[eligible[ranked.index]].verdict = match by {
                _ if ranked.score <= 0.0 => Some(PassedOver::GainTooSmall),
                _ if place == 0 => None,
                Some(by) => Some(PassedOver::Dominated { by }),
                None => Some(PassedOver::LowerScore),
            };
        }
    }

    /// One look without waiting for an overload, for a person: every task that is in somebody's way, best first, with
    /// what ending it would free and what forbids it. Nothing is decided, and nothing is remembered.
    #[must_use]
    pub fn survey(&self) -> Survey {
        let graph = blame::assign(&self.ledger);
        let flights = self.flights(&graph);
        let estimate = estimator::estimate(
            &self.settings,
            &self.ledger,
            &graph,
            &self.detector,
            &flights,
        );
        let scored = gain::score(&self.settings, &self.ledger, &graph);
        let judged = self.judge(&estimate.levels(0.0), &graph, scored);
        Survey {
            candidates: self.candidates(&graph, &judged, None),
            resources: estimate.resources,
        }
    }

    /// The first rung of the ladder that works on a session in its present state.
    #[must_use]
    pub fn rung_for(&self, session: SessionKey) -> Option<u8> {
        let state = self.ledger.sessions.get(&session)?.state.as_ref()?;
        self.guard
            .first_rung(&self.settings, state)
            .map(|(index, _)| index)
    }

    fn candidates(
        &self,
        graph: &Graph,
        judged: &[Judged],
        chosen: Option<SessionKey>,
    ) -> Vec<Candidate> {
        let listed = judged
            .iter()
            .enumerate()
            .filter(|(n, judged)| *n < LISTED || Some(judged.scored.session) == chosen);
        listed
            .filter_map(|(_, judged)| {
                let (scored, node) = (&judged.scored, graph.get(&judged.scored.session)?);
                let verdict = judged.verdict.clone();
                Some(explain::candidate(
                    &self.settings,
                    &self.ledger,
                    node,
                    scored,
                    judged.score,
                    verdict,
                ))
            })
            .collect()
    }

    fn order(&mut self, chosen: &Scored) -> Option<Order> {
        let state = self.ledger.sessions.get(&chosen.session)?.state.clone()?;
        let (index, rung) = self.guard.first_rung(&self.settings, &state)?;
        self.order_count += 1;
        self.guard
            .ordered(self.order_count, &state, self.ledger.now_ns);
        Some(Order {
            order: self.order_count,
            decision: self.decision_count,
            at_ns: self.ledger.now_ns,
            task: explain::task(&self.settings, &self.ledger, chosen.session),
            rung: index,
            rung_name: rung.name.clone(),
            expected_gain_s: chosen.gain_s(),
        })
    }

    fn record(
        &self,
        reading: &Reading,
        estimate: &Estimate,
        graph: &Graph,
        judged: &[Judged],
        order: Option<&Order>,
    ) -> Decision {
        let chosen = order.map(|order| order.task.session);
        let candidates = self.candidates(graph, judged, chosen);
        let orders: Vec<Order> = order.cloned().into_iter().collect();
        Decision {
            decision: self.decision_count,
            at_ns: self.ledger.now_ns,
            breach_ns: self.overload.breach_ns,
            mode: self.settings.mode,
            trigger: Trigger {
                latency_ns: reading.latency_ns,
                limit_ns: reading.limit_ns,
                throughput: reading.throughput,
                reference: reading.reference,
                in_flight: reading.in_flight,
                waiting: reading.waiting,
                explained: estimate.explained,
            },
            summary: explain::decision(&estimate.resources, &candidates, &orders, |session| {
                blame::waiting_behind(graph, session)
            }),
            resources: estimate.resources.clone(),
            candidates,
            orders,
        }
    }

    fn follow(&mut self, order: Order, out: &mut Vec<Effect>) {
        let state = self
            .ledger
            .sessions
            .get(&order.task.session)
            .and_then(|known| known.state.as_ref());
        let busy = state.filter(|state| state.activity == Activity::Busy);
        let undo = busy
            .and_then(|state| class_of(&self.settings, state))
            .map_or(0.0, |class| class.undo);
        self.flying = Some(Flying::new(
            &self.settings,
            &self.ledger,
            order.clone(),
            undo,
        ));
        out.push(Effect::Cancel(order));
    }

    /// Sends the same task's next rung. It is part of the decision that began it.
    pub(super) fn escalate(&mut self, rung: u8, out: &mut Vec<Effect>) {
        let Some(flying) = &mut self.flying else {
            return;
        };
        let before = &flying.order;
        let state = self
            .ledger
            .sessions
            .get(&before.task.session)
            .and_then(|known| known.state.clone());
        let task = if state.is_some() {
            explain::task(&self.settings, &self.ledger, before.task.session)
        } else {
            before.task.clone()
        };
        self.order_count += 1;
        let order = Order {
            order: self.order_count,
            decision: before.decision,
            at_ns: self.ledger.now_ns,
            task,
            rung,
            rung_name: self
                .settings
                .ladder
                .get(usize::from(rung))
                .map(|rung| rung.name.clone())
                .unwrap_or_default(),
            expected_gain_s: before.expected_gain_s,
        };
        if let Some(state) = &state {
            self.guard.ordered(order.order, state, self.ledger.now_ns);
        }
        flying.escalate(&self.settings, &self.ledger, order.clone());
        out.push(Effect::Cancel(order));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_one_of_many_equals_is_not_said_of_the_next() {
        let mut told = Told::default();
        let idle = PassedOver::NotIdleLongEnough;
        assert!(told.is_news(SessionKey(1), &idle));
        assert!(!told.is_news(SessionKey(2), &idle));
        assert!(!told.is_news(SessionKey(1), &PassedOver::GainTooSmall));
        assert!(told.is_news(SessionKey(3), &PassedOver::ProtectedClass));
        told.forget();
        assert!(told.is_news(SessionKey(1), &idle), "in another overload");
    }
}
