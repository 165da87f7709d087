//! Sessions beyond a limit that the user has set: ended though nobody need wait for them.
//!
//! Whom an old snapshot costs time waits for nobody, so that no loss can be measured and blamed on its session. The user can
//! say at which age it has to go. What is spared, and how an order is followed, is the same as for everybody: own sessions,
//! protected classes and users, whoever waits for another, the budget, one order at a time. Ended is the session and not
//! its statement, since it is the transaction that does the harm. The harm is that of whoever has most: nobody is ended
//! while somebody who stays has as much.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::case::is_under_way;
use super::detector::Reading;
use super::estimator::Estimate;
use super::explain;
use super::guard::{class_of, id_of};
use super::input::{Activity, Beyond, Excess, SessionKey, SessionState};
use super::pacing::{Flying, Of};
use super::record::{Candidate, Decision, Effect, Exceeded, Order, PassedOver, Trigger};
use super::settings::{Rung, Tuning};
use super::window::seconds;

/// Who is beyond a limit, and whom that has been settled of.
#[derive(Clone, Debug, Default)]
pub(super) struct Excesses {
    /// What was told of this moment.
    latest: Option<Excess>,
    /// How many times in a row each was told to be beyond the limit of that name.
    times: BTreeMap<(SessionKey, String), u32>,
    /// Sessions that an order was made for, or of which it was said why there is none.
    settled: BTreeMap<SessionKey, Settled>,
}

/// What has been settled of a session.
#[derive(Clone, Copy, Debug)]
struct Settled {
    /// Its number, and since when its transaction is open: another transaction is another case.
    case: (u64, Option<u64>),
    /// When it was last told to be beyond a limit.
    told_ns: u64,
}

impl Beyond {
    /// It is to be ended for it, as far as that can be told without its state.
    fn is_over(&self) -> bool {
        self.may_end && self.value > self.most && self.open_ns > self.longest_ns
    }
}

impl Excesses {
    /// Takes in what is told of this moment.
    pub(super) fn tell(&mut self, excess: &Excess) {
        self.latest = Some(excess.clone());
    }

    /// The order for this session reached nobody: another one may be made.
    pub(super) fn missed(&mut self, session: SessionKey) {
        self.settled.remove(&session);
    }

    /// What is told of this tick, the one that has most first; nothing if nothing was looked at.
    fn told(&mut self, tick_ns: u64, tuning: &Tuning) -> Vec<Beyond> {
        let latest = self.latest.take().filter(|excess| excess.at_ns == tick_ns);
        let Some(Excess { mut sessions, .. }) = latest else {
            return Vec::new();
        };
        let before = std::mem::take(&mut self.times);
        for beyond in sessions.iter().filter(|beyond| beyond.is_over()) {
            let key = (beyond.session, beyond.limit.clone());
            let times = before.get(&key).map_or(1, |times| times.saturating_add(1));
            self.times.insert(key, times);
            if let Some(settled) = self.settled.get_mut(&beyond.session) {
                settled.told_ns = tick_ns;
            }
        }
        // One look that failed does not make a new case.
        self.settled
            .retain(|_, settled| tick_ns.saturating_sub(settled.told_ns) < tuning.repeat_after_ns);
        sessions.sort_by(|a, b| {
            (b.value.cmp(&a.value))
                .then(b.open_ns.cmp(&a.open_ns))
                .then(a.session.cmp(&b.session))
        });
        sessions
    }

    /// It has been told often enough not to be a torn view.
    fn is_confirmed(&self, beyond: &Beyond, tuning: &Tuning) -> bool {
        let key = (beyond.session, beyond.limit.clone());
        let times = self.times.get(&key);
        beyond.is_over() && times.is_some_and(|times| *times >= tuning.confirm_ticks)
    }

    fn is_settled(&self, state: &SessionState) -> bool {
        let settled = self.settled.get(&state.session);
        settled.is_some_and(|settled| settled.case == case(state))
    }
}

/// What names a session's transaction.
fn case(state: &SessionState) -> (u64, Option<u64>) {
    (state.id, state.transaction_since_ns)
}

/// What is to be done about a session that has more than a limit allows.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// It is ended, by this rung.
    Ends(u8),
    /// It is spared, which is worth telling.
    Spared(PassedOver),
    /// It stays for now.
    Stays,
}

