//! A config meets a process, and its probes are attached as the agent does it.

use atropos::agent::clock::monotonic_ns;
use atropos::agent::probes::Probes;
use atropos::agent::resolve::Resolved;
use atropos::config;

use crate::common::resolve as resolve_preset;

/// What a config's text comes to in a process.
pub(crate) fn resolve(pid: u32, text: &str) -> Resolved {
    let preset = config::parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
    resolve_preset(pid, preset)
}

/// Its probes, attached.
pub(crate) fn attach(resolved: &Resolved) -> Probes {
    Probes::attach(resolved, monotonic_ns()).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Hits since then by probe, in the config's order.
pub(crate) fn hits(probes: &Probes) -> Vec<u64> {
    let hits = probes.hits().unwrap();
    hits.into_iter().map(|(_, count)| count).collect()
}
