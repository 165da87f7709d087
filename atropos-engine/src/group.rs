//! Groups: users or statements that are to blame together where no single task is. Each member by itself does what is usual, so
//! they are named for a person (or ended one by one, if the settings say so).

use std::collections::BTreeMap;

use super::Engine;
use super::decide::Judged;
use super::gain::{Role, Scored};
use super::input::{ResourceId, SessionKey, SessionState};
use super::ledger::Ledger;
use super::record::{Group, GroupBy, PassedOver};
use super::settings::{Kind, Settings};
use super::window::{seconds, within_ns};

/// A group is to blame if it takes this share of the most contended resource. 0.5: whoever takes less is not the larger part of
/// the trouble.
const MOST: f64 = 0.5;

/// ... and so many times its share of all sessions: one that is as large as its numbers is the ordinary load.
const BEYOND: f64 = 2.0;

/// A group with its members, largest first.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) group: Group,
    pub(super) members: Vec<SessionKey>,
}

impl Engine {
    /// Members of a group that the settings allow to end and nothing else protects, as many as one decision may end.
    pub(super) fn members(&self, found: Option<&Found>, judged: &[Judged]) -> Vec<Scored> {
        let tuning = &self.settings.tuning;
        let room = self.guard.room(&self.settings, self.ledger.now_ns);
        let Some(found) = found.filter(|_| tuning.end_groups) else {
            return Vec::new();
        };
        let is_free = |judged: &&Judged| {
            matches!(
                judged.verdict,
                Some(PassedOver::GainTooSmall | PassedOver::MinorCause | PassedOver::LikeItsPeers)
            )
        };
        let is_open = |judged: &&Judged| {
            let session = judged.scored.session;
            let is_over = self
                .guard
                .is_over_with(&self.settings, &self.ledger, session);
            !is_over && !self.runs_again(&judged.scored)
        };
        let member = |session: &SessionKey| {
            let of = |judged: &&Judged| judged.scored.session == *session;
            judged.iter().filter(is_free).find(of).filter(is_open)
        };
        let members = found.members.iter().filter_map(member);
        members
            .take(room.min(tuning.per_decision as usize))
            .map(|judged| judged.scored.clone())
            .collect()
    }
}

#[derive(Default)]
struct Sum {
    members: Vec<(SessionKey, f64)>,
    used: f64,
    lost_s: f64,
}

/// The group that is to blame for most of what is lost to the most contended resource, while others lose most of it.
pub(super) fn find(
    settings: &Settings,
    ledger: &Ledger,
    levels: &[f64],
    scored: &[Scored],
) -> Option<Found> {
    let at = (0..levels.len()).max_by(|a, b| levels[*a].total_cmp(&levels[*b]).then(b.cmp(a)))?;
    if levels[at] <= 0.0 {
        return None;
    }
    let parts = match settings.resources.get(at)?.kind {
        Kind::Lock | Kind::Queue => of_holders(ledger, at, scored),
        _ => of_users(ledger, at),
    };
    [GroupBy::User, GroupBy::Statement]
        .into_iter()
        .find_map(|by| largest(ledger, by, &parts))
        .map(|(by, name, sum, share)| {
            let mut members = sum.members;
            members.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            Found {
                group: Group {
                    by,
                    name,
                    resource: ResourceId(at as u16),
                    member_count: members.len() as u64,
                    share,
                },
                members: members.into_iter().map(|(session, _)| session).collect(),
            }
        })
}

/// Share taken and seconds lost, by session.
type Parts = BTreeMap<SessionKey, (f64, f64)>;

fn of_holders(ledger: &Ledger, at: usize, scored: &[Scored]) -> Parts {
    let mut parts = Parts::new();
    for task in scored.iter().filter(|task| task.role == Role::Root) {
        parts.entry(task.session).or_default().0 = task.parts[at].blame;
    }
    for wait in ledger
        .foreign_waits()
        .filter(|wait| usize::from(wait.resource.0) == at)
    {
        let lost_s = seconds(within_ns(wait.since_ns, ledger.now_ns, ledger.window_ns));
        parts.entry(wait.waiter).or_default().1 += lost_s;
    }
    parts
}

fn of_users(ledger: &Ledger, at: usize) -> Parts {
    ledger.accounts[at]
        .shares(ledger.now_ns)
        .map(|(session, share, lost_s)| (session, (share, lost_s)))
        .collect()
}

fn largest(ledger: &Ledger, by: GroupBy, parts: &Parts) -> Option<(GroupBy, String, Sum, f64)> {
    let mut sums: BTreeMap<(u64, &str), Sum> = BTreeMap::new();
    let (mut session_count, mut lost_s) = (0_usize, 0.0);
    for (session, (share, own_lost_s)) in parts {
        session_count += 1;
        lost_s += own_lost_s;
        let state = ledger.state(*session);
        if let Some(key) = state.and_then(|state| key(by, state)) {
            let sum = sums.entry(key).or_default();
            sum.members.push((*session, *share));
            sum.used += share;
            sum.lost_s += own_lost_s;
        }
    }
    let is_to_blame = |sum: &Sum| {
        let by_numbers = sum.members.len() as f64 / session_count.max(1) as f64;
        let takers = sum.members.iter().filter(|(_, share)| *share > 0.0);
        takers.count() > 1
            && sum.used >= MOST
            && sum.used >= BEYOND * by_numbers
            && sum.lost_s <= lost_s / 2.0
    };
    sums.into_iter()
        .filter(|(_, sum)| is_to_blame(sum))
        .max_by(|a, b| a.1.used.total_cmp(&b.1.used).then(b.0.cmp(&a.0)))
        .map(|((_, name), mut sum)| {
            sum.members.retain(|(_, share)| *share > 0.0);
            let used = sum.used.min(1.0);
            (by, name.to_owned(), sum, used)
        })
}

fn key(by: GroupBy, state: &SessionState) -> Option<(u64, &str)> {
    match by {
        _ if state.own => None,
        GroupBy::User => (!state.principal.is_empty()).then_some((0, state.principal.as_str())),
        GroupBy::Statement => {
            (state.fingerprint != 0).then_some((state.fingerprint, state.digest.as_str()))
        }
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
