//! Tests of the world as a whole.

use std::sync::Arc;

use super::World;
use crate::controllers::names;
use crate::measure::Summary;
use crate::plan::Plan;

fn plan(rest: &str) -> Arc<Plan> {
    let head = "name = 'test'\nabout = 'a test'\nfamily = 'hard'\nduration = '20s'\nfrom = '0s'\nslo = '1s'\n\
                answer = { action = 'NONE' }\n";
    Arc::new(Plan::read(&format!("{head}{rest}")).expect("the test's own text"))
}

fn run(plan: &Arc<Plan>, controller: &str, seed: u64) -> (Summary, World) {
    let made = names::make(controller, plan).expect("the controller exists");
    let mut world = World::new(plan.clone(), seed, made);
    world.run();
    (world.measure.summary(plan), world)
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let plan = plan(
        "cores = 2\nlocks = [{ name = 'l' }]\n[[classes]]\nname = 'a'\nsteps = [{ lock = { of = 'l' } }, { cpu = '~4ms' }]\n\
         [[clients]]\nclass = 'a'\nsend = { poisson = 150.0 }\n",
    );
    let once = run(&plan, "atropos", 7);
    let again = run(&plan, "atropos", 7);
    assert_eq!(once.0.p99_ns.to_bits(), again.0.p99_ns.to_bits());
    assert_eq!(once.1.happening_count, again.1.happening_count);
    assert_ne!(
        once.0.p99_ns.to_bits(),
        run(&plan, "atropos", 8).0.p99_ns.to_bits()
    );
}

#[test]
fn one_core_and_exponential_service_make_the_queue_that_theory_says() {
    // M/M/1 with processor sharing: the mean time in the system is S / (1 - load) = 10 ms / 0.4.
    let plan = plan(
        "cores = 1\n[[classes]]\nname = 'a'\nsteps = [{ cpu = '~10ms' }]\n[[clients]]\nclass = 'a'\nsend = { poisson = 60.0 }\n",
    );
    let means: Vec<f64> = (0..20)
        .map(|seed| run(&plan, "none", seed).1.measure.mean_latency_ns())
        .collect();
    let mean_ns = means.iter().sum::<f64>() / 20.0;
    assert!((22e6..28e6).contains(&mean_ns), "{mean_ns}");
}

#[test]
fn a_closed_loop_never_has_more_requests_than_clients() {
    let plan = plan(
        "cores = 1\n[[classes]]\nname = 'a'\nsteps = [{ cpu = '10ms' }]\n\
         [[clients]]\nclass = 'a'\nsend = { closed = { clients = 4, think = '0ms' } }\n",
    );
    let (summary, world) = run(&plan, "none", 1);
    assert!(world.tasks.len() <= 4);
    // One core is always busy: a hundred requests a second.
    assert!(
        (1_990.0..2_001.0).contains(&summary.served_count),
        "{summary:?}"
    );
}

#[test]
fn a_cancelled_writer_keeps_its_lock_while_it_undoes_its_work() {
    let hog = |undo: f64| {
        plan(&format!(
            "cores = 4\nlocks = [{{ name = 'l' }}]\n[[classes]]\nname = 'small'\nsteps = [{{ lock = {{ of = 'l' }} }}, {{ cpu = '1ms' }}]\n\
             [[classes]]\nname = 'hog'\nundo = {undo:.1}\nnotice = '0ms'\nsteps = [{{ lock = {{ of = 'l' }} }}, {{ cpu = '15s' }}]\n\
             [[clients]]\nclass = 'small'\nsend = {{ even = 50.0 }}\n\
             [[clients]]\nclass = 'hog'\nsend = {{ at = ['1s'] }}\ninjected = true\n"
        ))
    };
    // Ten objectives: both are ended at 11 s, and the second takes as long again to undo the ten seconds.
    let at_once = run(&hog(0.0), "timeout-any", 1).0;
    let undone = run(&hog(0.8), "timeout-any", 1).0;
    assert!(undone.bad_s > at_once.bad_s + 6.0, "{undone:?} {at_once:?}");
}

#[test]
fn a_deadlock_ends_one_of_the_two_and_lets_the_other_go_on() {
    let plan = plan(
        "cores = 4\nlocks = [{ name = 'l', count = 2 }]\n\
         [[classes]]\nname = 'a'\nsteps = [{ lock = { of = 'l', pick = { number = 0 } } }, { sleep = '1s' }, { lock = { of = 'l', pick = { number = 1 } } }]\n\
         [[classes]]\nname = 'b'\nsteps = [{ lock = { of = 'l', pick = { number = 1 } } }, { sleep = '1s' }, { lock = { of = 'l', pick = { number = 0 } } }]\n\
         [[clients]]\nclass = 'a'\nsend = { at = ['1s'] }\n[[clients]]\nclass = 'b'\nsend = { at = ['1.1s'] }\n",
    );
    let (summary, world) = run(&plan, "none", 1);
    assert_eq!(world.measure.deadlock_count, 1);
    assert!((summary.served_count - 1.0).abs() < f64::EPSILON);
}

#[test]
fn a_client_without_patience_tries_again_and_the_server_works_in_vain() {
    let plan = plan(
        "cores = 1\n[[classes]]\nname = 'a'\nsteps = [{ cpu = '400ms' }]\n\
         [[clients]]\nclass = 'a'\nsend = { at = ['1s'] }\npatience = '300ms'\nretries = 2\nbackoff = '10ms'\n",
    );
    let (summary, world) = run(&plan, "none", 1);
    assert_eq!(world.measure.retry_count, 2);
    assert!((summary.innocent_drops - 1.0).abs() < f64::EPSILON);
    assert!(summary.wasted > 0.99);
}

#[test]
fn a_scan_through_a_full_cache_costs_the_others_their_pages() {
    let with = |scan: &str| {
        plan(&format!(
            "cores = 4\ndisk = {{ channels = 1, page = '200us' }}\ncaches = [{{ name = 'c', pages = 500, of = 100000, warm = 500 }}]\n\
             [[classes]]\nname = 'a'\nsteps = [{{ read = {{ of = 'c', pages = 2, to = 400 }} }}, {{ cpu = '1ms' }}]\n\
             [[classes]]\nname = 'scan'\nsteps = [{{ read = {{ of = 'c', pages = 90000, from = 500, to = 99000, scan = true, ahead = 8 }} }}]\n\
             [[clients]]\nclass = 'a'\nsend = {{ poisson = 100.0 }}\n{scan}"
        ))
    };
    let calm = run(&with(""), "none", 1).1;
    let scanned = run(
        &with("[[clients]]\nclass = 'scan'\nsend = { at = ['1s'] }\ninjected = true\n"),
        "none",
        1,
    )
    .1;
    assert_eq!(calm.caches[0].miss_count, 0);
    // 4,000 pages are read of the hot set; most of them have gone in between.
    assert!(scanned.caches[0].miss_count > 2_000 + scanned.caches[0].eviction_count / 2);
}
