//! Short looks at who wakes whom, while sessions wait for what nobody can be told to hold.
//!
//! While a look lasts, every wake-up of the machine runs a program; those by the target's own threads are counted and weighed
//! against the budget like the passings of a probe, of all units the one that is worth least.

use anyhow::Result;

use super::Probes;
use crate::agent::clock;
use crate::engine::record::Level;
use crate::governor::{Costs, Unit, Way, Work};
use crate::kernel::{Wake, Wakes};

/// How long a look is. 100 ms: two ticks, in which a server hands on its inner locks some thousand times.
const LOOK_NS: u64 = 100_000_000;

/// Between the begin of a look and that of the next. 1 s.
const EVERY_NS: u64 = 1_000_000_000;

/// What was seen in one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeLook {
    /// When it began, `CLOCK_MONOTONIC`.
    pub since_ns: u64,
    /// When it ended.
    pub until_ns: u64,
    /// Who woke whom.
    pub wakes: Vec<Wake>,
}

/// The watch, and when it may look.
pub(super) struct WakeUps {
    watch: Watch,
    /// Since when a look is under way: from then on everything is seen.
    since_ns: Option<u64>,
    begun: bool,
    next_ns: u64,
}

/// The program is loaded when it is first wanted.
enum Watch {
    Unwanted,
    Ready(Wakes),
    /// The kernel will not have it.
    Refused,
}

impl WakeUps {
    pub(super) fn new() -> Self {
        Self {
            watch: Watch::Unwanted,
            since_ns: None,
            begun: false,
            next_ns: 0,
        }
    }

    /// Since when everything is seen, if a look is under way.
    pub(super) fn since_ns(&self) -> Option<u64> {
        self.since_ns
    }
}

/// The unit of the governor that looks at wake-ups are. Nothing else has to go for its sake.
pub(super) fn unit() -> Unit {
    Unit {
        probes: vec!["wake-ups".to_owned()],
        level: Level::Suspect,
        resource: None,
        value: 0,
        hot: true,
        sample: None,
        divisible: true,
    }
}

/// What so many wake-ups cost a server. A tracepoint has no trap, so an emulated site whose passing is booked and sent costs
/// more than that.
pub(super) fn cost_ns(costs: &Costs, wake_count: u64) -> u64 {
    costs.in_a_server(Way::Emulated, Work::Sent, wake_count)
}

impl Probes {
    /// Looks at who wakes whom while it is `wanted`, the level is suspect and the budget allows it: what was seen when a look
    /// has ended. To be asked once a tick.
    ///
    /// # Errors
    /// When the kernel refuses; once, since nobody looks from then on.
    pub fn look_at_wakes(&mut self, wanted: bool, now_ns: u64) -> Result<Option<WakeLook>> {
        let allowed = self.governor.wants(self.units.len(), now_ns);
        let looked = self.step(wanted, allowed, now_ns);
        if looked.is_err() {
            self.wakes.watch = Watch::Refused;
            self.wakes.since_ns = None;
        }
        looked
    }

    fn step(&mut self, wanted: bool, allowed: bool, now_ns: u64) -> Result<Option<WakeLook>> {
        let wakes = &mut self.wakes;
        let (Watch::Ready(watch), true) = (&mut wakes.watch, wakes.begun) else {
            if wanted && allowed && now_ns >= wakes.next_ns {
                wakes.begin(|| self.kernel.wakes(), now_ns)?;
            }
            return Ok(None);
        };
        let Some(since_ns) = wakes.since_ns else {
            if watch.is_on()? {
                let since_ns = clock::monotonic_ns();
                wakes.since_ns = Some(since_ns);
                self.governor.attached(self.units.len(), since_ns);
            }
            return Ok(None);
        };
        if allowed && now_ns < since_ns.saturating_add(LOOK_NS) {
            return Ok(None);
        }
        let look = WakeLook {
            since_ns,
            until_ns: now_ns,
            wakes: watch.seen(),
        };
        watch.end();
        wakes.since_ns = None;
        wakes.begun = false;
        Ok(Some(look))
    }
}

impl WakeUps {
    fn begin(&mut self, load: impl FnOnce() -> Result<Wakes>, now_ns: u64) -> Result<()> {
        if let Watch::Unwanted = self.watch {
            self.watch = Watch::Ready(load()?);
        }
        if let Watch::Ready(watch) = &mut self.watch {
            watch.begin()?;
            self.begun = true;
            self.next_ns = now_ns.saturating_add(EVERY_NS);
        }
        Ok(())
    }
}
