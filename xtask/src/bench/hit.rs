//! `bench hit`: what one passing costs with our program at a site, beside an empty program at the same site.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::overhead_table::percent;
use super::program::{build_tests, said_by};
use super::stats::{Interval, Spread};
use super::{Common, SCHEMA_VERSION};
use crate::demo::watch::ask_for_root;
use crate::process::as_root;

/// The test that measures, some rounds of it.
const TEST: &str = "cost::our_program_beside_an_empty_one_at_the_same_site";

/// What comes before each round's numbers.
const MARK: &str = "passings ";

/// The verb `bench hit`.
#[derive(clap::Args)]
pub(super) struct HitBench {
    #[command(flatten)]
    common: Common,
}

/// One kind of passing in one round.
#[derive(Clone, Debug, Deserialize)]
struct Passing {
    kind: String,
    empty_ns: f64,
    ours_ns: f64,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    kind: &'static str,
    hits: Vec<Hit>,
}

/// One kind of passing in all rounds.
#[derive(Serialize)]
struct Hit {
    /// How the probe sits there, and what our program does.
    kind: String,
    /// With an empty program, nanoseconds.
    empty_ns: Spread,
    /// With ours, nanoseconds.
    ours_ns: Spread,
    /// Ours over the empty one, in the same round.
    ratio: Interval,
}

impl HitBench {
    pub(super) fn run(&self) -> Result<()> {
        let executable = build_tests("kernel")?;
        ask_for_root()?;
        let hits = hits(&rounds(&said_by(as_root(&executable)?, TEST)?)?);
        ensure!(!hits.is_empty(), "the test does not tell what it measured");
        println!(
            "| passing | empty program, ns | ours, ns | more: median [95 % interval] |\n|---|---|---|---|"
        );
        for hit in &hits {
            println!(
                "| {} | {:.0} | {:.0} | {} |",
                hit.kind,
                hit.empty_ns.median,
                hit.ours_ns.median,
                percent(hit.ratio.median, hit.ratio.low, hit.ratio.high),
            );
        }
        self.common.write(&Report {
            schema_version: SCHEMA_VERSION,
            kind: "hit",
            hits,
        })
    }
}

/// What the test says of each round. The harness may write the test's name before the first.
fn rounds(output: &str) -> Result<Vec<Vec<Passing>>> {
    let texts = output.lines().filter_map(|line| line.split_once(MARK));
    texts
        .map(|(_, text)| Ok(serde_json::from_str(text)?))
        .collect()
}

fn hits(rounds: &[Vec<Passing>]) -> Vec<Hit> {
    let kinds = rounds.first().into_iter().flatten();
    let hit = |(at, first): (usize, &Passing)| {
        let all: Vec<&Passing> = rounds.iter().filter_map(|round| round.get(at)).collect();
        Some(Hit {
            kind: first.kind.clone(),
            empty_ns: Spread::of(all.iter().map(|one| one.empty_ns))?,
            ours_ns: Spread::of(all.iter().map(|one| one.ours_ns))?,
            ratio: Interval::of(all.iter().map(|one| one.ours_ns / one.empty_ns))?,
        })
    };
    kinds.enumerate().filter_map(hit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_compared_within_its_round() {
        let output = concat!(
            "test cost::our_program ... passings [{\"kind\":\"usdt\",\"empty_ns\":500.0,\"ours_ns\":550.0}]\n",
            "passings [{\"kind\":\"usdt\",\"empty_ns\":1000.0,\"ours_ns\":1100.0}]\n",
            "ok\n",
        );
        let hits = hits(&rounds(output).unwrap());
        assert_eq!(hits.len(), 1);
        assert!((hits[0].empty_ns.median - 750.0).abs() < 1e-9);
        assert!((hits[0].ratio.low - 1.1).abs() < 1e-9 && (hits[0].ratio.high - 1.1).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        assert!(rounds("passings [{]").is_err());
        assert!(rounds("nothing").unwrap().is_empty());
    }
}
