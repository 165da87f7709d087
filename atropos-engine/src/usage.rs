//! Resources that nobody waits for in a line (MEMORY, CPU, IO): who used how much, what it cost the others, who is to blame.
//!
//! Time that sessions lost is charged to those whose use stands out from their peers', each for its share of all use in
//! the window. What many equal ones took together is charged to nobody: ending some of them frees nothing that the next of
//! them would not take. Where sessions tell what they *hold* (heap, pages, the age of a view), the share of that counts.

use std::collections::BTreeMap;

use super::input::{Evidence, ResourceId, SessionKey, Usage};
use super::ledger::Ledger;
use super::peers::{self, Peers};
use super::settings::Kind;
use super::window::{SlidingSum, seconds};

/// What a session's present request used, lost and holds.
#[derive(Clone, Debug)]
pub(super) struct Spent {
    used: SlidingSum,
    lost: SlidingSum,
    used_total: u64,
    /// Time lost since the request began, nanoseconds.
    pub(super) lost_ns: u64,
    held: u64,
    since_ns: u64,
    seen_ns: u64,
}

/// Somebody to blame for time that others lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Charge {
    pub(super) session: SessionKey,
    /// Time lost by others that is charged to it, seconds of the window.
    pub(super) blamed_s: f64,
    /// Its share of all use, or of all that is held, 0 to 1.
    pub(super) share: f64,
    /// Since when at least it has been using the resource.
    pub(super) since_ns: u64,
    /// How it is known.
    pub(super) evidence: Evidence,
    /// As of when it is known.
    pub(super) seen_ns: u64,
}

/// What is known of one resource.
#[derive(Clone, Debug)]
pub(super) struct Account {
    window_ns: u64,
    used: SlidingSum,
    lost: SlidingSum,
    spent: BTreeMap<SessionKey, Spent>,
    /// Totals of requests that are over.
    peers: Peers,
    /// Sessions tell what they hold.
    by_held: bool,
    /// The latest report said everything, by evidence that is good enough to cancel.
    pub(super) trusted: bool,
    complete: bool,
    evidence: Evidence,
    reported_ns: u64,
}

impl Account {
    pub(super) fn new(window_ns: u64) -> Self {
        Self {
            window_ns,
            used: SlidingSum::new(window_ns),
            lost: SlidingSum::new(window_ns),
            spent: BTreeMap::new(),
            peers: Peers::default(),
            by_held: false,
            trusted: false,
            complete: false,
            evidence: Evidence::Inference,
            reported_ns: 0,
        }
    }

    fn report(&mut self, usage: &Usage, now_ns: u64) {
        let end_ns = usage.at_ns.min(now_ns);
        let begin_ns = end_ns.saturating_sub(usage.covered_ns);
        self.trusted = usage.complete && usage.evidence <= Evidence::OpenMap;
        self.complete = usage.complete;
        self.evidence = usage.evidence;
        self.reported_ns = end_ns;
        if usage.sessions.iter().any(|one| one.held > 0) && !self.by_held {
            self.by_held = true;
            self.peers = Peers::default();
        }
        for one in &usage.sessions {
            let lost_ns = one.lost_ns.min(usage.covered_ns);
            self.used.add_amount(begin_ns, end_ns, one.used);
            self.lost.add_amount(begin_ns, end_ns, lost_ns);
            let spent = self.spent.entry(one.session).or_insert_with(|| Spent {
                used: SlidingSum::new(self.window_ns),
                lost: SlidingSum::new(self.window_ns),
                used_total: 0,
                lost_ns: 0,
                held: 0,
                since_ns: begin_ns,
                seen_ns: end_ns,
            });
            spent.used.add_amount(begin_ns, end_ns, one.used);
            spent.lost.add_amount(begin_ns, end_ns, lost_ns);
            spent.used_total = spent.used_total.saturating_add(one.used);
            spent.lost_ns = spent.lost_ns.saturating_add(lost_ns);
            spent.held = one.held;
            spent.seen_ns = spent.seen_ns.max(end_ns);
        }
        if usage.complete {
            // Who is not listed holds nothing any more.
            for spent in self.spent.values_mut() {
                if spent.seen_ns < end_ns {
                    spent.held = 0;
                }
            }
        }
    }

    /// A session's request is over: what it took tells what is usual.
    fn close(&mut self, session: SessionKey, now_ns: u64) {
        if let Some(spent) = self.spent.remove(&session) {
            self.peers.add(now_ns, self.measure(&spent));
        }
    }

    fn measure(&self, spent: &Spent) -> u64 {
        if self.by_held {
            spent.held
        } else {
            spent.used_total
        }
    }

    /// Time lost in the window, nanoseconds.
    pub(super) fn lost_ns(&self, now_ns: u64) -> u64 {
        self.lost.sum_ns(now_ns)
    }

    /// ... by requests that are over.
    pub(super) fn past_lost_ns(&self, now_ns: u64) -> u64 {
        let open_ns = self
            .spent
            .values()
            .map(|spent| spent.lost.sum_ns(now_ns))
            .fold(0, u64::saturating_add);
        self.lost_ns(now_ns).saturating_sub(open_ns)
    }

