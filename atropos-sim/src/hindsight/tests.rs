//! Small recorded incidents, and what controllers make of them.

use atropos_engine::input::{
    Activity, BlockKind, Blocker, Event, EventKind, Evidence, InstanceKey, InstanceName,
    OrderReport, RequestStats, ResourceId, SessionKey, SessionState, Snapshot, Tick, Wait,
};
use atropos_engine::settings::{Class, Kind, Mode, Rerun, Resource, Rung, Tuning};

use super::*;

const MS: u64 = 1_000_000;
const LOCK: ResourceId = ResourceId(0);
const TABLE: InstanceKey = InstanceKey(7);

fn settings() -> Settings {
    Settings {
        preset: "test".to_owned(),
        resources: vec![Resource {
            name: "lock".to_owned(),
            kind: Kind::Lock,
            modes: Vec::new(),
        }],
        classes: vec![Class {
            name: "backup".to_owned(),
            protected: true,
            protected_queued: false,
            undo: 0.0,
        }],
        ladder: vec![Rung {
            name: "KILL".to_owned(),
            busy: true,
            idle: true,
            deadline_ns: 1000 * MS,
        }],
        slo: Slo {
            percentile: 99.0,
            limit: SloLimit::Absolute { ns: 50 * MS },
        },
        protected_principals: Vec::new(),
        mode: Mode::Enforce,
        tuning: Tuning::default(),
        rerun: Rerun::default(),
    }
}

fn session(key: u64, since_ms: u64) -> SessionState {
    SessionState {
        request: since_ms,
        principal: "app".to_owned(),
        ..SessionState::new(SessionKey(key), Activity::Busy, since_ms * MS)
    }
}

fn tick(at_ms: u64, sessions: Vec<SessionState>) -> Input {
    Input::Tick(Tick {
        at_ns: at_ms * MS,
        requests: RequestStats::default(),
        sessions,
        blind: Vec::new(),
    })
}

/// Each of the waiters waits for `holder` since then.
fn snapshot(at_ms: u64, holder: u64, waiters: &[(u64, u64)]) -> Input {
    let wait = |(waiter, since_ms): &(u64, u64)| Wait {
        waiter: SessionKey(*waiter),
        instance: TABLE,
        mode: 0,
        since_ns: since_ms * MS,
        blockers: vec![Blocker {
            session: SessionKey(holder),
            kind: BlockKind::Granted,
            mode: 0,
            since_ns: 0,
        }],
    };
    Input::Snapshot(Snapshot {
        at_ns: at_ms * MS,
        resource: LOCK,
        evidence: Evidence::Walk,
        complete: true,
        waits: waiters.iter().map(wait).collect(),
        instances: vec![InstanceName {
            instance: TABLE,
            name: "table t".to_owned(),
        }],
    })
}

/// Session 1 has held the table since the beginning; 2, 3 and 4 come after 1,000 ms and wait, until 4,000 ms.
fn stall() -> Vec<Input> {
    let mut inputs = Vec::new();
    for at_ms in (0..4000).step_by(50) {
        let mut sessions = vec![session(1, 0)];
        if at_ms >= 1000 {
            sessions.extend((2..=4).map(|key| session(key, 1000)));
            inputs.push(snapshot(at_ms, 1, &[(2, 1000), (3, 1000), (4, 1000)]));
        }
        inputs.push(tick(at_ms, sessions));
    }
    inputs
}

fn hindsight(name: &str) -> Hindsight {
    Hindsight::new(name, &settings(), None).unwrap()
}

/// When and whom the controller would have ended, in milliseconds.
fn would(name: &str, inputs: &[Input]) -> Vec<(u64, u64, String)> {
    let mut hindsight = hindsight(name);
    let lines = inputs.iter().flat_map(|input| hindsight.handle(input));
    lines
        .filter(|line| line.side == Side::Would)
        .filter_map(|line| match line.what {
            What::Act(act) => Some((line.at_ns / MS, act.id, act.how)),
            What::Answer { .. } => None,
        })
        .collect()
}

