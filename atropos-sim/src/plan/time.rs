//! Times as a scenario writes them.

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::world::rng::Time;

/// `~5ms` is exponential around 5 ms; `5ms` is always 5 ms.
pub(super) fn time(text: &str) -> Result<Time> {
    Ok(match text.strip_prefix('~') {
        Some(mean) => Time::Exp(nanos(mean)?),
        None => Time::Fixed(nanos(text)?),
    })
}

/// `250us`, `5ms`, `1.5s`, `2m`.
pub(crate) fn nanos(text: &str) -> Result<u64> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => {
            return Err(anyhow!(
                "`{text}` is no time: write it like 250us, 5ms, 1.5s or 2m"
            ));
        }
    };
    let number: f64 = number
        .trim()
        .parse()
        .with_context(|| format!("`{text}` is no time"))?;
    ensure!(number >= 0.0, "`{text}` is negative");
    Ok((number * unit_ns).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(nanos("1.5s").unwrap(), 1_500_000_000);
        assert_eq!(time("~250us").unwrap(), Time::Exp(250_000));
        assert!(nanos("5").is_err());
        assert!(nanos("5 parsecs").is_err());
    }
}
