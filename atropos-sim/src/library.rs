//! The scenarios that come with the simulator.

use std::fmt::Write as _;

use anyhow::Result;

use crate::controllers::names;
use crate::plan::Plan;
use crate::scenario::Family;

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../scenarios/", $name, ".toml")))),*]
    };
}

/// Every built-in scenario: its file's name and text.
const ALL: &[(&str, &str)] = scenarios![
    "c01-backup-lock",
    "c02-table-lock",
    "c03-innodb-tickets",
    "c04-undo-history",
    "c05-buffer-pool",
    "c06-pg-table-lock",
    "c07-pg-wal",
    "c08-pg-vacuum",
    "c09-apache-workers",
    "c10-es-request-cache",
    "c11-es-nested-aggs",
    "c12-es-boolean",
    "c13-es-bulk",
    "c14-solr-boolean",
    "c15-solr-stats",
    "c16-etcd-range",
    "h01-sleeper-and-alter",
    "h02-idle-lock-tables",
    "h03-bulk-autoinc",
    "h04-cleanup-and-deadlocks",
    "h05-innocent-sleeper",
    "h06-dump-and-repack",
    "h07-pool-drained-by-idlers",
    "h08-group-of-queries",
    "h09-two-tables",
    "h10-comes-back",
    "h11-slow-ramp",
    "h12-deaf-command",
    "h13-growth-and-stall",
    "n01-demand",
    "n02-hot-row",
    "n03-slow-disk",
    "n04-gc-pause",
    "n05-load-drop",
    "n06-batch-within-slo",
    "n07-slow-upstream",
    "n08-short-cut-over",
    "n09-costly-undo"
];

/// The scenarios of this name: one, or a set.
pub(crate) fn named(name: &str) -> Vec<(&'static str, &'static str)> {
    let set: Option<fn(Family) -> bool> = match name {
        "all" => Some(|_| true),
        "paper" => Some(|family| !matches!(family, Family::Hard | Family::Innocent)),
        "hard" => Some(|family| family == Family::Hard),
        "innocent" => Some(|family| family == Family::Innocent),
        _ => None,
    };
    let fits = |entry: &&(&str, &str)| match set {
        Some(set) => Plan::read(entry.1).is_ok_and(|plan| set(plan.scenario.family)),
        None => entry.0 == name || entry.0.split('-').next() == Some(name),
    };
    ALL.iter().filter(fits).copied().collect()
}

/// Scenarios and controllers, for a person.
pub(crate) fn list() -> Result<String> {
    let mut text = "scenarios\n".to_owned();
    for (name, file) in ALL {
        let plan = Plan::read(file)?;
        let about = plan.scenario.about.lines().next().unwrap_or_default();
        let _ = writeln!(
            text,
            "  {name:<24} {:<16} {about}",
            format!("{:?}", plan.scenario.family)
        );
    }
    text.push_str("controllers\n");
    for entry in names::ALL {
        let _ = writeln!(text, "  {:<24} {}", entry.name, entry.about);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_can_be_read_and_bears_its_files_name() {
        for (name, text) in ALL {
            let plan = Plan::read(text).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert_eq!(plan.scenario.name, *name);
            assert!(plan.duration_ns > plan.from_ns, "{name} measures nothing");
        }
    }
}