#[test]
fn the_root_is_ended_once_and_its_waiters_count_as_served() {
    let ended = |name| would(name, &stall());
    assert_eq!(
        ended("root-blocker"),
        [(1100, 1, "end statement".to_owned())]
    );
    // Ten objectives after their beginning the waiters would have been next, had session 1 not been ended before.
    assert_eq!(ended("timeout-any"), [(550, 1, "end statement".to_owned())]);
    assert_eq!(ended("pt-kill"), [(1000, 1, "end statement".to_owned())]);
    assert_eq!(ended("pg-terminate"), [(1000, 1, "end session".to_owned())]);
}

#[test]
fn a_lock_timeout_ends_the_waits_and_says_that_they_waited() {
    let mut hindsight = hindsight("timeout-victim");
    for input in stall() {
        hindsight.handle(&input);
    }
    let counts = hindsight.counts();
    assert_eq!((counts.would, counts.would_of_waiting), (3, 3));
}

#[test]
fn the_reason_names_what_stands_behind_a_task() {
    let mut hindsight = hindsight("root-blocker");
    let lines: Vec<Line> = stall()
        .iter()
        .flat_map(|input| hindsight.handle(input))
        .filter(|line| line.side == Side::Would)
        .collect();
    let [
        Line {
            what: What::Act(act),
            ..
        },
    ] = lines.as_slice()
    else {
        panic!("{lines:?}");
    };
    assert_eq!(act.why, "running 1.10 s, 3 behind it at table t");
    assert!(!act.waits);
}

#[test]
fn holders_known_from_events_are_in_the_way_as_listed_ones_are() {
    let event = |at_ms: u64, key, kind| {
        Input::Event(Event {
            at_ns: at_ms * MS,
            session: SessionKey(key),
            kind,
        })
    };
    let (resource, instance) = (LOCK, TABLE);
    let acquire = EventKind::Acquire {
        resource,
        instance,
        mode: 0,
    };
    let mut inputs: Vec<Input> = stall()
        .into_iter()
        .filter(|input| !matches!(input, Input::Snapshot(_)))
        .collect();
    inputs.insert(1, event(10, 1, acquire));
    inputs.insert(
        23,
        event(1060, 2, EventKind::WaitBegin { resource, instance }),
    );
    assert_eq!(
        would("root-blocker", &inputs),
        [(1200, 1, "end statement".to_owned())]
    );
    // Twice taken and once let go is still held; let go altogether, nobody is in the way.
    let release = EventKind::Release { resource, instance };
    inputs.insert(2, event(20, 1, acquire));
    inputs.insert(3, event(30, 1, release));
    assert_eq!(would("root-blocker", &inputs).len(), 1);
    inputs.insert(4, event(40, 1, release));
    assert!(would("root-blocker", &inputs).is_empty());
}

#[test]
fn what_is_protected_is_left_by_the_papers_rules() {
    assert_eq!(would("paper", &stall()).len(), 1);
    let mut inputs = stall();
    for input in &mut inputs {
        if let Input::Tick(tick) = input {
            tick.sessions[0].class = Some(0);
        }
    }
    assert!(would("paper", &inputs).is_empty());
}

#[test]
fn the_like_of_a_runaway_is_refused_and_told_once() {
    let statement = |state: SessionState| SessionState {
        fingerprint: 99,
        digest: "select big".to_owned(),
        ..state
    };
    let mut inputs = Vec::new();
    for at_ms in (0..2000).step_by(50) {
        let mut sessions = vec![statement(session(1, 0))];
        if at_ms >= 1000 {
            sessions.push(statement(session(2, 1000)));
            sessions.push(statement(session(3, at_ms)));
        }
        inputs.push(tick(at_ms, sessions));
    }
    let mut hindsight = hindsight("tidb-runaway");
    let lines: Vec<Line> = inputs
        .iter()
        .flat_map(|input| hindsight.handle(input))
        .collect();
    let acts: Vec<&str> = lines
        .iter()
        .filter_map(|line| match &line.what {
            What::Act(act) => Some(act.how.as_str()),
            What::Answer { .. } => None,
        })
        .collect();
    assert_eq!(acts, ["end statement", "refuse"]);
    // Session 2 once, session 3 with a new request at each tick.
    assert_eq!(hindsight.counts().refused, 21);
}

