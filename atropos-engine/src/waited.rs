//! When a session could not go on for the sake of others: it stood in front of a lock or in a line, or no processor was free.
//!
//! Whoever holds something and waits is a victim; what it held meanwhile is the fault of those that it waited for. When they
//! let it go on it holds that still, for a moment, and waits for nobody: it must not be taken for the cause of the time in
//! which it was a victim. So time in the way is counted less what the session itself lost ([`Ledger::own_ns`]).

use super::input::{ResourceId, SessionKey, Usage};
use super::ledger::Ledger;
use super::settings::Kind;
use super::window::scale;

/// Spans kept apart. Where there were more, the oldest are kept as their sum: asked of is mostly the latest.
const KEPT: usize = 4;

/// What follows at once is one span up to this length. One second: time that was lost here and there in a longer one would
/// count where it was not.
const LONGEST_NS: u64 = 1_000_000_000;

/// What a session lost to others lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waited {
    /// In the order in which they were told; empty ones in front.
    spans: [Span; KEPT],
}

/// A time of which all or some was lost.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "the postfix is the unit")]
struct Span {
    begin_ns: u64,
    end_ns: u64,
    lost_ns: u64,
}

impl Span {
    /// How much was lost between two moments; evenly, if not all was.
    fn between_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let inside_ns = (self.end_ns.min(to_ns)).saturating_sub(self.begin_ns.max(from_ns));
        let length_ns = self.end_ns.saturating_sub(self.begin_ns);
        if inside_ns == length_ns || self.lost_ns == length_ns {
            return self.lost_ns.min(inside_ns);
        }
        scale(self.lost_ns, inside_ns, length_ns)
    }

    /// Both as one.
    fn with(self, next: Self) -> Self {
        Self {
            begin_ns: self.begin_ns.min(next.begin_ns),
            end_ns: self.end_ns.max(next.end_ns),
            lost_ns: self.lost_ns.saturating_add(next.lost_ns),
        }
    }
}

impl Waited {
    /// So much of a time was lost.
    pub(super) fn add(&mut self, begin_ns: u64, end_ns: u64, lost_ns: u64) {
        let next = Span {
            begin_ns,
            end_ns,
            lost_ns,
        };
        if lost_ns == 0 || end_ns <= begin_ns {
            return;
        }
        let latest = &mut self.spans[KEPT - 1];
        let both = latest.with(next);
        if begin_ns <= latest.end_ns && both.end_ns - both.begin_ns <= LONGEST_NS {
            *latest = both;
            return;
        }
        let [first, second, ..] = &mut self.spans;
        if first.lost_ns > 0 && first.end_ns.saturating_add(LONGEST_NS) >= second.begin_ns {
            *second = first.with(*second);
        }
        self.spans.rotate_left(1);
        self.spans[KEPT - 1] = next;
    }

    fn between_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let spans = self.spans.iter();
        spans.map(|span| span.between_ns(from_ns, to_ns)).sum()
    }
}

impl Ledger {
    /// Whether who waits for it is kept from going on by others: a device or a client does what the session itself wants.
    pub(super) fn keeps_waiting(&self, resource: ResourceId) -> bool {
        let kind = self.kinds.get(usize::from(resource.0));
        kind.is_none_or(|kind| matches!(kind, Kind::Lock | Kind::Queue))
    }

    /// Takes in who was ready and found no processor: whatever took it, it was not the session that lacked it.
    pub(super) fn note_delays(&mut self, usage: &Usage) {
        let end_ns = usage.at_ns.min(self.now_ns);
        for one in &usage.sessions {
            // A delay is told when it is over, and can be longer than what the report covers.
            let lost_ns = one.lost_ns.min(end_ns);
            let begin_ns = end_ns.saturating_sub(lost_ns.max(usage.covered_ns));
            if let Some(known) = self.sessions.get_mut(&one.session) {
                known.waited.add(begin_ns, end_ns, lost_ns);
            }
        }
    }

    /// How much of the time between two moments a session lost to others, as far as that is over, nanoseconds.
    pub(super) fn waited_between_ns(&self, session: SessionKey, from_ns: u64, to_ns: u64) -> u64 {
        let known = self.sessions.get(&session);
        known.map_or(0, |known| known.waited.between_ns(from_ns, to_ns))
    }

    /// Time since `since_ns` in which the target moved and the session could go on itself, but for what it waits for at
    /// present, nanoseconds.
    pub(super) fn own_ns(&self, session: SessionKey, since_ns: u64) -> u64 {
        self.moving_ns(since_ns)
            .saturating_sub(self.waited_between_ns(session, since_ns, self.now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::input::{Event, EventKind, InstanceKey};
    use crate::testkit::{MS, RESOURCE, settings};

    const S: u64 = 1_000_000_000;

    /// A second of which a session waited for `kind` from 200 to 500 ms.
    fn own_ns(kind: Kind) -> u64 {
        let mut resources = settings().resources;
        resources[0].kind = kind;
        let mut ledger = Ledger::new(&resources, S);
        let (resource, instance) = (RESOURCE, InstanceKey(7));
        for (at_ms, kind) in [
            (200, EventKind::WaitBegin { resource, instance }),
            (500, EventKind::WaitEnd { resource, instance }),
        ] {
            ledger.event(&Event {
                at_ns: at_ms * MS,
                session: SessionKey(1),
                kind,
            });
        }
        ledger.advance(S);
        ledger.own_ns(SessionKey(1), 0)
    }

    #[test]
    fn a_wait_for_others_is_not_ones_own_time_and_one_for_a_device_is() {
        for kind in [Kind::Lock, Kind::Queue] {
            assert_eq!(own_ns(kind), 700 * MS);
        }
        assert_eq!(own_ns(Kind::Io), 1000 * MS);
    }

    #[test]
    fn of_a_part_of_a_span_its_share_was_lost() {
        let mut waited = Waited::default();
        waited.add(0, S, S / 2);
        assert_eq!(waited.between_ns(S / 2, 2 * S), S / 4);
    }

    #[test]
    fn each_wait_counts_where_it_was() {
        let mut waited = Waited::default();
        for n in 1..5 {
            waited.add(n * 10 * S, n * 10 * S + S, S);
        }
        assert_eq!(waited.between_ns(0, 50 * S), 4 * S);
        assert_eq!(waited.between_ns(30 * S + S / 2, 50 * S), S + S / 2);
        assert_eq!(waited.between_ns(42 * S, 50 * S), 0);
    }

    #[test]
    fn of_many_waits_in_a_row_none_is_forgotten_and_of_those_far_apart_the_latest_are_known() {
        let (mut near, mut far) = (Waited::default(), Waited::default());
        for n in 0..20 {
            near.add(n * S, n * S + S / 10, S / 10);
            far.add(n * 10 * S, n * 10 * S + S, S);
        }
        assert_eq!(near.between_ns(0, 20 * S), 2 * S);
        assert_eq!(far.between_ns(0, 200 * S), KEPT as u64 * S);
    }

    #[test]
    fn what_was_lost_here_and_there_is_spread_over_a_second_at_most() {
        let mut waited = Waited::default();
        for n in 0..200 {
            let lost_ns = if n < 180 { 0 } else { S / 20 };
            waited.add(n * S / 20, (n + 1) * S / 20, lost_ns.max(1000));
        }
        assert!(waited.between_ns(9 * S, 10 * S) > S * 9 / 10);
        assert!(waited.between_ns(7 * S, 8 * S) < S / 10);
    }
}
