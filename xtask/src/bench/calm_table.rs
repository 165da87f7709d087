//! What came of the rounds of `bench calm`: ratios with their intervals, the arithmetic of hits beside them, a table. Pure.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::calm::{Level, Round, Sample};
use super::stats::{Interval, Mean, Spread};
use super::subject::{THREADS, Workload};

/// Share of the time for which the request probes are attached in calm: 100 ms every 5 s, as the presets of both servers say.
const CALM_DUTY: f64 = 0.1 / 5.0;

/// What these probes tell.
const SAMPLED: [&str; 2] = ["RequestBegin", "RequestEnd"];

/// How often a probe fires.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Hits {
    /// Probe.
    pub(super) probe: String,
    /// Attached in calm, not only when suspect.
    pub(super) calm: bool,
    /// Attached in calm for a part of the time.
    pub(super) sampled: bool,
    /// Passings a second.
    pub(super) per_s: f64,
    /// Passings a query.
    pub(super) per_query: f64,
    /// What `atropos check` makes of the cost of a passing, nanoseconds: what its fixture measured, doubled for a server's colder
    /// caches as the agent's governor does.
    pub(super) cost_ns: f64,
}

/// How much colder than the fixture's a server's caches are taken to be (`COLD` of the governor).
const COLD: f64 = 2.0;

impl Hits {
    /// Out of the report of `atropos check`, which counted while so many queries were answered a second.
    pub(super) fn of(report: &Value, queries_per_s: f64) -> Vec<Self> {
        let probes = report["probes"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let hits = probes.iter().map(|probe| {
            let per_s = probe["fired"]["per_s"].as_f64().unwrap_or(0.0);
            Self {
                probe: probe["name"].as_str().unwrap_or("?").to_owned(),
                calm: probe["level"] == "calm",
                sampled: SAMPLED.iter().any(|op| probe["op"] == *op),
                per_s,
                per_query: per_s / queries_per_s.max(1.0),
                cost_ns: probe["fired"]["cost_ns"].as_f64().unwrap_or(0.0) * COLD,
            }
        });
        hits.collect()
    }

    /// Passings a query at a level; in calm the request probes are attached for a part of the time.
    pub(super) fn per_query_at(&self, level: Level) -> f64 {
        match level {
            Level::Calm if self.sampled => self.per_query * CALM_DUTY,
            Level::Calm if !self.calm => 0.0,
            Level::Calm | Level::Suspect => self.per_query,
        }
    }

    /// What all passings of a query cost at a level by that, nanoseconds.
    pub(super) fn cost_at_ns(hits: &[Self], level: Level) -> f64 {
        hits.iter()
            .map(|hit| hit.per_query_at(level) * hit.cost_ns)
            .sum()
    }
}

/// A workload, the server alone against the server watched.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    /// Workload.
    workload: Workload,
    /// Length of each slice.
    slice_seconds: u64,
    /// CPU time of the server alone for each query, nanoseconds.
    alone_per_query_ns: Option<Spread>,
    /// Queries a second of the server alone.
    alone_queries_per_s: Option<Spread>,
    /// One for each level.
    levels: Vec<Watched>,
    /// How often each probe fires.
    hits: Vec<Hits>,
    /// What a hit costs the server, nanoseconds: the mean difference between suspect and alone, over the hits. Known only where no
    /// budget keeps probes away from some of the requests.
    hit_ns: Option<Mean>,
    /// What calm must cost by that, as a share of the CPU time.
    calm_by_hits: Option<Mean>,
    /// Each round.
    rounds: Vec<Round>,
}