/// The stall, and what the agent did: its order for session 1 is accepted, and all go on.
fn mended() -> Vec<Input> {
    let mut engine = atropos_engine::Engine::new(settings());
    let mut effects = Vec::new();
    let mut inputs = Vec::new();
    for input in stall() {
        engine.handle(&input, &mut effects);
        let at_ns = input.at_ns();
        inputs.push(input);
        let order = effects.iter().find_map(|effect| match effect {
            atropos_engine::record::Effect::Cancel(order) => Some(order.order),
            _ => None,
        });
        if let Some(order) = order {
            inputs.push(Input::Outcome(OrderReport {
                at_ns: at_ns + MS,
                order,
                rung: 0,
                result: OrderResult::Accepted,
            }));
            break;
        }
    }
    let at_ms = inputs.last().unwrap().at_ns() / MS;
    for at_ms in (at_ms + 50..at_ms + 1000).step_by(50) {
        inputs.push(snapshot(at_ms, 1, &[]));
        inputs.push(tick(at_ms, Vec::new()));
    }
    inputs
}

#[test]
fn the_engine_as_it_was_decides_what_was_done() {
    let mut hindsight = hindsight("atropos");
    let lines: Vec<Line> = mended()
        .iter()
        .flat_map(|input| hindsight.handle(input))
        .collect();
    let acts = |side| {
        let of_side = lines.iter().filter(move |line| line.side == side);
        of_side
            .filter(|line| matches!(line.what, What::Act(_)))
            .map(|line| (line.at_ns, line.what.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(acts(Side::Done).len(), 1);
    assert_eq!(acts(Side::Done), acts(Side::Would));
    assert_eq!((hindsight.counts().done, hindsight.counts().would), (1, 1));
}

#[test]
fn with_another_objective_the_engine_decides_earlier_later_or_not_at_all() {
    let orders = |ms: u64| {
        let slo = Slo {
            percentile: 99.0,
            limit: SloLimit::Absolute { ns: ms * MS },
        };
        let mut hindsight = Hindsight::new("atropos", &settings(), Some(slo)).unwrap();
        for input in mended() {
            hindsight.handle(&input);
        }
        hindsight.counts()
    };
    assert_eq!((orders(50).would, orders(50).done), (1, 1));
    assert_eq!((orders(10_000).would, orders(10_000).done), (0, 1));
}

#[test]
fn an_order_that_was_not_given_is_written_down_and_not_repeated() {
    // The recording has no answer: the engine was never asked, for instance because its objective was another one.
    let mut lax = settings();
    lax.slo.limit = SloLimit::Absolute { ns: 60_000 * MS };
    let strict = Slo {
        percentile: 99.0,
        limit: SloLimit::Absolute { ns: 50 * MS },
    };
    let mut hindsight = Hindsight::new("atropos", &lax, Some(strict)).unwrap();
    for input in stall() {
        hindsight.handle(&input);
    }
    assert_eq!((hindsight.counts().done, hindsight.counts().would), (0, 1));
}

#[test]
fn what_cannot_be_judged_says_why() {
    let fails = |name: &str, settings: &Settings| {
        let failed = Hindsight::new(name, settings, None).err();
        failed.map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(fails("nobody", &settings()).contains("no controller is called `nobody`"));
    assert!(fails("breakwater", &settings()).contains("door"));
    assert!(fails("oracle", &settings()).contains("beforehand"));
    let mut relative = settings();
    relative.slo.limit = SloLimit::Relative {
        above: 0.2,
        floor_ns: MS,
    };
    assert!(fails("pt-kill", &relative).contains("--slo"));
    assert_eq!(fails("atropos", &relative), "");
}
