//! How each probe fares, for reports.

use anyhow::Result;
use atropos_common::limits::Loss;

use super::Probes;
use super::plan::Planned;
use crate::engine::record::Level;
use crate::governor::Standing;

/// How one probe fares.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeReading {
    /// Name.
    pub name: String,
    /// Passings so far.
    pub hits: u64,
    /// For how long it has been attached in all.
    pub attached_ns: u64,
    /// Passings a second of the time for which it was attached.
    pub per_s: f64,
    /// What one passing costs the fixture; the dearest of its sites.
    pub cost_ns: f64,
    /// When a passing was last noticed, at the end of the tick.
    pub fired_ns: Option<u64>,
    /// Passings whose arguments could not be read, as far as records tell.
    pub unreadable: u64,
    /// Share of the target's CPU time that its unit takes while it is attached.
    pub share: f64,
    /// What its unit is allowed within the budget of calm and of suspect, as far as its cost is known.
    pub standing: (Standing, Standing),
}

impl Probes {
    /// Every probe that has a place, with what is known of it.
    pub fn readings(&self) -> Vec<ProbeReading> {
        let (calm, suspect) = (
            self.governor.outlook(Level::Calm),
            self.governor.outlook(Level::Suspect),
        );
        let mut readings: Vec<ProbeReading> = Vec::new();
        for (index, unit) in self.units.iter().enumerate() {
            for site in &unit.planned.sites {
                let at = usize::from(site.cookie);
                let (hits, fired_ns) = (self.hits_before[at], self.fired_ns[at]);
                let cost_ns = self.costs.of(site.way(), site.work);
                let per_s = self.tally.per_s(index, site.cookie);
                match readings.iter_mut().find(|known| known.name == site.name) {
                    Some(known) => {
                        known.hits += hits;
                        known.per_s += per_s;
                        known.unreadable += self.unreadable[at];
                        known.fired_ns = known.fired_ns.max(fired_ns);
                        known.cost_ns = known.cost_ns.max(cost_ns);
                    }
                    None => readings.push(ProbeReading {
                        name: site.name.clone(),
                        hits,
                        attached_ns: self.tally.attached_ns[index],
                        per_s,
                        cost_ns,
                        fired_ns,
                        unreadable: self.unreadable[at],
                        share: self.governor.share(index),
                        standing: (calm[index], suspect[index]),
                    }),
                }
            }
        }
        readings
    }

    /// Passings of each probe so far, in the order of the preset: name and count.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn hits(&self) -> Result<Vec<(String, u64)>> {
        let hits = self.counters.hits()?;
        let mut found: Vec<(String, u64)> = Vec::new();
        for site in self.sites() {
            let hits = hits[usize::from(site.cookie)];
            match found.last_mut() {
                Some((name, sum)) if *name == site.name => *sum += hits,
                _ => found.push((site.name.clone(), hits)),
            }
        }
        Ok(found)
    }

    /// Things that could not be kept so far, by cause.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn lost(&self) -> Result<[u64; Loss::COUNT]> {
        self.counters.lost()
    }

    /// Every site in the order of the preset.
    fn sites(&self) -> Vec<&Planned> {
        let mut sites: Vec<&Planned> = self
            .units
            .iter()
            .flat_map(|unit| &unit.planned.sites)
            .collect();
        sites.sort_by_key(|site| site.cookie);
        sites
    }
}
