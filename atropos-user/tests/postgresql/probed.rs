//! Every probe of the preset attached to a cluster, harvested as the agent does it, for tests of what the kernel half keeps.

use atropos::agent::kept::Kept;
use atropos::agent::probes::Probes;
use atropos::agent::resolve::Resolved;
use atropos::agent::run::TICK;
use atropos::engine::record::Level;
use atropos::governor::Budget;

use crate::common::postgresql::Postgres;
use crate::common::{Deadline, clock_ns};
use crate::scene::{preset, resolve};

/// The probes, and what they have told so far.
pub(crate) struct Probed {
    probes: Probes,
    /// Requests whose end was seen after their begin.
    pub(crate) request_count: u64,
    /// Things that could not be kept.
    pub(crate) lost_count: u64,
}

/// Every probe of the preset attached, and for good: what is asked here is what they tell and miss while they are there.
pub(crate) fn everything(server: &Postgres) -> (Probes, Resolved) {
    let mut preset = preset();
    preset.budget = Budget {
        calm: 1.0,
        suspect: 1.0,
    };
    let resolved = resolve(server.pid, preset);
    let mut probes = Probes::attach(&resolved, clock_ns()).unwrap();
    probes.set_level(Level::Suspect, clock_ns()).unwrap();
    probes.wait().unwrap();
    (probes, resolved)
}

impl Probed {
    /// Attaches all of them.
    pub(crate) fn attach(server: &Postgres) -> Self {
        Self {
            probes: everything(server).0,
            request_count: 0,
            lost_count: 0,
        }
    }

    /// Takes what has come in.
    pub(crate) fn harvest(&mut self) {
        let harvest = self.probes.harvest(clock_ns()).unwrap();
        self.lost_count += harvest.lost;
        self.request_count += harvest.latency.iter().map(|(_, count)| count).sum::<u64>();
    }

    /// What the kernel half keeps.
    pub(crate) fn kept(&self) -> Kept {
        self.probes.kept()
    }

    /// Harvests once a tick while something else goes on.
    pub(crate) async fn harvest_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = tick.tick() => self.harvest(),
            }
        }
    }

    /// Harvests until the kernel half keeps what it should.
    #[track_caller]
    pub(crate) fn keeps(&mut self, what: &str, expected: impl Fn(&Kept) -> bool) {
        let deadline = Deadline::new();
        loop {
            self.harvest();
            let kept = self.kept();
            if expected(&kept) {
                return;
            }
            deadline.check(&format!("{what}: {kept:#?}"));
            std::thread::sleep(TICK);
        }
    }
}
