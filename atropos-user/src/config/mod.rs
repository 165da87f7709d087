//! The probe config: as typed -> as meant; every mistake with file, line, caret and hint (`docs/config.md`).
//!
//! A text becomes a [`tree`] that knows where everything stands; a file that extends another is laid over it ([`extends`]);
//! [`read`] turns the tree into a [`Preset`], reporting all mistakes and not only the first. A [`Preset`] cannot be wrong
//! any more; only the process that it is applied to can be another one than it expects.

pub mod classify;
mod duration;
pub mod expr;
mod extends;
mod fields;
mod overlay;
mod preset;
mod problem;
mod read;
mod resolve;
mod schema;
mod scope;
mod settings;
mod slo;
mod source;
mod tree;
mod trust;

#[cfg(test)]
mod tests;

pub use preset::*;
pub use problem::{Problem, Problems};
pub use resolve::Lookup;
pub use slo::{DEFAULT_FLOOR_NS, parse_slo};
pub use source::{Located, Place, Source};

use extends::Origin;
use problem::Report;

include!(concat!(env!("OUT_DIR"), "/presets.rs"));

/// Reads a preset: an embedded one by its name, or a file by its path (anything with a `/`, or ending in `.toml`).
pub fn load(name_or_path: &str) -> Result<Preset, Problems> {
    let report = Report::default();
    let tree = Origin::named(name_or_path).and_then(|origin| extends::load(&origin, &report));
    finish(tree, report)
}

/// Reads a preset from a text that lies in no file; it may extend embedded presets only. `name` is what errors call it.
pub fn parse(name: &str, text: &str) -> Result<Preset, Problems> {
    let report = Report::default();
    let tree = extends::load(&Origin::Text(Source::new(name, text)), &report);
    finish(tree, report)
}

/// The presets inside the binary: name and text, sorted by name.
pub fn embedded() -> &'static [(&'static str, &'static str)] {
    EMBEDDED
}

/// The embedded presets whose server has a program of this file name. Which of them it is, the symbols of the binary
/// tell ([`Match::symbols`]).
pub fn recognise(program_file_name: &str) -> Vec<Preset> {
    let presets = EMBEDDED.iter().filter_map(|(name, _)| load(name).ok());
    presets
        .filter(|preset| {
            preset
                .matching
                .programs
                .iter()
                .any(|program| program == program_file_name)
        })
        .collect()
}

/// Reads the tree, unless it could not be had.
fn finish(tree: Result<extends::Tree, Problem>, report: Report) -> Result<Preset, Problems> {
    let preset = match tree {
        Ok(Some((table, place))) => read::preset(&table, &place, &report),
        Ok(None) => None,
        Err(problem) => {
            report.add(problem);
            None
        }
    };
    match preset {
        Some(preset) if report.is_empty() => Ok(preset),
        _ => Err(report.finish()),
    }
}

/// The name that looks most like `wanted`, if one does.
pub(crate) fn nearest<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let alike = |name: &str| strsim::jaro_winkler(&wanted.to_lowercase(), &name.to_lowercase());
    let scored = known.into_iter().map(|name| (alike(name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.75).then_some(best.1)
}
