//! What came of the rounds of `bench overhead`: ratios in pairs with their intervals, and a table for the documentation. Pure.

use std::fmt::Write as _;

use serde::Serialize;

use super::calm::{AgentUse, Level};
use super::calm_table::Hits;
use super::stats::{Interval, Mean, Spread};
use super::subject::Workload;

/// How a server is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// The agent, as on a healthy server.
    Calm,
    /// The agent, as on a server in trouble: every probe of the preset.
    Suspect,
    /// The same, with the audit log and the recording written.
    Everything,
    /// The same probes under bpftrace, each of which keeps a timestamp.
    Bpftrace,
}

/// How hard the load pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pace {
    /// As fast as the server can.
    Full,
    /// At a fixed rate.
    Steady,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    /// CPU time of the server, nanoseconds.
    pub(super) server_cpu_ns: u64,
    /// Queries, or transactions, that the load made.
    pub(super) unit_count: u64,
    /// Length, nanoseconds.
    pub(super) wall_ns: u64,
    /// Median latency of the load's events, microseconds.
    pub(super) p50_us: Option<f64>,
    /// 99 % of them are at most this, microseconds.
    pub(super) p99_us: Option<f64>,
    /// What whoever watched used.
    pub(super) watching: Option<AgentUse>,
}

impl Run {
    /// CPU time of the server for each query or transaction, nanoseconds.
    pub(super) fn per_unit_ns(&self) -> f64 {
        self.server_cpu_ns as f64 / self.unit_count.max(1) as f64
    }

    fn units_per_s(&self) -> f64 {
        self.unit_count as f64 * 1e9 / self.wall_ns.max(1) as f64
    }
}

/// A workload at a pace, nobody watching against each state.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    workload: Workload,
    pace: Pace,
    /// Queries or transactions a second that the load was told not to exceed, 0 for none.
    wanted_per_s: u64,
    alone_per_unit_ns: Option<Spread>,
    alone_units_per_s: Option<Spread>,
    alone_p99_us: Option<Spread>,
    states: Vec<Watched>,
    /// How often each probe fires.
    hits: Vec<Hits>,
    /// What a passing costs the server, nanoseconds: the difference between suspect and nobody over the passings.
    hit_ns: Option<f64>,
    /// What the passings of calm and of suspect cost by what `atropos check` measured of a passing, as shares of the CPU time.
    by_passings: Option<(f64, f64)>,
    /// Each round: the run with nobody, then those of the states.
    rounds: Vec<Vec<Run>>,
}

/// The server in one state.
#[derive(Debug, Serialize)]
struct Watched {
    state: State,
    per_unit_ns: Option<Spread>,
    /// CPU time for each unit over that of the run with nobody in the same round.
    ratio: Option<Interval>,
    /// The mean of the same ratios.
    mean: Option<Mean>,
    /// Throughput over that of the run with nobody in the same round.
    throughput: Option<Interval>,
    p99_us: Option<Spread>,
    /// CPU time of whoever watches as a share of one core.
    cores: Option<Spread>,
    rss_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    /// How often the agent began to watch closely, over all runs.
    suspicions: usize,
}

impl Comparison {
    /// Works the rounds out; the first run of each is that with nobody.
    pub(super) fn new(
        workload: Workload,
        pace: Pace,
        wanted_per_s: u64,
        states: &[State],
        rounds: Vec<Vec<Run>>,
        hits: &[Hits],
    ) -> Self {
        let alone = || rounds.iter().filter_map(|runs| runs.first());
        let watched: Vec<Watched> = states
            .iter()
            .enumerate()
            .map(|(index, state)| Watched::new(*state, index + 1, &rounds))
            .collect();
        let alone_per_unit_ns = Spread::of(alone().map(Run::per_unit_ns));
        let per_unit: f64 = hits.iter().map(|hit| hit.per_query).sum();
        let hit_ns = watched
            .iter()
            .find(|watched| watched.state == State::Suspect)
            .and_then(|suspect| suspect.ratio)
            .zip(alone_per_unit_ns)
            .filter(|_| per_unit > 0.0)
            .map(|(ratio, alone)| (ratio.median - 1.0) * alone.median / per_unit);
        Self {
            workload,
            pace,
            wanted_per_s,
            alone_per_unit_ns,
            alone_units_per_s: Spread::of(alone().map(Run::units_per_s)),
            alone_p99_us: Spread::of(alone().filter_map(|run| run.p99_us)),
            states: watched,
            by_passings: alone_per_unit_ns.map(|alone| {
                let share = |level| Hits::cost_at_ns(hits, level) / alone.median;
                (share(Level::Calm), share(Level::Suspect))
            }),
            hits: hits.to_vec(),
            hit_ns,
            rounds,
        }
    }
}

