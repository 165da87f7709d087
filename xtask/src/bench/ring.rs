//! `bench ring`: the kernel test that counts every event at full speed, optimised, a few times.

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::program::{build_tests, said_by};
use super::stats::Spread;
use super::{Common, SCHEMA_VERSION};
use crate::demo::watch::ask_for_root;
use crate::process::as_root;

/// The test; it fails if one event is lost.
const TEST: &str = "loss::nothing_is_lost_at_two_hundred_thousand_events_a_second_and_forced_loss_is_counted_exactly";

/// The verb `bench ring`.
#[derive(clap::Args)]
pub(super) struct RingBench {
    /// Runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    kind: &'static str,
    /// Events a second, none of them lost.
    events_per_s: Option<Spread>,
}

impl RingBench {
    pub(super) fn run(&self) -> Result<()> {
        let executable = build_tests("kernel")?;
        ask_for_root()?;
        let mut rates = Vec::new();
        for number in 1..=self.runs {
            let output = said_by(as_root(&executable)?, TEST)?;
            let rate = parse_rate(&output)
                .with_context(|| format!("the test does not tell its rate: {output}"))?;
            println!("ring {number:>3}: {rate:.0} events a second, none lost");
            rates.push(rate);
        }
        let spread = Spread::of(rates);
        if let Some(Spread {
            min, median, max, ..
        }) = spread
        {
            println!(
                "\nevents a second, none lost: min {min:.0}, median {median:.0}, max {max:.0}   (aim: 200000)"
            );
        }
        self.common.write(&Report {
            schema_version: SCHEMA_VERSION,
            kind: "ring",
            events_per_s: spread,
        })
    }
}

fn parse_rate(output: &str) -> Option<f64> {
    let line = output
        .lines()
        .find(|line| line.ends_with("events a second, none lost"))?;
    // The harness writes the test's name before what the test prints.
    line.split(" events a second")
        .next()?
        .split_whitespace()
        .last()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_the_test_prints() {
        assert_eq!(
            parse_rate("running 1 test\n415290 events a second, none lost\nok\n"),
            Some(415_290.0)
        );
        assert_eq!(
            parse_rate("test nothing_is_lost ... 415290 events a second, none lost\n"),
            Some(415_290.0)
        );
        assert_eq!(parse_rate("test result: ok"), None);
    }
}
