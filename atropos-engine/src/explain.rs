//! Records and sentences: what a person reads to follow a decision, and an auditor to check it.

use std::fmt::Write as _;

use super::gain::{Part, Scored};
use super::graph::Node;
use super::guard::class_of;
use super::input::{Activity, BlockKind, SessionKey};
use super::ledger::Ledger;
use super::record::{
    Assessment, Candidate, Decision, Gain, Group, GroupBy, HeldInstance, Hint, Order, OrderOutcome,
    OutcomeKind, PassedOver, Task,
};
use super::settings::Settings;
use super::window::seconds;

/// Characters of a statement that a sentence shows.
const SHOWN_CHARS: usize = 60;

/// A session as a person knows it.
pub(super) fn task(settings: &Settings, ledger: &Ledger, session: SessionKey) -> Task {
    let Some(state) = ledger.state(session) else {
        return Task {
            doing: "not listed by the target".to_owned(),
            ..Task::new(session, Activity::Busy)
        };
    };
    let for_s = seconds(ledger.now_ns.saturating_sub(state.since_ns));
    let waiting = ledger.waits.get(&session);
    let doing = match (state.activity, waiting) {
        (Activity::Busy, Some(wait)) => {
            let waited_s = seconds(ledger.now_ns.saturating_sub(wait.since_ns));
            format!(
                "running {for_s:.2} s, of it waiting {waited_s:.2} s for {}",
                ledger.name(wait.resource, wait.instance)
            )
        }
        (Activity::Busy, None) => format!("running {for_s:.2} s"),
        (Activity::IdleInTransaction, _) => format!("idle in a transaction for {for_s:.2} s"),
        (Activity::IdleWithLocks, _) => format!("idle with explicit locks for {for_s:.2} s"),
    };
    Task {
        session,
        id: state.id,
        thread: state.thread,
        request: state.request,
        activity: state.activity,
        class: class_of(settings, state)
            .map(|class| class.name.clone())
            .unwrap_or_default(),
        principal: state.principal.clone(),
        fingerprint: state.fingerprint,
        digest: state.digest.clone(),
        doing,
        since_ns: state.since_ns,
        seen_ns: ledger.now_ns,
    }
}

/// A candidate with the parts of its score.
pub(super) fn candidate(
    settings: &Settings,
    ledger: &Ledger,
    node: &Node,
    scored: &Scored,
    score: f64,
    passed_over: Option<PassedOver>,
) -> Candidate {
    let gains = scored
        .parts
        .iter()
        .filter(|part| part.blame > 0.0 || part.usage_s > 0.0)
        .map(|part| gain(settings, ledger, node, part))
        .collect();
    Candidate {
        task: task(settings, ledger, scored.session),
        gains,
        score,
        passed_over,
    }
}

fn gain(settings: &Settings, ledger: &Ledger, node: &Node, part: &Part) -> Gain {
    let instances = node
        .in_way
        .iter()
        .filter(|way| way.resource == part.resource)
        .map(|way| HeldInstance {
            instance: way.instance,
            name: ledger.name(way.resource, way.instance),
            mode: mode_name(settings, usize::from(way.resource.0), way.mode),
            kind: way.kind,
            for_s: seconds(ledger.now_ns.saturating_sub(way.since_ns)),
            waiters: way.waiters,
            evidence: way.evidence,
        })
        .collect();
    Gain {
        resource: part.resource,
        instances,
        usage_s: part.usage_s,
        progress: part.progress,
        blame: part.blame,
        undo_s: part.undo_s,
        gain_s: part.gain_s,
    }
}

fn mode_name(settings: &Settings, resource: usize, mode: u32) -> String {
    let modes = settings
        .resources
        .get(resource)
        .map(|resource| &resource.modes);
    modes
        .and_then(|modes| modes.get(mode as usize))
        .cloned()
        .unwrap_or_default()
}