impl Watched {
    fn new(state: State, place: usize, rounds: &[Vec<Run>]) -> Self {
        let pairs = || {
            rounds
                .iter()
                .filter_map(move |runs| Some((runs.first()?, runs.get(place)?)))
        };
        let runs = || pairs().map(|(_, run)| run);
        let used = || runs().filter_map(|run| Some((run.watching.as_ref()?, run.wall_ns)));
        let ratios: Vec<f64> = pairs()
            .map(|(alone, run)| run.per_unit_ns() / alone.per_unit_ns())
            .collect();
        Self {
            state,
            per_unit_ns: Spread::of(runs().map(Run::per_unit_ns)),
            mean: Mean::of(&ratios),
            ratio: Interval::of(ratios),
            throughput: Interval::of(
                pairs().map(|(alone, run)| run.units_per_s() / alone.units_per_s()),
            ),
            p99_us: Spread::of(runs().filter_map(|run| run.p99_us)),
            cores: Spread::of(used().map(|(used, wall_ns)| used.cpu_ns as f64 / wall_ns as f64)),
            rss_bytes: used().map(|(used, _)| used.rss_bytes).max(),
            peak_bytes: used().map(|(used, _)| used.peak_bytes).max(),
            suspicions: used().map(|(used, _)| used.suspicions).sum(),
        }
    }
}

/// The table, as the documentation takes it.
pub(super) fn markdown(comparisons: &[Comparison]) -> String {
    let mut text = "| workload, pace | state | us CPU a unit | against nobody: median [interval] | mean [95 %] | throughput | p99 ms | watcher: of a core, RSS, peak MB |\n|---|---|---|---|---|---|---|---|\n".to_owned();
    for comparison in comparisons {
        text += &rows(comparison);
    }
    for comparison in comparisons {
        text += &arithmetic(comparison);
    }
    text
}

fn rows(comparison: &Comparison) -> String {
    let Comparison {
        workload,
        pace,
        alone_per_unit_ns,
        alone_units_per_s,
        alone_p99_us,
        states,
        ..
    } = comparison;
    let name = format!(
        "{}, {}",
        workload.name(),
        match pace {
            Pace::Full => "full",
            Pace::Steady => "steady",
        }
    );
    let mut text = format!(
        "| {name} | nobody | {:.2} | | | {:.0}/s | {:.2} | |\n",
        middle(*alone_per_unit_ns) / 1e3,
        middle(*alone_units_per_s),
        middle(*alone_p99_us) / 1e3,
    );
    for watched in states {
        let Watched {
            state,
            per_unit_ns,
            ratio,
            mean,
            throughput,
            p99_us,
            cores,
            rss_bytes,
            peak_bytes,
            suspicions: _,
        } = watched;
        let ratio = ratio.map_or_else(String::new, |ratio| {
            percent(ratio.median, ratio.low, ratio.high)
        });
        let mean = mean.map_or_else(String::new, |mean| percent(mean.value, mean.low, mean.high));
        let throughput = throughput.map_or(f64::NAN, |ratio| (ratio.median - 1.0) * 100.0);
        let mb = |bytes: &Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64 / 1e6);
        let _ = writeln!(
            text,
            "| | {} | {:.2} | {ratio} | {mean} | {throughput:+.1} % | {:.2} | {:.2} %, {:.1}, {:.1} |",
            format!("{state:?}").to_lowercase(),
            middle(*per_unit_ns) / 1e3,
            middle(*p99_us) / 1e3,
            middle(*cores) * 100.0,
            mb(rss_bytes),
            mb(peak_bytes),
        );
    }
    text
}

