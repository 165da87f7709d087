//! The kernel half against a process that does what it is told: every operation, exact loss, exits, forks, clean death.
//! Needs root (or the capabilities that `cargo xtask doctor` names) and a C compiler.
#![cfg(feature = "ebpf")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may panic, keep time, and say what they measured"
)]

mod attached;
#[path = "../common/mod.rs"]
mod common;
mod contained;
mod cost;
mod fixture;
mod governed;
mod levels;
mod loss;
mod orders;
mod replaced;
mod tasks;
mod usage;
mod usdt;
mod usdt_live;
mod wakes;

use atropos::kernel::{Counters, Decoded, Kernel, Ring, SiteAt, SiteLink};
use atropos_common::histogram::bucket_of;
use atropos_common::limits::Loss;
use atropos_common::op::Op;
use atropos_common::record::EventRecord;
use atropos_common::scope::Scope;
use atropos_common::site::{ArgSpec, Base, Cond, SiteSpec};
use common::wait_for;
use fixture::Fixture;

const ARG0: ArgSpec = ArgSpec {
    base: Base::Arg0 as u8,
    ..ArgSpec::NONE
};
const ARG1: ArgSpec = ArgSpec {
    base: Base::Arg1 as u8,
    ..ArgSpec::NONE
};
const ARG2: ArgSpec = ArgSpec {
    base: Base::Arg2 as u8,
    ..ArgSpec::NONE
};

/// The kernel half watching one fixture.
struct Bench {
    kernel: Kernel,
    ring: Ring,
    counters: Counters,
    target: Fixture,
    links: Vec<SiteLink>,
    next_cookie: u16,
}

impl Bench {
    fn start() -> Self {
        Self::with(Fixture::start())
    }

    fn with(target: Fixture) -> Self {
        let (kernel, ring, counters) = Kernel::load().unwrap_or_else(|e| panic!("{e:#}"));
        let mut bench = Self {
            kernel,
            ring,
            counters,
            target,
            links: Vec::new(),
            next_cookie: 1,
        };
        bench.watch(0);
        bench
    }

    fn watch(&mut self, flags: u32) {
        self.kernel
            .watch(self.target.pid(), Scope { flags, reserved: 0 })
            .unwrap();
    }

    fn probe(&mut self, function: &str, spec: SiteSpec) -> u16 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let offset = self.target.offset_of(function);
        let link = self
            .kernel
            .attach(&SiteAt {
                cookie,
                spec,
                file: self.target.program(),
                offset,
                semaphore_offset: None,
            })
            .unwrap_or_else(|e| panic!("{e:#}"));
        self.links.push(link);
        cookie
    }

    /// Passings of a probe that counted.
    fn hits(&self, cookie: u16) -> u64 {
        self.counters.hits().unwrap()[usize::from(cookie)]
    }

    fn records(&mut self) -> Vec<Decoded> {
        let mut all = Vec::new();
        self.ring.drain(|decoded| all.push(decoded));
        all
    }

    /// Drains until a record of this operation came.
    fn wait_for(&mut self, op: Op) -> EventRecord {
        let mut passed = self.records_until(op);
        passed.pop().unwrap().record
    }

    /// Drains until a record of this operation came, which is the last one then.
    fn records_until(&mut self, op: Op) -> Vec<Decoded> {
        let mut all = Vec::new();
        wait_for(&format!("a record of {op:?}"), || {
            all.extend(self.records());
            let last = all.iter().position(|decoded| decoded.op == op)?;
            all.truncate(last + 1);
            Some(())
        });
        all
    }
}

fn spec(op: Op, flags: u32) -> SiteSpec {
    SiteSpec {
        session: ARG0,
        instance: ARG1,
        value: ArgSpec::NONE,
        guard: ArgSpec::NONE,
        guard_value: 0,
        resource: 3,
        op: op as u8,
        cond: Cond::Always as u8,
        flags: flags | SiteSpec::KEEP,
    }
}

/// The same at a place that tells of a session alone.
fn of_session(op: Op, flags: u32) -> SiteSpec {
    SiteSpec {
        instance: ArgSpec::NONE,
        ..spec(op, flags)
    }
}