    /// Why what was lost in the window is no reason to end anybody, if it is none.
    pub(super) fn doubt(&self, now_ns: u64) -> Option<&'static str> {
        let why = if self.complete {
            "who used it is inferred, which is enough to tell and not to end anybody"
        } else {
            "not everything that was used of it was seen"
        };
        (!self.trusted && self.lost_ns(now_ns) > 0).then_some(why)
    }

    /// What a session's present request used, lost and holds.
    pub(super) fn spent(&self, session: SessionKey) -> Option<&Spent> {
        self.spent.get(&session)
    }

    /// Share of all use (or of all that is held) and time lost in the window, seconds, by session.
    pub(super) fn shares(&self, now_ns: u64) -> impl Iterator<Item = (SessionKey, f64, f64)> {
        let all = self.all(now_ns).max(1) as f64;
        self.spent.iter().map(move |(session, spent)| {
            let share = self.part(spent, now_ns) as f64 / all;
            (*session, share, seconds(spent.lost.sum_ns(now_ns)))
        })
    }

    /// Who has the largest share, and that share, if anybody has one.
    pub(super) fn most_used(&self, now_ns: u64) -> Option<(SessionKey, f64)> {
        self.shares(now_ns)
            .map(|(session, share, _)| (session, share))
            .filter(|(_, share)| *share > 0.0)
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn part(&self, spent: &Spent, now_ns: u64) -> u64 {
        if self.by_held {
            spent.held
        } else {
            spent.used.sum_ns(now_ns)
        }
    }

    fn all(&self, now_ns: u64) -> u64 {
        if self.by_held {
            let held = self.spent.values().map(|spent| spent.held);
            held.fold(0, u64::saturating_add)
        } else {
            self.used.sum_ns(now_ns)
        }
    }

    /// Who is to blame for how much of the lost time; nobody if nobody stands out.
    pub(super) fn charges(&self, now_ns: u64) -> Vec<Charge> {
        let lost_ns = self.lost_ns(now_ns);
        if !self.trusted || lost_ns == 0 {
            return Vec::new();
        }
        let usual = self
            .peers
            .usual(self.spent.values().map(|spent| self.measure(spent)));
        let all = self.all(now_ns);
        let far = |spent: &Spent| {
            let alone = self.spent.len() == 1 && self.peers.count() == 0;
            alone || peers::stands_out(self.measure(spent), usual)
        };
        self.spent
            .iter()
            .filter(|(_, spent)| far(spent))
            .filter_map(|(session, spent)| {
                let part = self.part(spent, now_ns);
                let share = part as f64 / all.max(part) as f64;
                let own_ns = spent.lost.sum_ns(now_ns);
                (part > 0).then(|| Charge {
                    session: *session,
                    blamed_s: seconds(lost_ns.saturating_sub(own_ns)) * share,
                    share,
                    since_ns: spent.since_ns,
                    evidence: self.evidence,
                    seen_ns: self.reported_ns,
                })
            })
            .collect()
    }
}

impl Ledger {
    /// Takes a report of usage in.
    pub(super) fn usage(&mut self, usage: &Usage) {
        self.advance(usage.at_ns);
        let now_ns = self.now_ns;
        let at = usize::from(usage.resource.0);
        // Of locks and pools it is known who is in whose way, which says more.
        if matches!(self.kinds.get(at), None | Some(Kind::Lock | Kind::Queue)) {
            return;
        }
        if self.kinds.get(at) == Some(&Kind::Cpu) {
            self.note_delays(usage);
        }
        if let Some(account) = self.accounts.get_mut(at) {
            account.report(usage, now_ns);
        }
    }

    /// A session's request is over, for every account.
    pub(super) fn close_usage(&mut self, session: SessionKey) {
        let now_ns = self.now_ns;
        for account in &mut self.accounts {
            account.close(session, now_ns);
        }
    }

    /// Forgets what sessions did that no tick lists.
    pub(super) fn forget_usage(&mut self) {
        let now_ns = self.now_ns;
        for account in &mut self.accounts {
            let sessions = &self.sessions;
            let gone: Vec<SessionKey> = account
                .spent
                .keys()
                .filter(|key| sessions.get(key).is_none_or(|known| known.state.is_none()))
                .copied()
                .collect();
            for session in gone {
                account.close(session, now_ns);
            }
            account.peers.forget(now_ns);
        }
    }

    /// How many sessions' use is known, over all accounts.
    pub(super) fn usage_count(&self) -> usize {
        let count = |account: &Account| account.spent.len();
        self.accounts.iter().map(count).sum()
    }

    /// Time that a session's present request lost to the use of others, nanoseconds.
    pub(super) fn lost_to_use_ns(&self, session: SessionKey) -> u64 {
        (0..)
            .zip(&self.accounts)
            .filter(|(r, account)| account.trusted && !self.is_blind(ResourceId(*r)))
            .filter_map(|(_, account)| account.spent(session))
            .map(|spent| spent.lost_ns)
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
