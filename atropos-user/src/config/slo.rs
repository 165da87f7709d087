//! The objective as it is typed on the command line: `p99=20ms`, `p99=+20%`, `p99=+20%,floor=5ms`.

use super::duration;
use super::problem::Problem;
use super::source::{Place, Source};
use crate::engine::settings::{Slo, SloLimit};

/// Floor of a relative objective that names none: below 5 ms few clients notice a fifth more.
pub const DEFAULT_FLOOR_NS: u64 = 5_000_000;

/// What is allowed, for error messages.
const ALLOWED: &str = "`p99=20ms` (absolute), `p99=+20%` (above what is usual) or `p99=+20%,floor=5ms` (and never below 5 ms)";

/// Reads an objective.
pub fn parse_slo(text: &str) -> Result<Slo, Problem> {
    let source = Source::new("--slo", text);
    let wrong = |from: usize, len: usize, message: String| {
        Problem::at(&Place::new(&source, from..from + len), message)
            .help(format!("allowed: {ALLOWED}"))
    };
    let (goal, floor) = match text.split_once(',') {
        Some((goal, floor)) => (goal, Some(floor)),
        None => (text, None),
    };
    let Some((percentile, limit)) = goal.split_once('=') else {
        return Err(wrong(
            0,
            goal.len(),
            "an objective has the form percentile=limit".to_owned(),
        ));
    };
    let percentile =
        parse_percentile(percentile).map_err(|message| wrong(0, percentile.len(), message))?;
    let limit_at = goal.len() - limit.len();
    let limit = match (limit.strip_prefix('+'), floor) {
        (Some(share), floor) => {
            let above =
                parse_share(share).map_err(|message| wrong(limit_at, limit.len(), message))?;
            let floor_ns = floor.map_or(Ok(DEFAULT_FLOOR_NS), parse_floor);
            let floor_ns = floor_ns
                .map_err(|message| wrong(goal.len() + 1, text.len() - goal.len() - 1, message))?;
            SloLimit::Relative { above, floor_ns }
        }
        (None, Some(floor)) => {
            let message = "only a relative objective has a floor".to_owned();
            return Err(wrong(goal.len() + 1, floor.len(), message));
        }
        (None, None) => {
            let ns = parse_limit(limit).map_err(|message| wrong(limit_at, limit.len(), message))?;
            SloLimit::Absolute { ns }
        }
    };
    Ok(Slo { percentile, limit })
}

/// `p99.9` to 99.9.
fn parse_percentile(text: &str) -> Result<f64, String> {
    let number = text
        .strip_prefix('p')
        .filter(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    let percentile = number.and_then(|number| number.parse::<f64>().ok());
    percentile
        .filter(|percentile| *percentile > 0.0 && *percentile < 100.0)
        .ok_or_else(|| {
            format!("`{text}` is not a percentile: `p` and a number above 0 and below 100")
        })
}

/// `20%` to 0.2.
fn parse_share(text: &str) -> Result<f64, String> {
    share_of(text).ok_or_else(|| format!("`+{text}` is not a share above 0 in per cent"))
}

/// `20%` to 0.2, if it is a share above 0.
pub(super) fn share_of(text: &str) -> Option<f64> {
    let number = text
        .strip_suffix('%')
        .filter(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    let share = number
        .and_then(|number| number.parse::<f64>().ok())
        .map(|percent| percent / 100.0);
    share.filter(|share| share.is_finite() && *share > 0.0)
}

/// A limit above zero.
fn parse_limit(text: &str) -> Result<u64, String> {
    match duration::parse_ns(text)? {
        0 => Err("a limit of zero is always broken".to_owned()),
        ns => Ok(ns),
    }
}

/// `floor=5ms` to nanoseconds.
fn parse_floor(text: &str) -> Result<u64, String> {
    let limit = text
        .trim_start()
        .strip_prefix("floor=")
        .ok_or_else(|| format!("`{text}` is not a floor"))?;
    duration::parse_ns(limit)
}