impl Engine {
    /// Ends the session that has most of what a limit is set to, or says why it may not be. Nothing while an order is in
    /// flight.
    pub(super) fn end_excess(
        &mut self,
        tick_ns: u64,
        reading: &Reading,
        estimate: &Estimate,
        out: &mut Vec<Effect>,
    ) {
        let told = self.excesses.told(tick_ns, &self.settings.tuning);
        if !self.flying.is_empty() {
            return;
        }
        let limits: BTreeSet<&str> = told.iter().map(|beyond| beyond.limit.as_str()).collect();
        for limit in limits {
            let judged: Vec<(&Beyond, Verdict)> = told
                .iter()
                .filter(|beyond| beyond.limit == limit)
                .map(|beyond| (beyond, self.verdict(beyond)))
                .collect();
            let Some((beyond, what)) = most_urgent(&judged) else {
                continue;
            };
            let Some(state) = self.ledger.state(beyond.session).cloned() else {
                continue;
            };
            let settled = Settled {
                case: case(&state),
                told_ns: tick_ns,
            };
            self.excesses.settled.insert(beyond.session, settled);
            self.decision_count += 1;
            let (order, passed_over) = match what {
                Ok(rung) => (Some(self.order_beyond(&state, rung)), None),
                Err(reason) => (None, Some(reason)),
            };
            let decision =
                self.record_beyond((reading, estimate), beyond, order.as_ref(), passed_over);
            out.push(Effect::Decision(Box::new(decision)));
            if let Some(order) = order {
                self.follow_beyond(order, &state, out);
            }
            return;
        }
    }

    fn verdict(&self, beyond: &Beyond) -> Verdict {
        if !self.excesses.is_confirmed(beyond, &self.settings.tuning) {
            return Verdict::Stays;
        }
        let Some(state) = self.ledger.state(beyond.session) else {
            return Verdict::Stays;
        };
        if self.excesses.is_settled(state) {
            return Verdict::Stays;
        }
        match self.rung_beyond(state) {
            Ok(rung) => Verdict::Ends(rung),
            Err(reason) if passes_by_itself(&reason) => Verdict::Stays,
            Err(reason) => Verdict::Spared(reason),
        }
    }

    /// The rung that ends the session, or why it may not be ended.
    fn rung_beyond(&self, state: &SessionState) -> Result<u8, PassedOver> {
        let (settings, ledger, now_ns) = (&self.settings, &self.ledger, self.ledger.now_ns);
        if state.own {
            return Err(PassedOver::Own);
        }
        if settings.protected_principals.contains(&state.principal) {
            return Err(PassedOver::ProtectedPrincipal);
        }
        if class_of(settings, state).is_some_and(|class| class.protected) {
            return Err(PassedOver::ProtectedClass);
        }
        if let Some(reason) = self.guard.paused(now_ns) {
            return Err(reason);
        }
        let wait = ledger.waits.get(&state.session);
        let blocker = wait.and_then(|wait| ledger.edges(wait).next());
        if let Some(blocker) = blocker {
            let of = id_of(ledger, blocker.session);
            return Err(PassedOver::Victim { of });
        }
        let idle_ns = now_ns.saturating_sub(state.since_ns);
        match state.activity {
            Activity::IdleInTransaction if idle_ns < settings.tuning.min_idle_ns => {
                return Err(PassedOver::NotIdleLongEnough);
            }
            Activity::Busy if is_under_way(ledger, state) => return Err(PassedOver::UnderWay),
            Activity::Busy | Activity::IdleInTransaction => {}
            // It has no transaction.
            Activity::IdleWithLocks => return Err(PassedOver::WeakEvidence),
        }
        let ends_session =
            |rung: &Rung| rung.idle && (rung.busy || state.activity != Activity::Busy);
        let rung = settings.ladder.iter().position(ends_session);
        let Some(rung) = rung.and_then(|rung| u8::try_from(rung).ok()) else {
            return Err(PassedOver::NoRung);
        };
        if self.guard.again.is_spared(&settings.tuning, state, now_ns) {
            return Err(PassedOver::CancelledBefore);
        }
        self.guard.spent(settings, now_ns).map_or(Ok(rung), Err)
    }