/// Who, for what and why, and why not the next one.
pub(super) fn decision(
    resources: &[Assessment],
    candidates: &[Candidate],
    (orders, cut): (&[Order], bool),
    behind: impl Fn(SessionKey) -> usize,
) -> String {
    let mut text = String::new();
    let chosen = candidates
        .iter()
        .find(|candidate| candidate.passed_over.is_none());
    match (orders.first(), chosen) {
        (Some(order), Some(candidate)) => {
            let _ = write!(text, "{} for {}", order.rung_name, who(&candidate.task));
            let _ = write!(
                text,
                ", {}",
                what_it_does(candidate, resources, behind(candidate.task.session))
            );
            for order in orders.iter().skip(1) {
                let _ = write!(text, "; and {} for {}", order.rung_name, who(&order.task));
            }
            if cut {
                text.push_str(
                    "; the budget of cancels is spent with that, and others like it stay",
                );
            }
        }
        _ => match candidates.first() {
            Some(best) => {
                let _ = write!(
                    text,
                    "nothing is cancelled: {} would free the most, but {}",
                    who(&best.task),
                    why(best)
                );
                let _ = write!(
                    text,
                    "; it is {}",
                    what_it_does(best, resources, behind(best.task.session))
                );
            }
            None => text.push_str("nothing is cancelled: nobody is known to be in the way"),
        },
    }
    let shown = candidates.first().map(|candidate| candidate.task.session);
    let is_told = |candidate: &Candidate| {
        let session = candidate.task.session;
        if orders.is_empty() {
            Some(session) == shown
        } else {
            orders.iter().any(|order| order.task.session == session)
        }
    };
    if let Some(runner_up) = candidates.iter().find(|candidate| !is_told(candidate)) {
        let _ = write!(text, "; next, {}: {}", who(&runner_up.task), why(runner_up));
    }
    text
}

/// Names the group that is to blame together before what is said of single tasks.
pub(super) fn group(decision: &mut Decision, group: &Group) {
    let resource = decision
        .resources
        .iter()
        .find(|resource| resource.resource == group.resource);
    let (name, level) = resource.map_or(("?", 0.0), |resource| {
        (resource.name.as_str(), resource.level)
    });
    let of = match group.by {
        GroupBy::User => "sessions of user",
        GroupBy::Statement => "sessions with the statement",
    };
    decision.summary = format!(
        "no single task is to blame: {} {of} {} together take {:.0} % of {name} (level {level:.2}), of which others lose most; {}",
        group.member_count,
        group.name,
        group.share * 100.0,
        decision.summary
    );
}