/// The server watched at one level.
#[derive(Debug, Serialize)]
struct Watched {
    level: Level,
    /// CPU time of the server for each query, nanoseconds.
    per_query_ns: Option<Spread>,
    /// The same over that of the run alone in the same round.
    ratio: Option<Interval>,
    /// The mean of the same ratios.
    mean: Option<Mean>,
    /// Queries a second.
    queries_per_s: Option<Spread>,
    /// CPU time of the agent as a share of one core.
    agent_cores: Option<Spread>,
    /// The most memory that the agent had in any run, bytes.
    agent_peak_bytes: Option<u64>,
    /// The most memory that it had at the end of a run, bytes.
    agent_rss_bytes: Option<u64>,
    /// How often it began to watch closely, over all runs.
    suspicions: usize,
    /// Passings a query of each probe, as far as level, sample and budget let it be attached.
    passings: Vec<f64>,
    /// What these cost by what `atropos check` makes of each, as a share of the CPU time.
    by_costs: Option<f64>,
}

impl Comparison {
    /// Works the rounds out.
    pub(super) fn new(
        workload: Workload,
        slice_seconds: u64,
        levels: &[Level],
        rounds: Vec<Round>,
        hits: Vec<Hits>,
        unbounded: bool,
    ) -> Self {
        let alone = || rounds.iter().map(|round| &round.alone);
        let alone_per_query_ns = Spread::of(alone().map(Sample::per_query_ns));
        let levels: Vec<Watched> = levels
            .iter()
            .enumerate()
            .map(|(index, level)| Watched::new(*level, index, &rounds, &hits, alone_per_query_ns))
            .collect();
        let at = |level: Level| levels.iter().find(|watched| watched.level == level);
        let passings = |watched: &Watched| watched.passings.iter().sum::<f64>();
        let every = at(Level::Suspect).map_or(0.0, passings);
        let added = at(Level::Suspect)
            .and_then(|watched| watched.mean)
            .filter(|_| unbounded && every > 0.0)
            .map(|mean| mean.map(|ratio| ratio - 1.0));
        let hit_ns = added.zip(alone_per_query_ns);
        let hit_ns = hit_ns.map(|(added, alone)| added.map(|share| share * alone.median / every));
        let calm_by_hits = added
            .zip(at(Level::Calm))
            .map(|(added, calm)| added.map(|share| share * passings(calm) / every));
        Self {
            workload,
            slice_seconds,
            alone_per_query_ns,
            alone_queries_per_s: Spread::of(alone().map(queries_per_s)),
            levels,
            hits,
            hit_ns,
            calm_by_hits,
            rounds,
        }
    }
}

impl Watched {
    fn new(
        level: Level,
        index: usize,
        rounds: &[Round],
        hits: &[Hits],
        alone_per_query_ns: Option<Spread>,
    ) -> Self {
        let samples = || {
            rounds
                .iter()
                .filter_map(move |round| round.watched.get(index))
        };
        let ratios = rounds.iter().filter_map(|round| {
            Some(round.watched.get(index)?.per_query_ns() / round.alone.per_query_ns())
        });
        let ratios: Vec<f64> = ratios.collect();
        let share = |probe: usize| {
            let shares = samples().map(|sample| sample.shares.get(probe).copied().unwrap_or(1.0));
            shares.sum::<f64>() / samples().count().max(1) as f64
        };
        let passings: Vec<f64> = hits
            .iter()
            .enumerate()
            .map(|(probe, hit)| hit.per_query_at(level) * share(probe))
            .collect();
        let costs_ns = passings
            .iter()
            .zip(hits)
            .map(|(passings, hit)| passings * hit.cost_ns);
        let by_costs = alone_per_query_ns.map(|alone| costs_ns.sum::<f64>() / alone.median);
        let agents =
            || samples().filter_map(|sample| Some((sample.agent.as_ref()?, sample.wall_ns)));
        Self {
            level,
            per_query_ns: Spread::of(samples().map(Sample::per_query_ns)),
            ratio: Interval::of(ratios.iter().copied()),
            mean: Mean::of(&ratios),
            queries_per_s: Spread::of(samples().map(queries_per_s)),
            agent_cores: Spread::of(
                agents().map(|(agent, wall_ns)| agent.cpu_ns as f64 / wall_ns as f64),
            ),
            agent_peak_bytes: agents().map(|(agent, _)| agent.peak_bytes).max(),
            agent_rss_bytes: agents().map(|(agent, _)| agent.rss_bytes).max(),
            suspicions: agents().map(|(agent, _)| agent.suspicions).sum(),
            passings,
            by_costs,
        }
    }
}

