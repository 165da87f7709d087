//! `[cancel.exact]`: where a session's own thread finds an order, and how it tells which request it is at.

use std::str::FromStr as _;
use std::time::Duration;

use atropos_common::op::Op;
use nix::sys::signal::Signal;

use super::super::expr::PROBE_VARIABLES;
use super::super::fields::Fields;
use super::super::preset::{Alternative, Exact, Formula, Guard, Location, Probe};
use super::super::schema;
use super::super::scope::Scope;
use super::super::source::Located;
use super::places::{location, registers_are_there};
use super::probes::{compiles, guard};
use crate::engine::record::Level;

/// Most places: each is attached and detached for every order.
const MAX_PLACES: usize = 16;

/// Longest time that an order may wait to be found, milliseconds: the rung's ordinary command waits behind it.
const MAX_WITHIN: Duration = Duration::from_secs(1);

/// Signals that a program can take as a mere wake-up. All others end or stop one that does not expect them even more often.
const NUDGES: [&str; 2] = ["SIGUSR1", "SIGUSR2"];

/// What is said for every place.
struct Common {
    session: Formula,
    request: Formula,
    guard: Option<Guard>,
}

/// Reads the table.
pub(super) fn read(fields: &Fields<'_>, scope: &Scope<'_>) -> Option<Exact> {
    let at_site = &scope.with(PROBE_VARIABLES);
    let formula = |key| {
        fields
            .formula(key, at_site)
            .filter(|formula| compiles(fields, formula, &formula.value))
    };
    let (session, request) = (formula("session"), formula("request"));
    let when = fields.formula("when", at_site);
    let guard = when.as_ref().map(|when| guard(fields, when));
    let tables = fields.tables("at", &schema::EXACT_PLACE);
    let found: Vec<_> = tables
        .iter()
        .map(|fields| (fields, location(fields)))
        .collect();
    if fields.entry("at").is_some() && (tables.is_empty() || tables.len() > MAX_PLACES) {
        fields.wrong(
            "at",
            format!("{} places", tables.len()),
            format!("allowed: 1 to {MAX_PLACES}, such as `at = [{{ symbol = \"ResetLatch\" }}]`"),
        );
    }
    let within = within(fields);
    let nudges: Vec<_> = NUDGES
        .iter()
        .filter_map(|name| Some((*name, Signal::from_str(name).ok()?)))
        .collect();
    let nudge = fields
        .entry("nudge")
        .map(|_| fields.choice("nudge", "signal", &nudges));
    // Everything has been looked at, so that every mistake is told.
    let common = Common {
        session: session?,
        request: request?,
        guard: guard.map_or(Some(None), |guard| guard.map(Some))?,
    };
    Some(Exact {
        places: found
            .into_iter()
            .filter_map(|(fields, location)| Some(place(fields, location?, &common)))
            .collect(),
        within: within?,
        nudge: nudge.map_or(Some(None), |nudge| nudge.map(Some))?,
    })
}

/// How long an order may wait.
fn within(fields: &Fields<'_>) -> Option<Duration> {
    let within = Duration::from_nanos(fields.duration_ns("within")?);
    if within > MAX_WITHIN {
        fields.wrong(
            "within",
            "the rung's ordinary command would come too late",
            format!("allowed: up to {} s", MAX_WITHIN.as_secs()),
        );
        return None;
    }
    Some(within)
}

/// One place, as a probe of its own.
fn place(fields: &Fields<'_>, found: Location, common: &Common) -> Probe {
    let name = match &found {
        Location::Symbol { pattern, .. } | Location::Usdt { pattern } => pattern.clone(),
        Location::Address { address, .. } => format!("{address:#x}"),
    };
    let alternative = Alternative {
        location: Located {
            value: found,
            place: fields.place.clone(),
        },
        library: fields.text("library").map(|library| library.value),
        at_return: false,
        session: common.session.clone(),
        instance: None,
        value: Some(common.request.clone()),
        guard: common.guard.clone(),
    };
    registers_are_there(&alternative, fields);
    Probe {
        name: Located {
            value: name,
            place: fields.place.clone(),
        },
        level: Level::Suspect,
        op: Op::Killed,
        resource: None,
        alternatives: vec![alternative],
        sample: None,
        // Passed once for each order, by the process that the order is for.
        allow_expensive: true,
        hot: false,
        priority: 0,
    }
}