pub(super) fn who(task: &Task) -> String {
    let mut text = format!("session {}", task.id);
    let mut statement: String = task.digest.chars().take(SHOWN_CHARS).collect();
    if task.digest.chars().count() > SHOWN_CHARS {
        statement.push('…');
    }
    let parts: Vec<&str> = [task.principal.as_str(), statement.as_str()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    if !parts.is_empty() {
        let _ = write!(text, " ({})", parts.join(", "));
    }
    text
}

fn what_it_does(candidate: &Candidate, resources: &[Assessment], behind: usize) -> String {
    let mut text = candidate.task.doing.clone();
    let instance = candidate
        .gains
        .iter()
        .flat_map(|gain| &gain.instances)
        .max_by_key(|held| held.waiters);
    if let Some(held) = instance {
        let verb = match held.kind {
            BlockKind::Granted => "holding",
            BlockKind::Queued => "queued for",
        };
        let plural = if behind == 1 { "" } else { "s" };
        let _ = write!(
            text,
            ", {verb} {} with {behind} session{plural} waiting behind it",
            held.name
        );
    }
    if let Some(gain) = candidate
        .gains
        .iter()
        .max_by(|a, b| a.gain_s.total_cmp(&b.gain_s))
    {
        let resource = resources
            .iter()
            .find(|resource| resource.resource == gain.resource);
        let (name, level) = resource.map_or(("?", 0.0), |resource| {
            (resource.name.as_str(), resource.level)
        });
        let _ = write!(
            text,
            ", to blame for {:.0} % of the time lost to {name} (level {level:.2}); ending it frees about {:.2} s",
            gain.blame * 100.0,
            gain.gain_s,
        );
        if gain.undo_s > 0.0 {
            let _ = write!(text, " after about {:.2} s of undoing", gain.undo_s);
        }
    }
    text
}

impl Candidate {
    /// Why it is passed over, in a few words; nothing for one that is chosen.
    pub fn why_not(&self) -> Option<String> {
        self.passed_over.as_ref().map(|_| why(self))
    }
}

/// Why a task may not be ended now.
pub(super) fn passed_over(task: &Task, reason: &PassedOver) -> String {
    why(&Candidate {
        task: task.clone(),
        gains: Vec::new(),
        score: 0.0,
        passed_over: Some(reason.clone()),
    })
}

pub(super) fn why(candidate: &Candidate) -> String {
    let undo_s = candidate
        .gains
        .iter()
        .map(|gain| gain.undo_s)
        .fold(0.0, f64::max);
    match &candidate.passed_over {
        None => "it is chosen".to_owned(),
        Some(PassedOver::LowerScore | PassedOver::Dominated { .. }) => {
            "another frees more".to_owned()
        }
        Some(PassedOver::ProtectedClass) => {
            format!("its class {} is protected", candidate.task.class)
        }
        Some(PassedOver::ProtectedPrincipal) => {
            format!("its user {} is protected", candidate.task.principal)
        }
        Some(PassedOver::Own) => "it is the agent's own session".to_owned(),
        Some(PassedOver::Victim { of }) => format!("it waits itself, for session {of}"),
        Some(PassedOver::TooYoung) => "it has not been in the way for long enough".to_owned(),
        Some(PassedOver::NotIdleLongEnough) => "it has not been idle for long enough".to_owned(),
        Some(PassedOver::NearlyDone) => "it is nearly done".to_owned(),
        Some(PassedOver::GainTooSmall) if undo_s > 0.0 => {
            format!("ending it needs about {undo_s:.2} s of undoing, which eats the gain")
        }
        Some(PassedOver::GainTooSmall) => "ending it would free too little".to_owned(),
        Some(PassedOver::MinorCause) => {
            "it is to blame for little of the loss beside another".to_owned()
        }
        Some(PassedOver::LikeItsPeers) => {
            "it has held it for no longer than others do, and all of them together are too much"
                .to_owned()
        }
        Some(PassedOver::Ordinary) => {
            "it is one of many like it, and the next would stand where it stood".to_owned()
        }
        Some(PassedOver::CancelledBefore) => "the same work was cancelled before".to_owned(),
        Some(PassedOver::UnderWay) => "it has already been asked to stop".to_owned(),
        Some(PassedOver::NoRung) => "no way of cancelling works in its state".to_owned(),
        Some(PassedOver::Budget) => "the budget of cancels is spent".to_owned(),
        Some(PassedOver::WeakEvidence) => "the evidence against it is not good enough".to_owned(),
        Some(PassedOver::LostEvents) => "events were lost a moment ago".to_owned(),
        Some(PassedOver::HeldUp) => {
            "it waits itself at this moment, for a lock whose holders cannot be seen".to_owned()
        }
        Some(PassedOver::Unsent) => "an order could not be sent a moment ago".to_owned(),
    }
}

/// Who woke whom, and that it proves nothing.
pub(super) fn hint(hint: &Hint, thread_name: &str) -> String {
    let by = match &hint.task {
        Some(task) if task.id != 0 => who(task),
        _ if thread_name.is_empty() => format!("thread {}", hint.thread),
        _ => format!("thread {} ({thread_name})", hint.thread),
    };
    let (sessions, was) = match hint.waiter_count {
        1 => ("1 session".to_owned(), "was"),
        count => (format!("{count} sessions"), "were"),
    };
    let times = match hint.wake_count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    format!(
        "{sessions} that waited for {} {was} woken by {by}, {times}: a hint at who held it, no proof",
        hint.instances.join(", ")
    )
}

/// What became of an order.
pub(super) fn outcome(outcome: &OrderOutcome, order: &Order) -> String {
    let who = who(&order.task);
    let by = &order.rung_name;
    match outcome.result {
        OutcomeKind::Released => {
            let after = outcome
                .time_to_release_ns
                .map(|ns| {
                    format!(
                        " {:.0} ms after the target accepted {by}",
                        seconds(ns) * 1e3
                    )
                })
                .unwrap_or_default();
            let realised = outcome
                .realised_gain_s
                .map(|gain_s| {
                    format!(
                        "; {gain_s:.2} s of the expected {:.2} s gained",
                        outcome.expected_gain_s
                    )
                })
                .unwrap_or_default();
            format!("{who} released{after}{realised}")
        }
        OutcomeKind::Missed => format!("{who} had ended before {by} reached it"),
        OutcomeKind::Refused => format!("the target refused {by} for {who}"),
        OutcomeKind::Stuck => {
            format!("{who} is still in the way after {by}, and no further rung works")
        }
        OutcomeKind::RollingBack => {
            format!("{who} is undoing its work after {by}; going further would not be faster")
        }
        OutcomeKind::NotSent => format!("{by} for {who} was not sent: the mode does not allow it"),
        OutcomeKind::Unsent => format!("{by} for {who} could not be sent"),
        OutcomeKind::GoneOn => {
            format!("{who} has gone on after {by} and is still in the way: it is looked at afresh")
        }
        OutcomeKind::Withheld => {
            format!("{who} is still in the way after {by}; no further rung for now")
        }
    }
}