fn queries_per_s(sample: &Sample) -> f64 {
    sample.query_count as f64 * 1e9 / sample.wall_ns.max(1) as f64
}

/// The table for people.
pub(super) fn table(comparison: &Comparison) -> String {
    let Comparison {
        workload,
        slice_seconds,
        alone_per_query_ns,
        alone_queries_per_s,
        levels,
        hits,
        rounds,
        ..
    } = comparison;
    let name = workload.name();
    let mut text = format!(
        "{name}, {} rounds of {slice_seconds} s in each state, {THREADS} threads\n",
        rounds.len()
    );
    let unit = workload.unit();
    let _ = writeln!(
        text,
        "  (per {unit})  us CPU   per second    against alone: median, interval; mean, interval           agent: of a core   RSS MB   peak MB   suspect"
    );
    let middle = |spread: &Option<Spread>| spread.map_or(f64::NAN, |spread| spread.median);
    let (alone_ns, alone_per_s) = (middle(alone_per_query_ns), middle(alone_queries_per_s));
    let _ = writeln!(
        text,
        "  alone     {:>12.2}{alone_per_s:>12.0}",
        alone_ns / 1e3
    );
    for watched in levels {
        text += &row(watched);
    }
    let _ = write!(text, "  probes, passings a second (a {unit}):");
    for Hits {
        probe,
        per_s,
        per_query,
        ..
    } in hits
    {
        let _ = write!(text, "  {probe} {per_s:.0} ({per_query:.3})");
    }
    text += "\n";
    for watched in levels {
        if let Some(share) = watched.by_costs {
            let _ = writeln!(
                text,
                "  {}: {:.3} passings a {unit}, {:.2} % by the cost that check tells of each",
                watched.level.name(),
                watched.passings.iter().sum::<f64>(),
                share * 100.0
            );
        }
    }
    if let (Some(hit_ns), Some(calm)) = (comparison.hit_ns, comparison.calm_by_hits) {
        let _ = writeln!(
            text,
            "  by arithmetic: {:.0} ns [{:.0}, {:.0}] a passing (suspect less alone), so calm costs {:+.3} % [{:+.3}, {:+.3}]",
            hit_ns.value,
            hit_ns.low,
            hit_ns.high,
            calm.value * 100.0,
            calm.low * 100.0,
            calm.high * 100.0
        );
    }
    text
}

