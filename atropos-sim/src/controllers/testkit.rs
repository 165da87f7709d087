//! Small incidents that the tests of the controllers share.

use std::sync::Arc;

use super::seen::SeenTask;
use crate::measure::Summary;
use crate::plan::Plan;
use crate::run;
use crate::world::task::TaskRef;

/// Under a controller, with one seed.
pub(crate) fn summary(plan: &Arc<Plan>, controller: &str) -> Summary {
    run::one(plan, controller, 1).0
}

/// A plan from its text; everything that all the incidents share is added.
pub(crate) fn plan(family: &str, culprits: &str, rest: &str) -> Arc<Plan> {
    let text = format!(
        "name = 'test'\nabout = 'a test'\nfamily = '{family}'\nduration = '10s'\nfrom = '2s'\nslo = '50ms'\ncores = 4\n\
         answer = {{ culprits = [{culprits}], action = 'STMT' }}\n{rest}"
    );
    Arc::new(Plan::read(&text).expect("the test's own text"))
}

/// A task that nothing is known of but when it began.
pub(crate) fn seen_task(serial: u64, started_ns: u64) -> SeenTask {
    SeenTask {
        task: TaskRef { index: 0, serial },
        class: 0,
        client: 0,
        session: serial,
        arrived_ns: started_ns,
        started_ns,
        idle_since_ns: None,
        waits: false,
        cpu_ns: 0,
        miss_count: 0,
        heap_mbytes: 0.0,
        view_age_ns: 0,
        progress: None,
        killed: false,
        protected: false,
    }
}

/// One request holds a lock for four seconds that all others need.
pub(crate) fn lock_hog() -> Arc<Plan> {
    plan(
        "synchronisation",
        "'hog'",
        "locks = [{ name = 'table' }]\n\
         [[classes]]\nname = 'small'\nsteps = [{ lock = { of = 'table', shared = true } }, { cpu = '~4ms' }]\n\
         [[classes]]\nname = 'hog'\nsteps = [{ lock = { of = 'table' } }, { sleep = '4s' }]\n\
         [[clients]]\nclass = 'small'\nsend = { poisson = 200.0 }\n\
         [[clients]]\nclass = 'hog'\nsend = { at = ['2s'] }\ninjected = true\n",
    )
}

/// From two seconds on, twice as many requests come as the cores can serve.
pub(crate) fn demand() -> Arc<Plan> {
    plan(
        "innocent",
        "",
        "[[classes]]\nname = 'small'\nsteps = [{ enter = 'workers' }, { cpu = '~4ms' }]\n\
         [[pools]]\nname = 'workers'\nslots = 4\n\
         [[clients]]\nclass = 'small'\nsend = { poisson = 600.0 }\nshape = [{ at = '2s', factor = 3.3 }]\n",
    )
}

/// Long requests come among short ones and occupy all workers, again and again.
pub(crate) fn long_and_short() -> Arc<Plan> {
    plan(
        "innocent",
        "",
        "pools = [{ name = 'workers', slots = 16 }]\n\
         [[classes]]\nname = 'short'\nsteps = [{ enter = 'workers' }, { cpu = '~1ms' }]\n\
         [[classes]]\nname = 'long'\nsteps = [{ enter = 'workers' }, { cpu = '~100ms' }]\n\
         [[clients]]\nclass = 'short'\nsend = { poisson = 600.0 }\n\
         [[clients]]\nclass = 'long'\nsend = { poisson = 30.0 }\n",
    )
}