#[test]
fn a_request_is_timed_from_begin_to_end_and_numbered() {
    let mut bench = Bench::start();
    bench.probe("op_begin", of_session(Op::RequestBegin, SiteSpec::EMIT));
    bench.probe("op_end", of_session(Op::RequestEnd, SiteSpec::EMIT));
    for line in ["begin 5", "end 5", "begin 5", "end 5", "end 6"] {
        bench.target.tell(line);
    }
    let records = bench.records();
    let seen: Vec<_> = records
        .iter()
        .map(|d| (d.op, d.record.session, d.record.generation))
        .collect();
    let first = records[0].record.generation;
    let wanted = [
        (Op::RequestBegin, 5, first),
        (Op::RequestEnd, 5, first),
        (Op::RequestBegin, 5, first + 1),
        (Op::RequestEnd, 5, first + 1),
        (Op::RequestEnd, 6, 0),
    ];
    assert_eq!(seen, wanted);
    assert_ne!(first, 0);
    let latencies = bench.counters.latencies().unwrap();
    assert_eq!(latencies.iter().sum::<u64>(), 2);
    for pair in records[..4].chunks(2) {
        let took_ns = pair[1].record.at_ns - pair[0].record.at_ns;
        assert!(
            latencies[bucket_of(took_ns)] > 0,
            "the maps and the records tell the same time"
        );
    }
}

#[test]
fn a_request_that_began_before_the_sample_is_not_timed() {
    let mut bench = Bench::start();
    bench.probe("op_begin", of_session(Op::RequestBegin, SiteSpec::EMIT));
    bench.probe("op_end", of_session(Op::RequestEnd, 0));
    bench.target.tell("begin 5");
    let begun = bench.wait_for(Op::RequestBegin);
    bench.counters.start_sample(begun.at_ns + 1).unwrap();
    bench.target.tell("end 5");
    assert_eq!(bench.counters.latencies().unwrap().iter().sum::<u64>(), 0);
}

#[test]
fn a_wait_that_is_announced_again_keeps_its_first_begin() {
    let mut bench = Bench::start();
    bench.probe("op_wait", spec(Op::WaitBegin, SiteSpec::EMIT));
    bench.probe("op_woken", spec(Op::WaitEnd, SiteSpec::EMIT));
    bench.target.tell("wait 5 70");
    bench.target.tell("wait 5 70");
    let open = bench.kernel.open_intervals();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].1.since_ns, bench.records()[0].record.at_ns);
    bench.target.tell("woken 5 70");
    assert!(bench.kernel.open_intervals().is_empty());
}

#[test]
fn a_wait_that_nobody_asks_to_keep_is_told_and_not_kept() {
    let mut bench = Bench::start();
    let told = SiteSpec {
        flags: SiteSpec::EMIT,
        ..spec(Op::WaitBegin, 0)
    };
    bench.probe("op_wait", told);
    bench.target.tell("wait 5 70");
    assert_eq!(bench.records().len(), 1);
    assert!(bench.kernel.open_intervals().is_empty());
}

#[test]
fn a_reentrant_hold_ends_with_its_last_release() {
    let mut bench = Bench::start();
    bench.probe(
        "op_acquire",
        SiteSpec {
            value: ARG2,
            ..spec(Op::Acquire, 0)
        },
    );
    bench.probe("op_release", spec(Op::Release, 0));
    for line in ["acquire 5 70 2", "acquire 5 70 2", "release 5 70"] {
        bench.target.tell(line);
    }
    let open = bench.kernel.open_intervals();
    assert_eq!(open.len(), 1);
    assert_eq!(
        (open[0].1.value, open[0].1.depth),
        (2, 1),
        "the mode is kept, one level is left"
    );
    bench.target.tell("release 5 70");
    assert!(bench.kernel.open_intervals().is_empty());
}

#[test]
fn a_session_end_closes_the_session() {
    let mut bench = Bench::start();
    bench.probe("op_begin", of_session(Op::RequestBegin, 0));
    bench.probe("op_session_end", of_session(Op::SessionEnd, SiteSpec::EMIT));
    bench.target.tell("begin 5");
    let ended = bench.kernel.sessions()[0].1.generation;
    bench.target.tell("session_end 5");
    assert_eq!(bench.wait_for(Op::SessionEnd).session, 5);
    assert!(bench.kernel.sessions().is_empty());
    bench.target.tell("begin 5");
    let next = bench.kernel.sessions()[0].1.generation;
    assert_ne!(ended, next, "another session that is called the same");
}

