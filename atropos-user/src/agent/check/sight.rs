//! Whether a resource can be seen, wholly, in part or not at all, and why.

use serde::Serialize;

use super::{ProbeReport, Report};
use crate::config::Preset;
use crate::engine::input::ResourceId;
use crate::engine::record::Level;
use crate::engine::settings::Kind;
use crate::governor::Standing;

/// How well a resource can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sight {
    /// By everything that the preset offers.
    Seen,
    /// By a part of it.
    PartlyBlind,
    /// Not: it is never a reason to cancel.
    Blind,
}

/// What is known of processors.
const OF_THE_SCHEDULER: &str =
    "taken from the scheduler while something looks wrong: it is told, and is no reason to cancel";

/// Judges every resource. `walks` says for each resource how its walk fares, if it has one.
pub(super) fn judge(report: &mut Report, preset: &Preset, walks: &[Option<Result<(), String>>]) {
    for (index, walk) in walks.iter().enumerate() {
        let of_it = |probe: &&ProbeReport| {
            let declared = preset
                .probes
                .iter()
                .find(|known| known.name.value == probe.name);
            declared.and_then(|known| known.resource).map(usize_of) == Some(index)
        };
        let probes: Vec<&ProbeReport> = report.probes.iter().filter(of_it).collect();
        let (sight, reasons) = if preset.resources[index].kind == Kind::Cpu {
            (Sight::Seen, vec![OF_THE_SCHEDULER.to_owned()])
        } else {
            sight(&probes, walk.as_ref(), report.lost_count.unwrap_or(0))
        };
        let resource = &mut report.resources[index];
        resource.blind = Some((sight == Sight::Blind).then(|| reasons.join("; ")));
        resource.sight = Some(sight);
        resource.reasons = reasons;
    }
}

fn usize_of(id: ResourceId) -> usize {
    usize::from(id.0)
}

fn sight(
    probes: &[&ProbeReport],
    walk: Option<&Result<(), String>>,
    lost_count: u64,
) -> (Sight, Vec<String>) {
    let placed = |probe: &&&ProbeReport| matches!(probe.place, Some(Ok(_)));
    if let Some(Err(reason)) = walk {
        return (Sight::Blind, vec![reason.clone()]);
    }
    if walk.is_none() && probes.iter().filter(placed).count() == 0 {
        let reason = "the preset has neither a walk for it nor a probe that has a place here";
        return (Sight::Blind, vec![reason.to_owned()]);
    }
    if let Some(refused) = probes.iter().find_map(|probe| probe.refused.clone()) {
        return (Sight::Blind, vec![refused]);
    }
    let shed: Vec<&str> = probes
        .iter()
        .filter(|probe| probe.level == Level::Calm)
        .filter(|probe| probe.calm == Some(Standing::Shed))
        .map(|probe| probe.name.as_str())
        .collect();
    if !shed.is_empty() {
        let reason = format!("over budget in calm: {} would be detached", shed.join(", "));
        return (Sight::Blind, vec![reason]);
    }
    let mut reasons: Vec<String> = probes
        .iter()
        .filter(|probe| matches!(probe.place, Some(Err(_))))
        .map(|probe| format!("probe {} has no place", probe.name))
        .collect();
    if lost_count > 0 {
        reasons.push(format!(
            "{lost_count} events were lost while it was looked at"
        ));
    }
    if reasons.is_empty() {
        (Sight::Seen, reasons)
    } else {
        (Sight::PartlyBlind, reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(name: &str, placed: bool, calm: Option<Standing>) -> ProbeReport {
        let place = super::super::PlaceReport {
            alternative: 1,
            symbol: "f".to_owned(),
            file: "/bin/server".to_owned(),
            offset: 0x40,
            site_count: 1,
            cost: "cheap",
            why: "push".to_owned(),
        };
        ProbeReport {
            name: name.to_owned(),
            place: Some(if placed {
                Ok(place)
            } else {
                Err(vec!["no symbol".to_owned()])
            }),
            level: Level::Calm,
            op: "WaitBegin".to_owned(),
            alternatives: Vec::new(),
            refused: None,
            hits: None,
            fired: None,
            calm,
            suspect: None,
        }
    }

    fn judged(probes: &[ProbeReport], walk: Option<&Result<(), String>>, lost: u64) -> Sight {
        let probes: Vec<&ProbeReport> = probes.iter().collect();
        sight(&probes, walk, lost).0
    }

    #[test]
    fn a_walk_that_fails_is_blindness_whatever_the_probes_see() {
        let walk = Err("a check failed".to_owned());
        assert_eq!(
            judged(&[probe("wait", true, None)], Some(&walk), 0),
            Sight::Blind
        );
    }

    #[test]
    fn without_a_walk_it_takes_a_probe_that_has_a_place() {
        assert_eq!(judged(&[probe("wait", false, None)], None, 0), Sight::Blind);
        assert_eq!(judged(&[probe("wait", true, None)], None, 0), Sight::Seen);
    }

    #[test]
    fn a_probe_without_a_place_and_a_loss_leave_a_walk_partly_blind() {
        let probes = [probe("wait", true, None), probe("woken", false, None)];
        assert_eq!(judged(&probes, Some(&Ok(())), 0), Sight::PartlyBlind);
        assert_eq!(judged(&probes[..1], Some(&Ok(())), 1), Sight::PartlyBlind);
        assert_eq!(judged(&probes[..1], Some(&Ok(())), 0), Sight::Seen);
    }

    #[test]
    fn what_would_be_shed_cannot_be_seen() {
        let shed = [probe("wait", true, Some(Standing::Shed))];
        assert_eq!(judged(&shed, Some(&Ok(())), 0), Sight::Blind);
        let kept = [probe("wait", true, Some(Standing::Whole))];
        assert_eq!(judged(&kept, Some(&Ok(())), 0), Sight::Seen);
    }
}