    fn follow_beyond(&mut self, order: Order, state: &SessionState, out: &mut Vec<Effect>) {
        let undo = class_of(&self.settings, state)
            .filter(|_| state.activity == Activity::Busy)
            .map_or(0.0, |class| class.undo);
        let of = Of {
            // It was not in the way of what would have to be free for it to run again.
            class: None,
            undo_per_s: undo,
            used: Vec::new(),
            until_gone: true,
            resources: Vec::new(),
        };
        let flying = Flying::new(&self.settings, &self.ledger, order.clone(), of);
        self.flying.push(flying);
        out.push(Effect::Cancel(order));
    }

    fn order_beyond(&mut self, state: &SessionState, rung: u8) -> Order {
        self.order_count += 1;
        self.guard
            .ordered(self.order_count, state, self.ledger.now_ns);
        let rung_name = self.settings.ladder.get(usize::from(rung));
        Order {
            order: self.order_count,
            decision: self.decision_count,
            at_ns: self.ledger.now_ns,
            task: explain::task(&self.settings, &self.ledger, state.session),
            rung,
            rung_name: rung_name.map(|rung| rung.name.clone()).unwrap_or_default(),
            expected_gain_s: 0.0,
        }
    }

    fn record_beyond(
        &self,
        (reading, estimate): (&Reading, &Estimate),
        beyond: &Beyond,
        order: Option<&Order>,
        passed_over: Option<PassedOver>,
    ) -> Decision {
        let candidate = Candidate {
            task: explain::task(&self.settings, &self.ledger, beyond.session),
            gains: Vec::new(),
            score: 0.0,
            passed_over,
        };
        let limit = Exceeded {
            name: beyond.limit.clone(),
            value: beyond.value,
            most: beyond.most,
            open_s: seconds(beyond.open_ns),
            longest_s: seconds(beyond.longest_ns),
        };
        Decision {
            decision: self.decision_count,
            at_ns: self.ledger.now_ns,
            breach_ns: self.ledger.now_ns,
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
            summary: summary(&candidate, &limit, order),
            resources: estimate.resources.clone(),
            candidates: vec![candidate],
            orders: order.cloned().into_iter().collect(),
            group: None,
            hints: Vec::new(),
            limit: Some(limit),
        }
    }
}

/// Whom to end, by which rung, or else of whom to tell that it is spared, and why. Sessions come with the one first that has
/// most.
fn most_urgent<'a>(
    judged: &[(&'a Beyond, Verdict)],
) -> Option<(&'a Beyond, Result<u8, PassedOver>)> {
    let ends = |verdict: &Verdict| matches!(verdict, Verdict::Ends(_));
    let staying = judged.iter().filter(|(_, verdict)| !ends(verdict));
    let held = staying.map(|(beyond, _)| beyond.value).max().unwrap_or(0);
    let mut spared = None;
    for (beyond, verdict) in judged {
        match verdict {
            Verdict::Ends(rung) if beyond.value > held => return Some((beyond, Ok(*rung))),
            Verdict::Spared(reason) if spared.is_none() => {
                spared = Some((*beyond, Err(reason.clone())));
            }
            Verdict::Ends(_) | Verdict::Spared(_) | Verdict::Stays => {}
        }
    }
    spared
}

/// What forbids it now and may not in a moment: nothing to tell.
fn passes_by_itself(reason: &PassedOver) -> bool {
    !matches!(
        reason,
        PassedOver::ProtectedClass | PassedOver::ProtectedPrincipal | PassedOver::NoRung
    )
}

fn summary(candidate: &Candidate, limit: &Exceeded, order: Option<&Order>) -> String {
    let Exceeded {
        name,
        value,
        most,
        open_s,
        longest_s,
    } = limit;
    let who = explain::who(&candidate.task);
    let doing = &candidate.task.doing;
    let beyond = format!(
        "its {name} is {value}, above {most}, and its transaction has been open for {open_s:.0} s, longer than {longest_s:.0} s"
    );
    match order {
        Some(order) => format!(
            "{} for {who}, {doing}: {beyond}; nobody need wait for it, it is ended because this limit was set",
            order.rung_name
        ),
        None => format!(
            "nothing is cancelled: {who}, {doing}, is beyond a limit ({beyond}), but {}",
            explain::why(candidate)
        ),
    }
}

#[cfg(test)]
#[path = "excess_tests.rs"]
mod tests;
