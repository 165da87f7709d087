//! Processor time of the sessions that run something, and how long they were ready and did not run, while something looks
//! wrong. Read out of what the scheduler counts anyway; a look costs the target nothing.
//!
//! It is told and is no reason to end anybody: who waits for a processor may wait for the work of the server itself or of
//! another program on the machine, which no session shows. It is a reason to spare somebody: who has no processor cannot let go
//! of what it holds.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Preset;
use crate::engine::input::{
    Activity, Evidence, ResourceId, SessionKey, SessionState, SessionUsage, Snapshot, Usage,
};
use crate::engine::record::Level;
use crate::engine::settings::Kind;
use crate::target::Process;
use crate::target::sched::Scheduler;

/// Follows the threads of busy sessions from look to look.
#[derive(Debug)]
pub struct OnCpu {
    resource: ResourceId,
    process: Process,
    /// A session is a process.
    forks: bool,
    scheduler: Scheduler,
    /// Our numbers of each process and thread of the look before, by the thread's number in the target.
    ours: BTreeMap<u32, (u32, u32)>,
    looked_ns: Option<u64>,
}

impl OnCpu {
    /// Nothing where the preset declares no resource of kind CPU.
    pub fn new(preset: &Preset, process: &Process) -> Option<Self> {
        let kinds = (0..).zip(&preset.resources);
        let resource = kinds
            .filter(|(_, resource)| resource.kind == Kind::Cpu)
            .map(|(index, _)| ResourceId(index))
            .next()?;
        Some(Self {
            resource,
            process: process.clone(),
            forks: preset.matching.forks,
            scheduler: Scheduler::new(),
            ours: BTreeMap::new(),
            looked_ns: None,
        })
    }

    /// What these sessions used since the look before; nothing in calm, where nobody is followed. `snapshots` tell who
    /// waits for something else.
    pub fn look(
        &mut self,
        sessions: &[SessionState],
        snapshots: &[Snapshot],
        level: Level,
        now_ns: u64,
    ) -> Option<Usage> {
        if level == Level::Calm {
            self.ours.clear();
            self.scheduler.look(&[], &BTreeSet::new(), now_ns);
            self.looked_ns = None;
            return None;
        }
        let busy = |state: &&SessionState| {
            state.activity == Activity::Busy && state.thread != 0 && !state.own
        };
        let before = std::mem::take(&mut self.ours);
        let mut contained = None;
        let mut by_thread: BTreeMap<u32, SessionKey> = BTreeMap::new();
        for state in sessions.iter().filter(busy) {
            let known = before.get(&state.thread).copied();
            let find = || {
                if !self.process.in_other_pid_namespace() {
                    return self.process.session_thread(state.thread, self.forks);
                }
                let all = || self.process.session_threads(self.forks);
                let all = contained.get_or_insert_with(all);
                all.get(&state.thread).copied()
            };
            if let Some((pid, tid)) = known.or_else(find) {
                self.ours.insert(state.thread, (pid, tid));
                by_thread.insert(tid, state.session);
            }
        }
        let mut threads: Vec<(u32, u32)> = self.ours.values().copied().collect();
        threads.sort_unstable_by_key(|(_, tid)| *tid);
        let waits = snapshots.iter().flat_map(|snapshot| &snapshot.waits);
        let waiting: BTreeSet<SessionKey> = waits.map(|wait| wait.waiter).collect();
        let asleep = by_thread.iter().filter(|(_, key)| waiting.contains(key));
        let asleep: BTreeSet<u32> = asleep.map(|(tid, _)| *tid).collect();
        let usages = self.scheduler.look(&threads, &asleep, now_ns);
        let looked_ns = self.looked_ns.replace(now_ns)?;
        let sessions: Vec<SessionUsage> = usages
            .iter()
            .filter_map(|usage| {
                Some(SessionUsage {
                    session: *by_thread.get(&usage.tid)?,
                    used: usage.times.on_cpu_ns,
                    lost_ns: usage.times.run_delay_ns,
                    held: 0,
                })
            })
            .filter(|one| (one.used, one.lost_ns) != (0, 0))
            .collect();
        (!sessions.is_empty()).then(|| Usage {
            at_ns: now_ns,
            resource: self.resource,
            covered_ns: now_ns.saturating_sub(looked_ns),
            evidence: Evidence::Inference,
            complete: usages.len() == threads.len(),
            sessions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const TEXT: &str = "schema = 1\nname = \"x\"\n[match]\nprograms = [\"x\"]\n\
                        [[resource]]\nname = \"lock\"\nkind = \"LOCK\"\n";

    fn on_cpu(more: &str) -> Option<OnCpu> {
        let preset = config::parse("x", &format!("{TEXT}{more}"));
        let preset = preset.unwrap_or_else(|problems| panic!("{problems}"));
        OnCpu::new(&preset, &Process::open(std::process::id()).unwrap())
    }

    fn state(key: u64, activity: Activity) -> SessionState {
        SessionState {
            thread: nix::unistd::gettid().as_raw().cast_unsigned(),
            request: 1,
            ..SessionState::new(SessionKey(key), activity, 0)
        }
    }

    #[test]
    fn a_busy_session_is_told_of_from_the_second_look_on_while_something_looks_wrong() {
        let mut on_cpu = on_cpu("[[resource]]\nname = \"processor\"\nkind = \"CPU\"\n").unwrap();
        let mut at_ns = 0;
        let mut look = |activity, level| {
            // Some work to be seen between two looks.
            let begun_ns = crate::agent::clock::thread_cpu_ns();
            while crate::agent::clock::thread_cpu_ns() < begun_ns + 5_000_000 {}
            at_ns += 50_000_000;
            on_cpu.look(&[state(7, activity)], &[], level, at_ns)
        };
        assert_eq!(look(Activity::Busy, Level::Suspect), None, "the first look");
        let usage = look(Activity::Busy, Level::Suspect).unwrap();
        assert_eq!(
            (usage.resource, usage.evidence, usage.covered_ns),
            (ResourceId(1), Evidence::Inference, 50_000_000)
        );
        assert_eq!(usage.sessions[0].session, SessionKey(7));
        assert!(usage.sessions[0].used > 0, "{usage:?}");
        assert_eq!(look(Activity::IdleInTransaction, Level::Suspect), None);
        assert_eq!(look(Activity::Busy, Level::Suspect), None, "new again");
        assert_eq!(look(Activity::Busy, Level::Calm), None);
        assert_eq!(look(Activity::Busy, Level::Suspect), None, "calm between");
    }

    #[test]
    fn a_preset_without_such_a_resource_wants_nothing() {
        assert!(on_cpu("").is_none());
    }
}
