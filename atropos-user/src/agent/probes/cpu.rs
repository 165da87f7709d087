//! How much CPU time the target uses.

use std::collections::BTreeMap;

use crate::agent::clock::CpuClock;
use crate::target::Process;

/// How often the list of child processes is read. 1 s: who lives for less adds little.
const CHILDREN_EVERY_NS: u64 = 1_000_000_000;

/// Reads the CPU clocks of a process and, where sessions are processes, of those that it has forked.
pub(super) struct CpuMeter {
    process: Process,
    forks: bool,
    /// Clock of each process, and what it showed at the reading before.
    clocks: BTreeMap<u32, (CpuClock, u64)>,
    listed_ns: Option<u64>,
}

impl CpuMeter {
    pub(super) fn new(process: &Process, forks: bool) -> Self {
        let mut meter = Self {
            process: process.clone(),
            forks,
            clocks: BTreeMap::new(),
            listed_ns: None,
        };
        meter.include(process.pid());
        meter
    }

    /// CPU time used since the reading before. What a child used after its last reading is not in it.
    pub(super) fn used_ns(&mut self, now_ns: u64) -> u64 {
        let mut used_ns = 0;
        self.clocks
            .retain(|_, (clock, before_ns)| match clock.used_ns() {
                Some(after_ns) => {
                    used_ns += after_ns.saturating_sub(*before_ns);
                    *before_ns = after_ns;
                    true
                }
                None => false,
            });
        let stale = self
            .listed_ns
            .is_none_or(|listed| now_ns > listed + CHILDREN_EVERY_NS);
        if self.forks && stale {
            self.listed_ns = Some(now_ns);
            for child in self.process.children() {
                self.include(child);
            }
        }
        used_ns
    }

    fn include(&mut self, pid: u32) {
        if !self.clocks.contains_key(&pid)
            && let Some(clock) = CpuClock::of(pid)
            && let Some(used_ns) = clock.used_ns()
        {
            self.clocks.insert(pid, (clock, used_ns));
        }
    }
}
