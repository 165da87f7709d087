//! Waits that end without a word: in an error that jumps past the end of the waiting function, a timeout, a kill. No probe tells
//! of them, so the kernel half would keep them open until their session ends; a look at who waits shows that they are over. Pure.

use atropos_common::record::{OpenKey, OpenValue};

use crate::engine::input::Snapshot;

/// A wait that is younger than a look was is not judged by it.
const SETTLED_NS: u64 = 1_000_000_000;

/// Whether a wait that the kernel half has open has ended: complete snapshots of its resource, taken well after its begin, do not
/// have it. `told` gives the session that a probe told of. Holds, and waits of resources that no snapshot shows, have not.
pub fn ended(
    (key, value): &(OpenKey, OpenValue),
    snapshots: &[Snapshot],
    told: impl Fn(u64) -> u64,
) -> bool {
    let session = told(key.session);
    let mut looks = snapshots
        .iter()
        .filter(|look| look.resource.0 == key.resource && look.complete)
        .filter(|look| value.since_ns.saturating_add(SETTLED_NS) < look.at_ns)
        .peekable();
    key.hold == 0
        && looks.peek().is_some()
        && looks.all(|look| look.waits.iter().all(|wait| wait.waiter.0 != session))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::input::{Evidence, InstanceKey, ResourceId, SessionKey, Wait};

    const SECOND_NS: u64 = 1_000_000_000;

    fn open(session: u64, resource: u16, hold: u8) -> (OpenKey, OpenValue) {
        let key = OpenKey {
            session,
            instance: 7,
            pid: 1,
            resource,
            hold,
            reserved: 0,
        };
        let value = OpenValue {
            since_ns: SECOND_NS,
            value: 0,
            depth: 1,
            tid: 1,
        };
        (key, value)
    }

    fn look(at_ns: u64, waiters: &[u64]) -> Snapshot {
        let wait = |waiter: &u64| Wait {
            waiter: SessionKey(*waiter),
            instance: InstanceKey(7),
            mode: 0,
            since_ns: SECOND_NS,
            blockers: Vec::new(),
        };
        Snapshot {
            at_ns,
            resource: ResourceId(0),
            evidence: Evidence::Walk,
            complete: true,
            waits: waiters.iter().map(wait).collect(),
            instances: Vec::new(),
        }
    }

    #[test]
    fn a_wait_that_a_later_look_does_not_show_has_ended() {
        let gone = |open, look| ended(&open, &[look], |told| told + 100);
        assert!(gone(open(1, 0, 0), look(3 * SECOND_NS, &[102])));
        assert!(
            !gone(open(1, 0, 0), look(3 * SECOND_NS, &[101])),
            "it still waits"
        );
        assert!(
            !gone(open(1, 0, 0), look(SECOND_NS + 1, &[])),
            "the look may be older than it"
        );
    }

    #[test]
    fn what_no_look_can_show_is_left_alone() {
        let gone = |open, looks: &[Snapshot]| ended(&open, looks, |told| told);
        assert!(!gone(open(1, 0, 0), &[]), "the resource is blind");
        assert!(
            !gone(open(1, 1, 0), &[look(3 * SECOND_NS, &[])]),
            "another resource"
        );
        assert!(!gone(open(1, 0, 1), &[look(3 * SECOND_NS, &[])]), "a hold");
        let partial = Snapshot {
            complete: false,
            ..look(3 * SECOND_NS, &[])
        };
        assert!(!gone(open(1, 0, 0), &[partial]));
    }
}
