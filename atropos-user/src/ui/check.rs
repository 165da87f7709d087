//! `atropos check` as text.

use std::fmt::Write as _;

use crate::agent::check::{InitiatorReport, ProbeReport, Report, ResourceReport, Target};
use crate::engine::record::Level;

/// The report as text. `seconds` is for how long probes were attached, if they were.
#[must_use]
pub fn text(report: &Report, seconds: Option<f64>) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "preset {}: {}", report.preset, report.title);
    if let Some(Target {
        pid,
        file,
        build_id,
        replaced,
        sessions,
    }) = &report.process
    {
        let _ = writeln!(out, "process {pid}: {file}, build id {build_id}");
        if *replaced {
            let _ = writeln!(
                out,
                "  the file on disk is another one by now; what runs is read through the process"
            );
        }
        let _ = match sessions {
            Ok(count) => writeln!(out, "  sessions: {count} listed"),
            Err(reason) => writeln!(out, "  sessions: cannot be listed: {reason}"),
        };
    }
    for name in &report.unlearned {
        let _ = writeln!(out, "{name}");
    }
    let _ = writeln!(out, "\nprobes:");
    for one in &report.probes {
        probe(&mut out, one, seconds);
    }
    let _ = writeln!(out, "\nresources:");
    for one in &report.resources {
        resource(&mut out, one);
    }
    if let Some(one) = &report.initiator {
        initiator(&mut out, one);
    }
    out
}

fn probe(out: &mut String, probe: &ProbeReport, seconds: Option<f64>) {
    let level = match probe.level {
        Level::Calm => "calm",
        Level::Suspect => "suspect",
    };
    let _ = write!(out, "  {:<16} {:<14} {level:<8} ", probe.name, probe.op);
    match &probe.place {
        None => {
            let _ = write!(out, "{}", probe.alternatives.join(" | "));
        }
        Some(Err(tried)) => {
            let _ = write!(out, "no place: {}", tried.join("; "));
        }
        Some(Ok(place)) => {
            let of = if probe.alternatives.len() > 1 {
                format!(
                    ", alternative {} of {}",
                    place.alternative,
                    probe.alternatives.len()
                )
            } else {
                String::new()
            };
            let sites = if place.site_count > 1 {
                format!("{} sites, the first ", place.site_count)
            } else {
                String::new()
            };
            let _ = write!(
                out,
                "{} {sites}at {:#x} ({}: {}{of})",
                place.symbol, place.offset, place.cost, place.why
            );
        }
    }
    if let (Some(hits), Some(seconds)) = (probe.hits, seconds) {
        let _ = match (hits, probe.level) {
            (0, Level::Calm) => write!(out, "; silent for {seconds:.1} s (normal: a slow path)"),
            (0, Level::Suspect) => write!(out, "; silent for {seconds:.1} s"),
            _ => write!(out, "; {:.0} passings a second", hits as f64 / seconds),
        };
    }
    out.push('\n');
}

fn resource(out: &mut String, resource: &ResourceReport) {
    let state = match &resource.blind {
        None => "not tried (no process)".to_owned(),
        Some(Some(reason)) => format!("blind: {reason}"),
        Some(None) if resource.waiting == 0 => "seen; nobody waits at this moment".to_owned(),
        Some(None) => format!(
            "seen; {} waiting, {} of them confirmed by the futex that their thread blocks on",
            resource.waiting, resource.confirmed_by_futex
        ),
    };
    let _ = writeln!(out, "  {:<16} {state}", resource.name);
}

fn initiator(out: &mut String, initiator: &InitiatorReport) {
    let _ = write!(out, "\nending a task: {}", initiator.rungs.join(" > "));
    let _ = match &initiator.permission {
        None => writeln!(out, " (permission not tried)"),
        Some(Ok(())) => writeln!(out, " (tried on an own idle session: allowed)"),
        Some(Err(reason)) => writeln!(out, " (tried: {reason})"),
    };
}
