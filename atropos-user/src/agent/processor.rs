//! How those who keep others waiting get on at the scheduler: at work, in the queue for a processor, blocked on a disk, asleep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::clock;
use super::resolve::Resolved;
use super::why::Node;
use crate::engine::input::{Activity, SessionState};
use crate::target::sched::{Scheduler, ThreadUsage};

/// For how long they are watched: some time slices.
const SPAN: Duration = Duration::from_millis(50);

/// Shares below this are not worth a word.
const WORTH_TELLING: f64 = 0.05;

/// Where a thread spent the time that it was watched, as shares of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Processor {
    /// On a processor.
    pub on_cpu: f64,
    /// In the queue for one.
    pub queued: f64,
    /// Blocked on a disk; nothing where the kernel does not count it.
    pub io: Option<f64>,
}

impl Processor {
    fn of(usage: &ThreadUsage) -> Self {
        let share = |ns: u64| (ns as f64 / usage.covered_ns.max(1) as f64).min(1.0);
        let times = usage.times;
        Self {
            on_cpu: share(times.on_cpu_ns),
            queued: share(times.run_delay_ns),
            io: times.io_ns.map(share),
        }
    }

    /// In words that go behind "running for 1.2 s"; empty if there is nothing to tell.
    pub fn words(&self) -> String {
        let io = self.io.unwrap_or(0.0);
        if self.on_cpu + self.queued + io < WORTH_TELLING {
            return ", asleep".to_owned();
        }
        let told = [
            (self.queued, "waiting for a processor"),
            (io, "blocked on a disk"),
        ];
        let mut words = String::new();
        for (share, what) in told
            .into_iter()
            .filter(|(share, _)| *share >= WORTH_TELLING)
        {
            let _ = write!(words, ", {:.0} % of the time {what}", share * 100.0);
        }
        words
    }
}

/// Watches the roots that run a request for [`SPAN`] and writes beside each what its thread did. Costs nothing if there
/// are none.
pub(super) fn watch(resolved: &Resolved, sessions: &[SessionState], roots: &mut [Node]) {
    let at_work = |node: &Node| {
        node.waits_for.is_none()
            && node.thread != 0
            && sessions
                .iter()
                .any(|state| state.id == node.id && state.activity == Activity::Busy)
    };
    let forks = resolved.preset.matching.forks;
    let thread = |node: &Node| resolved.process.session_thread(node.thread, forks);
    let ours: BTreeMap<u32, (u32, u32)> = roots
        .iter()
        .filter(|node| at_work(node))
        .filter_map(|node| Some((node.thread, thread(node)?)))
        .collect();
    let threads: Vec<(u32, u32)> = ours.values().copied().collect();
    if threads.is_empty() {
        return;
    }
    let (mut scheduler, nobody) = (Scheduler::new(), BTreeSet::new());
    scheduler.look(&threads, &nobody, clock::monotonic_ns());
    std::thread::sleep(SPAN);
    let usages = scheduler.look(&threads, &nobody, clock::monotonic_ns());
    for node in roots.iter_mut().filter(|node| at_work(node)) {
        let usage = usages.iter().find(|usage| {
            ours.get(&node.thread)
                .is_some_and(|(_, tid)| *tid == usage.tid)
        });
        node.processor = usage.map(Processor::of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_is_said() {
        let words = |on_cpu, queued, io| Processor { on_cpu, queued, io }.words();
        assert_eq!(words(1.0, 0.0, None), "");
        assert_eq!(words(0.0, 0.0, Some(0.0)), ", asleep");
        assert_eq!(
            words(0.6, 0.4, None),
            ", 40 % of the time waiting for a processor"
        );
        assert_eq!(
            words(0.1, 0.0, Some(0.9)),
            ", 90 % of the time blocked on a disk"
        );
    }
}
