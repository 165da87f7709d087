//! The decision: candidates, verdicts, the choice, its record and its order.

use serde::Serialize;

use super::Engine;
use super::blame;
use super::choose::Choice;
use super::detector::Reading;
use super::estimator::{self, Estimate};
use super::explain;
use super::gain::{self, Role, Scored};
use super::graph::Graph;
use super::group;
use super::input::SessionKey;
use super::policy;
use super::record::{Assessment, Candidate, Decision, Effect, Order, PassedOver, Trigger};

/// A task to blame for less than this share of what the main holder is to blame for is no cause worth a cancel: ending it
/// leaves the overload where it is, however long it has been there.
pub(super) const MINOR_SHARE: f64 = 0.25;

/// Candidates that a record lists.
const LISTED: usize = 64;

/// What has been said in this overload, so that it is not said at every tick.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    last: Option<(SessionKey, PassedOver)>,
    small: bool,
    group: bool,
}

impl Told {
    /// The overload is over.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether a decision that cancels nothing has something to say that has not been said.
    fn is_news(&mut self, best: SessionKey, reason: &PassedOver) -> bool {
        match reason {
            // Passes by itself within a tick or two, or was said when it happened.
            PassedOver::TooYoung | PassedOver::Unsent => false,
            // Among equals the best is another one at every tick, now in a statement and now between two.
            PassedOver::GainTooSmall
            | PassedOver::MinorCause
            | PassedOver::LikeItsPeers
            | PassedOver::HeldUp
            | PassedOver::Ordinary
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
pub(super) struct Judged {
    pub(super) scored: Scored,
    pub(super) score: f64,
    pub(super) verdict: Option<PassedOver>,
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
        let found = group::find(&self.settings, &self.ledger, &levels, &scored);
        let mut judged = self.judge(&levels, graph, scored, true);
        self.note_let_through(&judged);
        let best = judged
            .iter()
            .find(|judged| judged.verdict.is_none())
            .map(|judged| judged.scored.clone());
        let found = found.filter(|_| best.is_none());
        let members = self.members(found.as_ref(), &judged);
        let group_is_news = found.is_some() && !std::mem::replace(&mut self.told.group, true);
        match (&best, judged.first()) {
            _ if group_is_news || !members.is_empty() => {}
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
        let of_group = Choice {
            tasks: members,
            cut: false,
        };
        let choice = best.map_or(of_group, |best| self.choose(&levels, best));
        let orders: Vec<Order> = choice
            .tasks
            .iter()
            .filter_map(|task| self.order(task))
            .collect();
        for judged in &mut judged {
            let session = judged.scored.session;
            if orders.iter().any(|order| order.task.session == session) {
                judged.verdict = None;
            }
        }
        let mut decision = self.record(reading, estimate, graph, &judged, (&orders, choice.cut));
        if let Some(found) = found {
            explain::group(&mut decision, &found.group);
            decision.group = Some(found.group);
        }
        decision.hints = self.wakers.hints(&self.settings, &self.ledger);
        out.push(Effect::Decision(Box::new(decision)));
        for order in orders {
            self.follow(order, graph, out);
        }
    }

    /// The same advice is given once: while the task that it named is still there, there is nothing to add.
    fn is_advised(&mut self, scored: &[Scored]) -> bool {
        let ledger = &self.ledger;
        self.advised.retain(|advised| {
            scored.iter().any(|candidate| {
                candidate.session == advised.session
                    && super::guard::id_of(ledger, candidate.session) == advised.id
            })
        });
        !self.advised.is_empty()
    }

    /// Passes the guard's verdict on each, ranks those that may be cancelled, and sorts all, best first.
    /// `alone` if these are all there are: else others are chosen already, and only what is alike is asked for.
    pub(super) fn judge(
        &self,
        levels: &[f64],
        graph: &Graph,
        scored: Vec<Scored>,
        alone: bool,
    ) -> Vec<Judged> {
        let main = scored
            .iter()
            .filter(|candidate| candidate.role == Role::Root)
            .map(|candidate| policy::blame(levels, candidate))
            .fold(0.0, f64::max);
        let mut judged: Vec<Judged> = scored
            .into_iter()
            .filter_map(|scored| {
                let node = graph.get(scored.session)?;
                let minor = policy::blame(levels, &scored) < MINOR_SHARE * main;
                let verdict = self
                    .guard
                    .check(&self.settings, &self.ledger, node, &scored)
                    .or_else(|| {
                        self.runs_again(&scored)
                            .then_some(PassedOver::CancelledBefore)
                    })
                    .or_else(|| minor.then_some(PassedOver::MinorCause));
                Some(Judged {
                    score: policy::score(levels, &scored),
                    scored,
                    verdict,
                })
            })
            .collect();
        if alone {
            Self::spare_minor(levels, &mut judged);
        }
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

    /// If all who may be cancelled are to blame for little even together, the overload is not theirs.
    fn spare_minor(levels: &[f64], judged: &mut [Judged]) {
        let free = |judged: &&Judged| judged.verdict.is_none();
        let tasks = judged.iter().filter(free).map(|judged| &judged.scored);
        if !Self::explain_together(levels, tasks) {
            for judged in judged.iter_mut().filter(|judged| judged.verdict.is_none()) {
                judged.verdict = Some(PassedOver::MinorCause);
            }
        }
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
        for (place, ranked) in policy::rank(levels, &candidates).into_iter().enumerate() {
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
        let mut flights = Vec::new();
        self.look_in_flight(&graph, &mut flights);
        let estimate = estimator::estimate(
            &self.settings,
            &self.ledger,
            &graph,
            &self.detector,
            &flights,
        );
        let scored = gain::score(&self.settings, &self.ledger, &graph);
        let judged = self.judge(&estimate.levels(0.0), &graph, scored, true);
        Survey {
            candidates: self.candidates(&graph, &judged, &[]),
            resources: estimate.resources,
        }
    }

    /// The first rung of the ladder that works on a session in its present state.
    #[must_use]
    pub fn rung_for(&self, session: SessionKey) -> Option<u8> {
        let state = self.ledger.state(session)?;
        self.guard
            .first_rung(&self.settings, state)
            .map(|(index, _)| index)
    }

    fn candidates(&self, graph: &Graph, judged: &[Judged], orders: &[Order]) -> Vec<Candidate> {
        let is_chosen =
            |session: SessionKey| orders.iter().any(|order| order.task.session == session);
        let listed = judged
            .iter()
            .enumerate()
            .filter(|(n, judged)| *n < LISTED || is_chosen(judged.scored.session));
        listed
            .filter_map(|(_, judged)| {
                let (scored, node) = (&judged.scored, graph.get(judged.scored.session)?);
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

    fn record(
        &self,
        reading: &Reading,
        estimate: &Estimate,
        graph: &Graph,
        judged: &[Judged],
        (orders, cut): (&[Order], bool),
    ) -> Decision {
        let candidates = self.candidates(graph, judged, orders);
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
            summary: explain::decision(
                &estimate.resources,
                &candidates,
                (orders, cut),
                |session| graph.waiting_behind(session),
            ),
            resources: estimate.resources.clone(),
            candidates,
            orders: orders.to_vec(),
            group: None,
            hints: Vec::new(),
            limit: None,
        }
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
