//! Attaches every probe for a while, within the budget, and counts.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use super::{Fired, Report};
use crate::agent::clock;
use crate::agent::probes::Probes;
use crate::agent::resolve::Resolved;
use crate::agent::run::TICK;
use crate::engine::record::Level;

/// How much longer than asked for it may take until what a passing costs is measured, on a machine that is busy.
const PATIENCE_NS: u64 = 5_000_000_000;

impl Report {
    /// Attaches everything for so long and notes what fired.
    ///
    /// # Errors
    /// When the kernel half cannot be loaded, attached or read.
    pub fn measure(&mut self, resolved: &Resolved, time: Duration) -> Result<()> {
        let mut probes = Probes::attach(resolved, clock::monotonic_ns())?;
        probes.calibrate();
        probes.set_level(Level::Suspect, clock::monotonic_ns())?;
        probes.wait()?;
        let until_ns = clock::monotonic_ns() + u64::try_from(time.as_nanos())?;
        let mut lost_count = 0;
        let goes_on = |probes: &Probes| {
            let late_ns = clock::monotonic_ns().checked_sub(until_ns);
            late_ns.is_none_or(|ns| probes.is_calibrating() && ns < PATIENCE_NS)
        };
        while goes_on(&probes) {
            sleep(TICK);
            lost_count += probes.harvest(clock::monotonic_ns())?.lost;
        }
        for (names, why) in probes.refused() {
            for probe in self.probes.iter_mut().filter(|p| names.contains(&p.name)) {
                probe.refused = Some(why.to_owned());
            }
        }
        let now_ns = clock::monotonic_ns();
        for reading in probes.readings() {
            let Some(probe) = self
                .probes
                .iter_mut()
                .find(|probe| probe.name == reading.name)
            else {
                continue;
            };
            let attached_s = reading.attached_ns as f64 / 1e9;
            let (calm, suspect) = reading.standing;
            probe.hits = Some(reading.hits);
            probe.fired = Some(Fired {
                attached_s,
                per_s: reading.per_s,
                silent_s: reading.fired_ns.map_or(attached_s, |fired| {
                    now_ns.saturating_sub(fired) as f64 / 1e9
                }),
                cost_ns: reading.cost_ns,
                share: reading.share,
                lost_count: reading.unreadable,
            });
            (probe.calm, probe.suspect) = (Some(calm), Some(suspect));
        }
        self.costs = Some(*probes.costs());
        self.lost_count = Some(lost_count);
        self.see(resolved);
        Ok(())
    }
}
