use super::super::Engine;
use super::super::input::{
    Activity, Beyond, Excess, Input, OrderReport, OrderResult, SessionKey, SessionState,
};
use super::super::record::{Decision, Effect, Order, OutcomeKind, PassedOver};
use super::super::settings::{Class, Settings};
use super::super::testkit::{MS, busy, granted, settings, snapshot, tick, wait};

/// A session that has been idle in a transaction since the beginning.
fn idle(key: u64) -> SessionState {
    SessionState {
        activity: Activity::IdleInTransaction,
        transaction_since_ns: Some(MS),
        ..busy(key, 1)
    }
}

fn beyond(key: u64, value: u64, open_ms: u64) -> Beyond {
    Beyond {
        session: SessionKey(key),
        limit: "old_snapshot".to_owned(),
        value,
        most: 100,
        may_end: true,
        open_ns: open_ms * MS,
        longest_ns: 1000 * MS,
    }
}

/// An engine at a server, tick by tick.
struct World {
    engine: Engine,
    now_ms: u64,
    effects: Vec<Effect>,
}

impl World {
    fn new(settings: Settings) -> Self {
        Self {
            engine: Engine::new(settings),
            now_ms: 10_000,
            effects: Vec::new(),
        }
    }

    fn handle(&mut self, input: &Input) {
        self.engine.handle(input, &mut self.effects);
    }

    /// So many ticks at which these sessions are there and these are beyond a limit.
    fn run(&mut self, ticks: u32, sessions: &[SessionState], beyond: &[Beyond]) {
        for _ in 0..ticks {
            self.now_ms += 50;
            if !beyond.is_empty() {
                self.handle(&Input::Excess(Excess {
                    at_ns: self.now_ms * MS,
                    sessions: beyond.to_vec(),
                }));
            }
            self.handle(&Input::Tick(tick(self.now_ms, sessions.to_vec())));
        }
    }

    fn answer(&mut self, order: u64, result: OrderResult) {
        self.handle(&Input::Outcome(OrderReport {
            at_ns: self.now_ms * MS,
            order,
            rung: 0,
            result,
        }));
    }

    fn orders(&self) -> Vec<&Order> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Cancel(order) => Some(order),
                _ => None,
            })
            .collect()
    }

    fn ended(&self) -> Vec<u64> {
        self.orders().iter().map(|order| order.task.id).collect()
    }

    fn decisions(&self) -> Vec<&Decision> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Decision(decision) => Some(decision.as_ref()),
                _ => None,
            })
            .collect()
    }

    fn outcomes(&self) -> Vec<OutcomeKind> {
        let outcome = |effect: &Effect| match effect {
            Effect::Outcome(outcome) => Some(outcome.result),
            _ => None,
        };
        self.effects.iter().filter_map(outcome).collect()
    }
}

/// Settings with a class 1 that is protected.
fn guarded() -> Settings {
    let mut settings = settings();
    settings.classes.push(Class {
        name: "backup".to_owned(),
        protected: true,
        protected_queued: false,
        undo: 0.0,
    });
    settings.protected_principals.push("boss".to_owned());
    settings
}

#[test]
fn a_session_beyond_a_limit_is_ended_once_and_has_released_when_it_is_gone() {
    let mut world = World::new(settings());
    world.run(1, &[idle(1), busy(2, 9_000)], &[beyond(1, 101, 1001)]);
    assert!(world.decisions().is_empty(), "one look can be torn");
    world.run(1, &[idle(1), busy(2, 9_000)], &[beyond(1, 101, 1001)]);
    assert_eq!(world.ended(), [1]);
    let decision = world.decisions()[0];
    let limit = decision.limit.as_ref().unwrap();
    assert_eq!((limit.value, limit.most), (101, 100));
    assert!(
        decision.summary.contains("old_snapshot is 101, above 100"),
        "{}",
        decision.summary
    );
    world.answer(1, OrderResult::Accepted);
    world.run(10, &[idle(1), busy(2, 9_000)], &[beyond(1, 101, 1001)]);
    assert!(world.outcomes().is_empty(), "it is still there");
    world.run(20, &[busy(2, 9_000)], &[]);
    assert_eq!(world.outcomes(), [OutcomeKind::Released]);
    assert_eq!(world.ended(), [1]);
}

#[test]
fn whoever_is_within_its_limit_is_left_alone_whatever_is_told() {
    let mut world = World::new(settings());
    let within = [beyond(1, 100, 5000), beyond(2, 500, 1000)];
    world.run(10, &[idle(1), idle(2)], &within);
    let not_for_it = Beyond {
        may_end: false,
        ..beyond(1, 500, 5000)
    };
    world.run(10, &[idle(1)], &[not_for_it]);
    assert!(world.decisions().is_empty());
    // Told of another moment.
    world.handle(&Input::Excess(Excess {
        at_ns: world.now_ms * MS,
        sessions: vec![beyond(1, 500, 5000)],
    }));
    world.run(10, &[idle(1)], &[]);
    assert!(world.decisions().is_empty());
}

