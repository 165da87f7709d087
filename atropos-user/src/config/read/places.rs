//! Where a probe can sit, and what its expressions can see there.

use super::super::expr::{NameKind, PROBE_VARIABLES};
use super::super::fields::Fields;
use super::super::preset::{Alternative, Location};
use super::super::problem::Problem;

/// Where the place is.
pub(super) fn location(fields: &Fields<'_>) -> Option<Location> {
    let (symbol, build_id) = (fields.text("symbol"), fields.text("build_id"));
    let number = |key: &str| {
        fields
            .integer(key, 0, i64::MAX)
            .and_then(|number| u64::try_from(number).ok())
    };
    let either = "write `symbol` (and `offset`), or `address` and `build_id`, or `usdt`";
    if fields.entry("usdt").is_some() {
        return usdt(fields, either);
    }
    match (symbol, fields.entry("address").is_some(), build_id) {
        (Some(symbol), false, None) => {
            let offset = fields
                .entry("offset")
                .map_or(Some(0), |_| number("offset"))?;
            Some(Location::Symbol {
                pattern: symbol.value,
                offset,
            })
        }
        (None, true, Some(build_id)) if fields.entry("offset").is_none() => {
            let hex = build_id.len() >= 8 && build_id.chars().all(|c| c.is_ascii_hexdigit());
            if !hex {
                fields.wrong(
                    "build_id",
                    "this is not the beginning of a build id",
                    "write at least 8 hexadecimal digits of it",
                );
                return None;
            }
            Some(Location::Address {
                address: number("address")?,
                build_id: build_id.value.to_ascii_lowercase(),
            })
        }
        (None, true, None) => {
            let help = "add `build_id`: an address is right for one build only";
            fields
                .report
                .add(Problem::at(fields.place, "an `address` without a `build_id`").help(help));
            None
        }
        _ => {
            fields
                .report
                .add(Problem::at(fields.place, "this does not say one place").help(either));
            None
        }
    }
}

/// A USDT probe.
fn usdt(fields: &Fields<'_>, either: &str) -> Option<Location> {
    let pattern = fields.text("usdt")?;
    let others = ["symbol", "offset", "address", "build_id"];
    if let Some(other) = others.iter().find(|other| fields.entry(other).is_some()) {
        fields.wrong(
            other,
            format!("a place with `usdt` has no `{other}`"),
            either,
        );
        return None;
    }
    let whole = pattern.split_once(':').is_some_and(|(provider, name)| {
        let fine = |part: &str| {
            !part.is_empty() && !part.contains(|c: char| c == ':' || c.is_whitespace())
        };
        fine(provider) && fine(name)
    });
    if !whole {
        fields.wrong(
            "usdt",
            "this is not the name of a USDT probe",
            "write `provider:name`; `*` stands for any characters",
        );
        return None;
    }
    Some(Location::Usdt {
        pattern: pattern.value,
    })
}

/// Whether the place is the function's return; that kills a target whose exceptions unwind through it.
pub(super) fn at_return(fields: &Fields<'_>) -> bool {
    let (at_return, unwinds) = (
        fields.flag("at_return", false),
        fields.flag("unwinds", true),
    );
    if at_return && fields.entry("usdt").is_some() {
        fields.wrong("at_return", "a USDT probe has no return", "remove the line");
        return false;
    }
    if at_return && unwinds {
        let help = "if no exception can leave the function, say so with `unwinds = false`; else mark the end by the entry of another function";
        fields.wrong(
            "at_return",
            "a return probe on a function that an exception unwinds through ends the target",
            help,
        );
    }
    at_return
}

/// Arguments are gone at a return, and the result is not there before it.
pub(super) fn registers_are_there(alternative: &Alternative, fields: &Fields<'_>) {
    let at_usdt = matches!(alternative.location.value, Location::Usdt { .. });
    let formulas = [
        Some(&alternative.session),
        alternative.instance.as_ref(),
        alternative.value.as_ref(),
    ];
    let guard = alternative.guard.as_ref().map(|guard| &guard.subject);
    for formula in formulas.into_iter().flatten().chain(guard) {
        for name in formula.names(NameKind::Variable) {
            let message = match name.text.as_str() {
                "ret" if !alternative.at_return => "`ret` is there at a return only".to_owned(),
                text if text.starts_with("arg") && alternative.at_return => {
                    format!("`{text}` is gone at the return")
                }
                text if !at_usdt && !PROBE_VARIABLES.contains(&text) => {
                    format!(
                        "`{text}` is there at a USDT probe only: six arguments are in registers"
                    )
                }
                _ => continue,
            };
            let place = formula
                .place
                .within(formula.text(), name.offset, name.text.len());
            let help = format!("this holds for the place at {}", fields.place);
            fields.report.add(Problem::at(&place, message).help(help));
        }
    }
}