/// Hits beside the measured pair: a per cent of noise hides a tenth of a per cent of cost.
fn arithmetic(comparison: &Comparison) -> String {
    let Comparison {
        workload,
        pace,
        states,
        hits,
        hit_ns,
        by_passings,
        rounds,
        ..
    } = comparison;
    let mut text = format!(
        "\n{} ({pace:?}, {} rounds): passings a unit:",
        workload.name(),
        rounds.len()
    );
    for hit in hits.iter().filter(|hit| hit.per_query >= 0.0005) {
        let _ = write!(
            text,
            " {} {:.3}{}",
            hit.probe,
            hit.per_query,
            if hit.calm { " (also in calm)" } else { "" }
        );
    }
    let in_calm: f64 = hits
        .iter()
        .filter(|hit| hit.calm)
        .map(|hit| hit.per_query)
        .sum();
    if let Some(hit_ns) = hit_ns {
        let _ = write!(text, "; {hit_ns:.0} ns a passing");
    }
    if let Some((calm, suspect)) = by_passings {
        let _ = write!(
            text,
            "; by what a passing costs the fixture of `atropos check`, doubled: calm {:+.3} %, suspect {:+.2} %",
            calm * 100.0,
            suspect * 100.0
        );
    }
    let suspicions: usize = states
        .iter()
        .filter(|watched| watched.state == State::Calm)
        .map(|watched| watched.suspicions)
        .sum();
    let _ = writeln!(
        text,
        "; passings a unit in calm without samples {in_calm:.4}; left calm {suspicions} times in runs that should be calm"
    );
    text
}

fn middle(spread: Option<Spread>) -> f64 {
    spread.map_or(f64::NAN, |spread| spread.median)
}

/// By how much a ratio and the ends of its interval lie above 1.
pub(super) fn percent(middle: f64, low: f64, high: f64) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    format!(
        "{:+.2} % [{:+.2}, {:+.2}]",
        percent(middle),
        percent(low),
        percent(high)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(per_unit_ns: u64, watching: bool) -> Run {
        let used = AgentUse {
            cpu_ns: 5_000_000,
            rss_bytes: 19_000_000,
            peak_bytes: 36_000_000,
            suspicions: 0,
        };
        Run {
            server_cpu_ns: per_unit_ns * 1000,
            unit_count: 1000,
            wall_ns: 1_000_000_000,
            p50_us: Some(100.0),
            p99_us: Some(900.0),
            watching: watching.then_some(used),
        }
    }

    fn comparison() -> Comparison {
        // The machine is twice as slow in the second round.
        let rounds = [20_000, 40_000].map(|alone| {
            vec![
                run(alone, false),
                run(alone * 1003 / 1000, true),
                run(alone * 103 / 100, true),
            ]
        });
        let hits = [Hits {
            probe: "request_begin".to_owned(),
            calm: false,
            sampled: true,
            per_s: 1000.0,
            per_query: 1.0,
            cost_ns: 1200.0,
        }];
        Comparison::new(
            Workload::OltpPointSelect,
            Pace::Steady,
            1000,
            &[State::Calm, State::Suspect],
            rounds.to_vec(),
            &hits,
        )
    }

    #[test]
    fn each_run_is_compared_with_the_one_alone_of_its_round() {
        let comparison = comparison();
        let calm = &comparison.states[0];
        assert!(
            (calm.ratio.unwrap().median - 1.003).abs() < 1e-9,
            "{comparison:?}"
        );
        assert!(
            (calm.mean.unwrap().high - 1.003).abs() < 1e-9,
            "{comparison:?}"
        );
        assert!(
            (calm.cores.unwrap().median - 0.005).abs() < 1e-9,
            "{comparison:?}"
        );
        // 3 % of 30 us over one passing.
        assert!(
            (comparison.hit_ns.unwrap() - 900.0).abs() < 1e-6,
            "{comparison:?}"
        );
    }

    #[test]
    fn the_table_has_a_row_for_each_state() {
        let text = markdown(&[comparison()]);
        for row in [
            "| oltp_point_select, steady | nobody | 30.00 |",
            "| calm | 30.09 | +0.30 % [+0.30, +0.30]",
            "| suspect | 30.90 | +3.00 %",
            "0.50 %, 19.0, 36.0 |",
            "900 ns a passing",
            "doubled: calm +0.080 %, suspect +4.00 %",
        ] {
            assert!(text.contains(row), "{row} not in\n{text}");
        }
    }
}
