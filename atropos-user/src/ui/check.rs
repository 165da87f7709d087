//! `atropos check` as text.

use std::fmt::Write as _;

use crate::agent::check::{
    ExactReport, Fired, InitiatorReport, OrderPlace, PlaceReport, ProbeReport, Report,
    ResourceReport, Sight, Target,
};
use crate::agent::tell::costs_text;
use crate::engine::record::Level;
use crate::governor::Standing;

/// The report as text.
#[must_use]
pub fn text(report: &Report) -> String {
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
        probe(&mut out, one);
    }
    if let Some(costs) = &report.costs {
        let (calm, suspect) = report.budget;
        let _ = writeln!(
            out,
            "  {}\n  budget: {} % of the target's CPU time in calm, {} % when suspect",
            costs_text(costs),
            calm * 100.0,
            suspect * 100.0
        );
    }
    if let Some(count) = report.lost_count.filter(|count| *count > 0) {
        let _ = writeln!(out, "  lost: {count} events");
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

fn probe(out: &mut String, probe: &ProbeReport) {
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
            out.push_str(&place_text(place, &of));
        }
    }
    if let Some(why) = &probe.refused {
        let _ = write!(out, "; the kernel refuses it: {why}");
    }
    if let Some(one) = &probe.fired {
        fired(out, probe, one);
    }
    out.push('\n');
}

/// Where something sits, with more to say of it.
fn place_text(place: &PlaceReport, more: &str) -> String {
    let PlaceReport {
        alternative: _,
        symbol,
        file,
        offset,
        site_count,
        cost,
        why,
    } = place;
    let sites = if *site_count > 1 {
        format!("{site_count} sites, the first ")
    } else {
        String::new()
    };
    format!("{symbol} {sites}at {offset:#x} of {file} ({cost}: {why}{more})")
}

/// How a probe fared, and what would be done about what it costs.
fn fired(out: &mut String, probe: &ProbeReport, fired: &Fired) {
    let Fired {
        attached_s,
        per_s,
        silent_s,
        cost_ns,
        share,
        lost_count,
    } = fired;
    let _ = match (probe.hits, probe.level) {
        (Some(0) | None, Level::Calm) => {
            write!(out, "; silent for {attached_s:.1} s (normal: a slow path)")
        }
        (Some(0) | None, Level::Suspect) => write!(out, "; silent for {attached_s:.1} s"),
        _ => write!(
            out,
            "; {per_s:.0} passings a second at {cost_ns:.0} ns, the last {silent_s:.1} s ago, {:.2} % of the target's CPU time",
            share * 100.0
        ),
    };
    if *lost_count > 0 {
        let _ = write!(out, "; {lost_count} passings could not be read");
    }
    for (standing, level) in [(probe.calm, "calm"), (probe.suspect, "suspect")] {
        if let Some(standing) = standing.filter(|standing| *standing != Standing::Whole) {
            let _ = write!(out, "; over budget when {level}: {standing}");
        }
    }
}

fn resource(out: &mut String, resource: &ResourceReport) {
    let waiting = match (resource.waiting, resource.confirmed_by_futex) {
        (0, _) => "nobody waits at this moment".to_owned(),
        (waiting, confirmed) => format!(
            "{waiting} waiting, {confirmed} of them confirmed by the futex that their thread blocks on"
        ),
    };
    let reasons = resource.reasons.join("; ");
    let state = match resource.sight {
        None => "not tried (no process)".to_owned(),
        Some(Sight::Blind) => format!("blind: {reasons}"),
        Some(Sight::PartlyBlind) => format!("partly blind: {reasons}; {waiting}"),
        Some(Sight::Seen) if reasons.is_empty() => format!("seen; {waiting}"),
        Some(Sight::Seen) => format!("seen: {reasons}"),
    };
    let _ = writeln!(out, "  {:<16} {state}", resource.name);
}

fn initiator(out: &mut String, initiator: &InitiatorReport) {
    let _ = write!(out, "\nending a task: {}", initiator.rungs.join(" > "));
    let how = match initiator.initiator {
        "signal" => "tried with signal 0",
        "exec" => "the programs were looked at",
        _ => "tried on an own idle session",
    };
    let _ = match &initiator.permission {
        None => writeln!(out, " (permission not tried; --try-cancel does)"),
        Some(Ok(())) => writeln!(out, " ({how}: allowed)"),
        Some(Err(reason)) => writeln!(out, " ({how}: {reason})"),
    };
    if let Some(exact) = &initiator.exact {
        exact_way(out, exact);
    }
}

/// Where a session's own thread finds an order.
fn exact_way(out: &mut String, exact: &ExactReport) {
    let ExactReport { within_ms, places } = exact;
    let _ = writeln!(
        out,
        "  before that, within {within_ms} ms, a session's own thread finds its order at"
    );
    for OrderPlace { name, place } in places {
        let _ = match place {
            None => writeln!(out, "    {name}"),
            Some(Ok(place)) => writeln!(out, "    {}", place_text(place, "")),
            Some(Err(tried)) => writeln!(out, "    {name}: no place: {}", tried.join("; ")),
        };
    }
    let is_missing = |one: &OrderPlace| matches!(one.place, Some(Err(_)));
    if places.iter().all(is_missing) {
        let _ = writeln!(
            out,
            "    none of them: every order goes the ordinary way, by command"
        );
    }
}
