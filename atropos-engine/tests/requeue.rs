//! What was ended: when it is to be run again, when it is too late, and what happens to it when it comes back.

mod kit;

use atropos_engine::Settings;
use atropos_engine::record::{Advice, AdviceKind, Effect, OutcomeKind};
use atropos_engine::settings::{Background, Mode};
use kit::{BACKUP, EXCLUSIVE, MS, OTHER, Obey, T, WRITE, World, m01, settings};

const SECOND: u64 = 1000 * MS;

fn advice(world: &World) -> Vec<&Advice> {
    fn of(effect: &Effect) -> Option<&Advice> {
        match effect {
            Effect::Advice(advice) => Some(advice),
            _ => None,
        }
    }
    world.effects.iter().filter_map(of).collect()
}

fn kinds(world: &World) -> Vec<(u64, AdviceKind)> {
    let of = |advice: &&Advice| (advice.order, advice.kind);
    advice(world).iter().map(of).collect()
}

/// A lock is taken for good under load.
fn take(world: &mut World, key: u64, class: Option<u16>, table: u64) {
    world.begin(key, class, "select for update");
    world.lock(key, table, EXCLUSIVE);
}

/// Session 1 takes a table and is ended.
fn ended(settings: Settings, class: Option<u16>) -> World {
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    take(&mut world, 1, class, T);
    world.run(400);
    assert_eq!(world.targets(), [1]);
    world
}

/// ... and another has the table for good, which nobody may end.
fn ended_in_vain(settings: Settings, class: Option<u16>) -> World {
    let mut world = ended(settings, class);
    take(&mut world, 2, Some(BACKUP), T);
    world
}

#[test]
fn it_is_to_be_run_again_when_what_it_kept_from_others_has_been_free_for_two_seconds() {
    let mut world = ended(settings(), None);
    world.run(1900);
    assert_eq!(kinds(&world), []);
    world.run(1500);
    assert_eq!(kinds(&world), [(1, AdviceKind::Retry)]);
    let advice = advice(&world)[0];
    assert_eq!(advice.task.id, 1);
    assert!(
        (2 * SECOND..3 * SECOND).contains(&(advice.at_ns - world.orders()[0].at_ns)),
        "{advice:?}"
    );
    world.run(20_000);
    assert_eq!(kinds(&world).len(), 1, "it is said once");
}

#[test]
fn what_a_rung_has_ended_is_not_forgotten_since_the_next_one_came_too_late() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    take(&mut world, 1, None, T);
    world.obey = Obey::Ignore;
    while world.orders().is_empty() {
        world.run(10);
    }
    world.obey = Obey::Miss;
    while world.orders().len() < 2 {
        world.run(10);
    }
    world.end(1);
    assert_eq!(world.outcome_kinds(), [OutcomeKind::Missed]);
    world.run(3500);
    assert_eq!(kinds(&world), [(2, AdviceKind::Retry)]);
}

#[test]
fn a_request_is_dropped_when_nothing_has_become_free_for_ten_seconds() {
    let mut world = ended_in_vain(settings(), None);
    world.run(9000);
    assert_eq!(kinds(&world), []);
    world.run(2500);
    assert_eq!(kinds(&world), [(1, AdviceKind::Drop)]);
    let waited_ns = advice(&world)[0].waited_ns;
    assert!((10 * SECOND..=10 * SECOND + 50 * MS).contains(&waited_ns));
}

#[test]
fn background_work_runs_after_its_longest_wait_whatever_is_overloaded() {
    let mut settings = settings();
    settings.rerun.background = vec![Background {
        class: WRITE,
        wait_ns: 3 * SECOND,
    }];
    settings.classes[usize::from(WRITE)].undo = 0.0;
    let mut world = ended_in_vain(settings, Some(WRITE));
    world.run(3000);
    assert_eq!(kinds(&world), []);
    world.run(1000);
    assert_eq!(kinds(&world), [(1, AdviceKind::Retry)]);
}

#[test]
fn the_next_waits_until_the_one_before_has_shown_what_it_does() {
    let mut world = World::new(settings());
    world.victims(100, 12, T, 80);
    world.victims(200, 12, OTHER, 80);
    world.run(3000);
    for key in [1, 2] {
        world.begin(key, None, "select for update");
        world.lock(key, T, EXCLUSIVE);
        world.run(1500);
    }
    assert_eq!(world.targets(), [1, 2]);
    world.run(8000);
    assert_eq!(
        kinds(&world),
        [(1, AdviceKind::Retry), (2, AdviceKind::Retry)]
    );
    let said = advice(&world);
    assert!(said[1].at_ns - said[0].at_ns >= 2 * SECOND);
}

#[test]
fn nothing_is_said_of_what_was_not_ended_or_was_no_request() {
    let mut observed = World::new(Settings {
        mode: Mode::Observe,
        ..settings()
    });
    observed.obey = Obey::NotSent;
    observed.victims(100, 24, T, 80);
    observed.run(3000);
    take(&mut observed, 1, None, T);
    observed.run(400);
    observed.end(1);
    observed.run(15_000);
    assert_eq!((observed.targets(), kinds(&observed)), (vec![1], vec![]));
    let mut idle = m01(settings(), 4000);
    idle.run(15_000);
    assert_eq!((idle.targets(), kinds(&idle)), (vec![1], vec![]));
}

#[test]
fn what_runs_again_on_advice_is_let_through_once_if_it_runs_on_advice_alone() {
    let again = |once: bool| {
        let mut settings = settings();
        settings.rerun.once = once;
        let mut world = ended(settings, None);
        world.run(4000);
        assert_eq!(kinds(&world), [(1, AdviceKind::Retry)]);
        take(&mut world, 1, None, T);
        world.run(5000);
        world
    };
    assert_eq!(again(false).targets(), [1, 1]);
    let mut world = again(true);
    assert_eq!(world.targets(), [1]);
    world.end(1);
    world.run(1000);
    take(&mut world, 1, None, T);
    world.run(500);
    assert_eq!(world.targets(), [1, 1], "once is enough");
}

#[test]
fn once_work_that_insists_has_got_through_the_pauses_begin_anew() {
    let comes_back = |through: bool| {
        let mut world = ended(settings(), None);
        // The first pause is a second: by then it is ended again.
        take(&mut world, 1, None, T);
        world.run(1100);
        assert_eq!(world.targets(), [1, 1]);
        // The second is two. It runs for a while, in the way of others or not.
        take(&mut world, 1, None, if through { T } else { OTHER });
        world.run(600);
        assert_eq!(world.targets(), [1, 1]);
        world.end(1);
        world.run(100);
        take(&mut world, 1, None, T);
        world.run(450);
        world.targets().len()
    };
    assert_eq!(comes_back(true), 3, "what comes next is new work");
    assert_eq!(comes_back(false), 2, "the pause goes on");
}
