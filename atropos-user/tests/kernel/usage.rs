//! What sessions use of a store with limited room, and what is proved of who drove out whose units.

use atropos_common::op::Op;
use atropos_common::record::{UsageKey, UsageValue};
use atropos_common::site::SiteSpec;

use super::{ARG1, ARG2, Bench, of_session, spec};

/// A store: "wait S U" begins to bring unit U in for session S and "woken S U" ends it, "acquire S U N" brings N units in,
/// "release S U" drives U out.
fn store(flags: u32) -> Bench {
    let mut bench = Bench::start();
    bench.probe("op_wait", spec(Op::FetchBegin, flags));
    bench.probe("op_woken", spec(Op::FetchEnd, flags));
    let used = SiteSpec {
        value: ARG2,
        ..spec(Op::Use, 0)
    };
    bench.probe("op_acquire", used);
    bench.probe("op_release", spec(Op::Evict, 0));
    bench
}

impl Bench {
    /// Carries out several commands.
    fn tell_all(&mut self, lines: &[&str]) {
        for line in lines {
            self.target.tell(line);
        }
    }

    /// Sums of a session.
    fn sums(&self, session: u64) -> UsageValue {
        let key = UsageKey {
            session,
            pid: self.target.pid(),
            resource: 3,
            reserved: 0,
        };
        let mut uses = self.kernel.uses().into_iter();
        uses.find(|(known, _)| *known == key)
            .map(|(_, value)| value)
            .unwrap_or_default()
    }
}

#[test]
fn to_bring_in_again_what_another_drove_out_is_time_lost_and_nothing_else_is() {
    let mut bench = store(SiteSpec::EMIT);
    bench.tell_all(&["wait 1 70", "woken 1 70", "acquire 1 70 4"]);
    bench.tell_all(&["wait 2 80", "release 2 70", "woken 2 80", "acquire 2 80 1"]);
    assert_eq!(bench.sums(1).lost_ns, 0, "the first time is nobody's fault");
    bench.records();
    bench.tell_all(&["wait 1 70", "woken 1 70"]);
    let at: Vec<u64> = bench.records().iter().map(|d| d.record.at_ns).collect();
    let sums = bench.sums(1);
    assert_eq!(sums.lost_ns, at[1] - at[0]);
    assert_eq!((sums.used, sums.evicted, sums.fetch_ns), (4, 0, 0));
    let culprit = bench.sums(2);
    assert_eq!((culprit.used, culprit.evicted, culprit.lost_ns), (1, 1, 0));
    bench.tell_all(&["wait 1 70", "woken 1 70"]);
    assert_eq!(bench.sums(1).lost_ns, sums.lost_ns, "nobody drove it out");
}

#[test]
fn what_a_session_took_for_itself_and_gave_up_was_never_there_for_others() {
    let mut bench = store(0);
    bench.tell_all(&["wait 2 80", "woken 2 80", "release 2 80"]);
    bench.tell_all(&["wait 1 80", "woken 1 80"]);
    assert_eq!((bench.sums(1).lost_ns, bench.sums(2).evicted), (0, 0));
    // Of what was there before the probes nobody knows whose it was.
    bench.tell_all(&["release 2 90", "wait 1 90", "woken 1 90"]);
    assert_eq!((bench.sums(1).lost_ns, bench.sums(2).evicted), (0, 0));
    // Whoever drives something out of its own accord brings it in again at its own cost.
    bench.tell_all(&["release 1 90", "wait 1 90", "woken 1 90"]);
    assert_eq!(bench.sums(1).lost_ns, 0);
    assert!(bench.records().is_empty(), "nothing went through the ring");
}

#[test]
fn what_was_known_before_the_probes_were_away_proves_nothing() {
    let mut bench = store(0);
    bench.tell_all(&["wait 1 90", "woken 1 90", "release 2 90"]);
    bench.tell_all(&["wait 1 70", "woken 1 70", "release 2 70", "wait 1 70"]);
    bench
        .counters
        .forget_units(super::common::clock_ns())
        .unwrap();
    bench.tell_all(&["woken 1 70"]);
    assert_eq!(bench.sums(1).lost_ns, 0, "it began before");
    bench.tell_all(&["wait 1 90", "woken 1 90"]);
    assert_eq!(bench.sums(1).lost_ns, 0, "it was driven out before");
    bench.tell_all(&["release 2 90", "wait 1 90", "woken 1 90"]);
    assert!(bench.sums(1).lost_ns > 0, "what came since does");
}

#[test]
fn a_unit_without_a_name_proves_nothing() {
    let mut bench = store(0);
    bench.tell_all(&[
        "wait 1 0",
        "woken 1 0",
        "release 2 0",
        "wait 1 0",
        "woken 1 0",
    ]);
    assert_eq!(bench.sums(1).lost_ns, 0);
}

#[test]
fn sums_of_sessions_that_are_gone_are_forgotten() {
    let mut bench = store(0);
    bench.tell_all(&["acquire 1 70 4", "acquire 2 70 4"]);
    bench.kernel.close_uses(|(key, _)| key.session == 1);
    let left: Vec<u64> = bench.kernel.uses().iter().map(|(k, _)| k.session).collect();
    assert_eq!(left, [2]);
}

#[test]
fn a_request_tells_how_much_it_has_done_and_has_to_do() {
    let mut bench = Bench::start();
    let plain = |op| of_session(op, 0);
    bench.probe("op_begin", plain(Op::RequestBegin));
    bench.probe("op_end", plain(Op::RequestEnd));
    let told = |op| SiteSpec {
        value: ARG1,
        ..plain(op)
    };
    bench.probe("op_wait", told(Op::Progress));
    bench.probe("op_woken", told(Op::Work));
    let work = |bench: &Bench| {
        let (_, session) = bench.kernel.sessions()[0];
        (session.done, session.work)
    };
    bench.tell_all(&["wait 5 9", "begin 5", "woken 5 100", "wait 5 30"]);
    assert_eq!(work(&bench), (30, 100));
    bench.tell_all(&["end 5", "wait 5 60", "begin 5"]);
    assert_eq!(work(&bench), (0, 0), "another request");
}