#[test]
fn the_protected_are_spared_and_it_is_said_once() {
    let mut world = World::new(guarded());
    let backup = SessionState {
        class: Some(1),
        ..idle(1)
    };
    let boss = SessionState {
        principal: "boss".to_owned(),
        ..idle(2)
    };
    let all = [beyond(1, 500, 5000), beyond(2, 400, 5000)];
    world.run(10, &[backup, boss], &all);
    assert!(world.orders().is_empty());
    let said: Vec<_> = world
        .decisions()
        .iter()
        .map(|decision| decision.candidates[0].passed_over.clone())
        .collect();
    assert_eq!(
        said,
        [
            Some(PassedOver::ProtectedClass),
            Some(PassedOver::ProtectedPrincipal)
        ]
    );
}

#[test]
fn a_victim_the_agent_itself_and_whoever_was_asked_to_stop_are_left_alone() {
    let mut world = World::new(settings());
    let mut sessions = vec![busy(1, 1), idle(2), busy(3, 1), idle(4)];
    sessions[1].own = true;
    sessions[2].killed = true;
    sessions[3].since_ns = 10_000 * MS;
    let blocked = wait(1, 7, 9_990, &[granted(5, 9_000)]);
    sessions.push(busy(5, 9_000));
    let all = [1, 2, 3, 4].map(|key| beyond(key, 500, 5000));
    for _ in 0..10 {
        world.handle(&Input::Snapshot(snapshot(
            world.now_ms + 50,
            vec![blocked.clone()],
        )));
        world.run(1, &sessions, &all);
        assert!(
            world.orders().iter().all(|order| order.task.id == 5),
            "{:?}",
            world.orders()
        );
        assert!(
            world
                .decisions()
                .iter()
                .all(|decision| decision.limit.is_none())
        );
    }
}

#[test]
fn a_ladder_without_a_rung_that_ends_sessions_ends_none_for_a_limit() {
    let mut settings = settings();
    settings.ladder[0].idle = false;
    let mut world = World::new(settings);
    world.run(10, &[busy(1, 1)], &[beyond(1, 500, 5000)]);
    assert!(world.orders().is_empty());
    assert_eq!(
        world.decisions()[0].candidates[0].passed_over,
        Some(PassedOver::NoRung)
    );
}

#[test]
fn the_session_is_ended_and_not_its_statement() {
    let mut settings = settings();
    let mut gentle = settings.ladder[0].clone();
    (gentle.name, gentle.idle) = ("cancel".to_owned(), false);
    settings.ladder.insert(0, gentle);
    let mut world = World::new(settings);
    world.run(2, &[busy(1, 1)], &[beyond(1, 500, 5000)]);
    assert_eq!(world.orders()[0].rung_name, "kill");
    assert_eq!(world.orders()[0].rung, 1);
}

#[test]
fn one_goes_at_a_time_the_furthest_first() {
    let mut world = World::new(settings());
    let all = [beyond(1, 300, 5000), beyond(2, 400, 5000)];
    world.run(5, &[idle(1), idle(2)], &all);
    assert_eq!(world.ended(), [2]);
    world.answer(1, OrderResult::Accepted);
    world.run(30, &[idle(1)], &all[..1]);
    assert_eq!(world.ended(), [2, 1]);
}

#[test]
fn nobody_is_ended_while_somebody_who_stays_has_as_much() {
    let backup = || SessionState {
        class: Some(1),
        ..idle(2)
    };
    let not_for_it = |value| Beyond {
        may_end: false,
        ..beyond(2, value, 5000)
    };
    for stays in [not_for_it(500), beyond(2, 500, 5000), beyond(2, 500, 10)] {
        let mut world = World::new(guarded());
        world.run(20, &[idle(1), backup()], &[beyond(1, 500, 5000), stays]);
        assert!(world.orders().is_empty());
    }
    let mut world = World::new(guarded());
    let all = [beyond(1, 500, 5000), not_for_it(499)];
    world.run(20, &[idle(1), backup()], &all);
    assert_eq!(world.ended(), [1]);
    // Another limit is another matter.
    let mut world = World::new(guarded());
    let other = Beyond {
        limit: "another".to_owned(),
        ..not_for_it(500)
    };
    world.run(20, &[idle(1), backup()], &[beyond(1, 500, 5000), other]);
    assert_eq!(world.ended(), [1]);
}

#[test]
fn what_was_refused_or_not_sent_is_not_tried_again_and_what_was_missed_is() {
    for (result, ended) in [
        (OrderResult::Refused("no".to_owned()), 1),
        (OrderResult::NotSent, 1),
        (OrderResult::Missed, 2),
        (OrderResult::Unsent("not connected".to_owned()), 2),
    ] {
        let mut world = World::new(settings());
        world.run(2, &[idle(1)], &[beyond(1, 500, 5000)]);
        world.answer(1, result.clone());
        world.run(2000, &[idle(1)], &[beyond(1, 500, 5000)]);
        assert_eq!(world.orders().len(), ended, "{result:?}");
    }
}

#[test]
fn the_budget_counts_for_limits_too() {
    let mut settings = settings();
    settings.tuning.per_minute = 1;
    let mut world = World::new(settings);
    let all = [beyond(1, 300, 5000), beyond(2, 400, 5000)];
    world.run(2, &[idle(1), idle(2)], &all);
    world.answer(1, OrderResult::Accepted);
    world.run(100, &[idle(1)], &all[..1]);
    assert_eq!(world.ended(), [2]);
    world.run(1200, &[idle(1)], &all[..1]);
    assert_eq!(world.ended(), [2, 1]);
}