#[test]
fn an_argument_behind_two_pointers_is_read_and_one_that_cannot_be_read_is_said() {
    let mut bench = Bench::start();
    // session = *(u32*)(*(arg0 + 24) + 4)
    let session = ArgSpec {
        add: [24, 4, 0, 0],
        base: Base::Arg0 as u8,
        steps: 2,
        deref: 0b11,
        size: 4,
    };
    bench.probe(
        "op_deref",
        SiteSpec {
            session,
            instance: ArgSpec::NONE,
            ..spec(Op::RequestBegin, SiteSpec::EMIT)
        },
    );
    bench.target.tell("deref 77");
    bench.target.tell("fault");
    let records = bench.records();
    assert_eq!(
        (records[0].record.session, records[0].record.flags),
        (77, 0)
    );
    assert_eq!(records[1].record.flags, EventRecord::ARG_UNKNOWN);
    assert_eq!(bench.counters.lost().unwrap()[Loss::Argument as usize], 1);
    assert_eq!(
        bench.kernel.session_count(),
        1,
        "the passing with an unknown session touched no map"
    );
}

#[test]
fn a_guard_lets_only_its_value_through() {
    let mut bench = Bench::start();
    let guarded = SiteSpec {
        guard: ARG2,
        guard_value: 9,
        cond: Cond::Equal as u8,
        ..spec(Op::Acquire, SiteSpec::EMIT)
    };
    let cookie = bench.probe("op_acquire", guarded);
    for line in ["acquire 5 70 8", "acquire 5 71 9"] {
        bench.target.tell(line);
    }
    let instances: Vec<u64> = bench.records().iter().map(|d| d.record.instance).collect();
    assert_eq!(instances, [71]);
    assert_eq!(
        bench.hits(cookie),
        2,
        "both passings cost, so both are counted"
    );
}

#[test]
fn a_process_out_of_scope_costs_nothing_and_is_not_seen() {
    let mut bench = Bench::start();
    let cookie = bench.probe("op_begin", spec(Op::RequestBegin, SiteSpec::EMIT));
    bench.target.tell("begin 5");
    assert_eq!(bench.records().len(), 1);
    bench.kernel.forget(bench.target.pid());
    bench.target.tell("begin 5");
    assert!(bench.records().is_empty());
    assert_eq!(bench.hits(cookie), 1);
}

#[test]
fn dropping_a_link_detaches_its_site() {
    let mut bench = Bench::start();
    let cookie = bench.probe("op_begin", spec(Op::RequestBegin, 0));
    bench.target.tell("begin 5");
    assert_eq!(bench.hits(cookie), 1);
    bench.links.clear();
    // A program that a test beside this one starts has a copy of the link for a moment.
    wait_for("the site to be free", || {
        let before = bench.hits(cookie);
        bench.target.tell("begin 5");
        (bench.hits(cookie) == before).then_some(())
    });
}

#[test]
fn programs_stay_within_the_committed_verifier_baseline() {
    let (mut kernel, _ring, _counters) = Kernel::load().unwrap_or_else(|e| panic!("{e:#}"));
    let _wakes = kernel.wakes().unwrap_or_else(|e| panic!("{e:#}"));
    let _desk = kernel.orders().unwrap_or_else(|e| panic!("{e:#}"));
    let baseline: serde_json::Value =
        serde_json::from_str(include_str!("../../../atropos-ebpf/verify.json"))
            .expect("verify.json is valid JSON");
    for stat in kernel.program_stats() {
        let committed = baseline[&stat.name]
            .as_u64()
            .unwrap_or_else(|| panic!("no baseline for {}", stat.name));
        // Kernels and compilers differ a little; a tenth more than the baseline wants a look and a new baseline.
        let limit = committed + committed / 10;
        let count = u64::from(stat.verified_instructions);
        assert!(
            count <= limit,
            "{}: {count} verified instructions, baseline {committed}",
            stat.name
        );
        println!(
            "{}: {count} verified instructions, baseline {committed}",
            stat.name
        );
    }
}