fn row(watched: &Watched) -> String {
    let Watched {
        level,
        per_query_ns,
        ratio,
        mean,
        queries_per_s,
        agent_cores,
        agent_peak_bytes,
        agent_rss_bytes,
        suspicions,
        ..
    } = watched;
    let middle = |spread: &Option<Spread>| spread.map_or(f64::NAN, |spread| spread.median);
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let ratio = ratio.map_or_else(String::new, |ratio| {
        let Interval {
            median,
            low,
            high,
            coverage,
        } = ratio;
        format!(
            "{:+.2} % [{:+.2}, {:+.2}] at {:.0} %",
            percent(median),
            percent(low),
            percent(high),
            coverage * 100.0
        )
    });
    let mean = mean.map_or_else(String::new, |mean| {
        let (value, low, high) = (percent(mean.value), percent(mean.low), percent(mean.high));
        format!("; {value:+.2} % [{low:+.2}, {high:+.2}]")
    });
    let mb = |bytes: &Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64 / 1e6);
    format!(
        "  {:<10}{:>12.2}{:>12.0}    {:<58}{:>14.2} %{:>9.1}{:>10.1}{suspicions:>10}\n",
        level.name(),
        middle(per_query_ns) / 1e3,
        middle(queries_per_s),
        ratio + &mean,
        middle(agent_cores) * 100.0,
        mb(agent_rss_bytes),
        mb(agent_peak_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::calm::AgentUse;
    use serde_json::json;

    fn sample(per_query_ns: u64, agent: bool) -> Sample {
        let agent = agent.then_some(AgentUse {
            cpu_ns: 10_000_000,
            rss_bytes: 9_000_000,
            peak_bytes: 10_000_000,
            suspicions: 1,
        });
        Sample {
            server_cpu_ns: per_query_ns * 1000,
            query_count: 1000,
            wall_ns: 1_000_000_000,
            agent,
            shares: Vec::new(),
        }
    }

    fn comparison(unbounded: bool) -> Comparison {
        // The machine is twice as slow in the second round, the ratio is the same.
        let round = |alone: u64| Round {
            alone: sample(alone, false),
            watched: vec![
                Sample {
                    // The budget allows half of what the samples would take.
                    shares: vec![1.0, 0.5, 0.5],
                    ..sample(alone * 101 / 100, true)
                },
                sample(alone * 110 / 100, true),
            ],
        };
        let report = json!({"probes": [
            {"name": "mdl_wait", "level": "calm", "hits": 0, "fired": {"per_s": 0.0}},
            {"name": "request_begin", "op": "RequestBegin", "level": "suspect", "hits": 3000, "fired": {"per_s": 1000.0}},
            {"name": "request_end", "op": "RequestEnd", "level": "suspect", "hits": 3000, "fired": {"per_s": 1000.0}},
        ]});
        let hits = Hits::of(&report, 1000.0);
        Comparison::new(
            Workload::OltpReadWrite,
            50,
            &[Level::Calm, Level::Suspect],
            vec![round(100_000), round(200_000)],
            hits,
            unbounded,
        )
    }

    #[test]
    fn a_round_is_compared_with_itself_and_not_with_the_others() {
        let comparison = comparison(true);
        let ratio = |index: usize| comparison.levels[index].ratio.unwrap();
        assert!(
            (ratio(0).low - 1.01).abs() < 1e-9 && (ratio(0).high - 1.01).abs() < 1e-9,
            "{comparison:?}"
        );
        assert!((ratio(1).median - 1.10).abs() < 1e-9, "{comparison:?}");
        assert_eq!(comparison.levels[0].suspicions, 2);
        assert!((comparison.levels[0].agent_cores.unwrap().median - 0.01).abs() < 1e-9);
    }

    #[test]
    fn the_cost_of_a_hit_is_what_suspect_adds_over_the_hits_that_it_makes() {
        let comparison = comparison(true);
        assert!(
            (comparison.hits[1].per_query - 1.0).abs() < 1e-9,
            "{comparison:?}"
        );
        // 10 % of 150 us over two hits a query; calm has them for half of a fiftieth of the time.
        assert!(
            (comparison.hit_ns.unwrap().value - 7_500.0).abs() < 1e-6,
            "{comparison:?}"
        );
        assert!(
            (comparison.calm_by_hits.unwrap().value - 0.001).abs() < 1e-9,
            "{comparison:?}"
        );
    }

    #[test]
    fn under_a_budget_nobody_knows_how_many_hits_were_paid_for() {
        let bounded = comparison(false);
        assert!(bounded.hit_ns.is_none() && bounded.calm_by_hits.is_none());
        assert!(!table(&bounded).contains("a passing (suspect"));
    }

    #[test]
    fn the_table_shows_every_level_and_probe() {
        let text = table(&comparison(true));
        for part in [
            "alone",
            "calm",
            "suspect",
            "+1.00 %",
            "+10.00 %",
            "request_end 1000 (1.000)",
            "7500 ns [7500, 7500] a passing",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
