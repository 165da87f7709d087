//! What is not attached though it should be, and what cannot be seen for it.

use super::Probes;
use super::fitted::Fitted;
use crate::engine::input::{Blind, ResourceId};

impl Probes {
    /// Names of probes that the kernel refuses, with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (&[String], &str)> {
        self.units
            .iter()
            .filter_map(|unit| Some((unit.planned.unit.probes.as_slice(), unit.refused()?)))
    }

    /// Resources that cannot be seen since their probes are shed or refused.
    pub(super) fn blind(&self) -> Vec<Blind> {
        // Who wakes whom is the governor's last unit, and makes no resource blind.
        let units = self
            .governor
            .shed()
            .filter_map(|index| self.units.get(index));
        let shed = units.map(|unit| {
            let probes = unit.planned.unit.probes.join(", ");
            let reason = format!("over budget, so that its probes are detached: {probes}");
            self.blind_without(unit, &reason)
        });
        let refused = self
            .units
            .iter()
            .filter_map(|unit| Some(self.blind_without(unit, unit.refused()?)));
        shed.chain(refused).flatten().collect()
    }

    /// Without the marks of its tasks nothing is known of an application that tells by marks.
    fn blind_without(&self, unit: &Fitted, reason: &str) -> Vec<Blind> {
        let unit = &unit.planned.unit;
        let all = self.marks && unit.resource.is_none();
        let resources = (0..).map(ResourceId).zip(&self.resources);
        resources
            .filter(|(resource, _)| all || unit.resource == Some(*resource))
            .map(|(resource, name)| Blind {
                resource,
                reason: format!("{name}: {reason}"),
            })
            .collect()
    }
}
