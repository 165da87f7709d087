//! What came of `bench latency`: errors of each source against the load, and what it costs. Pure.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::latencies::Latencies;
use super::stats::Spread;

/// Where latencies come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source {
    /// Nobody looks: what the others are compared with.
    Nobody,
    /// Request probes that stay.
    Probes,
    /// Request probes as the preset samples them in calm.
    Sampled,
    /// Start and end of the last request of each session, in the server's own memory, read once a tick.
    Memory,
    /// Socket tracepoints, from the first receive to the last send, under bpftrace.
    Sockets,
}

impl Source {
    /// Places among the sources by what they ask of the requests: nothing, now and then a passing, some of each.
    fn asks(self) -> u8 {
        match self {
            Self::Nobody | Self::Memory => 0,
            Self::Sampled => 1,
            Self::Probes => 2,
            Self::Sockets => 3,
        }
    }
}

/// What a source tells of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Told {
    /// Requests that it saw.
    pub(super) count: u64,
    /// Median, microseconds.
    pub(super) p50_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub(super) p99_us: Option<f64>,
}

impl Told {
    /// Of these latencies.
    pub(super) fn of(latencies: &Latencies) -> Self {
        Self {
            count: latencies.count(),
            p50_us: latencies.percentile_us(50),
            p99_us: latencies.percentile_us(99),
        }
    }
}

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct Sample {
    /// Round.
    pub(super) round: u32,
    /// Source.
    pub(super) source: Source,
    /// What it told.
    pub(super) told: Told,
    /// What the load's own program says.
    pub(super) load: Told,
    /// Events of the load.
    pub(super) event_count: u64,
    /// CPU time of the server, nanoseconds.
    pub(super) server_cpu_ns: u64,
    /// CPU time of whoever read the source, as a share of one core.
    pub(super) own_cores: f64,
}

impl Sample {
    fn per_event_ns(&self) -> f64 {
        self.server_cpu_ns as f64 / self.event_count.max(1) as f64
    }

    fn error(&self, percentile: impl Fn(&Told) -> Option<f64>) -> Option<f64> {
        Some(percentile(&self.told)? / percentile(&self.load)? - 1.0)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
        write!(
            f,
            "p50 {} us (load {}), p99 {} us (load {}), {} of {} requests",
            us(self.told.p50_us),
            us(self.load.p50_us),
            us(self.told.p99_us),
            us(self.load.p99_us),
            self.told.count,
            self.load.count
        )
    }
}

/// A load, and each source beside it.
#[derive(Debug, Serialize)]
pub(super) struct Case {
    script: String,
    rows: Vec<Row>,
    samples: Vec<Sample>,
}

/// A source at one load: medians over the rounds.
#[derive(Debug, Serialize)]
struct Row {
    source: Source,
    told_p50_us: Option<f64>,
    told_p99_us: Option<f64>,
    load_p50_us: Option<f64>,
    load_p99_us: Option<f64>,
    /// Error of the median, as a share.
    p50_error: Option<f64>,
    /// Error of the 99th percentile, as a share.
    p99_error: Option<f64>,
    seen: Option<f64>,
    /// The server's CPU time for each event over that of the run with nobody in the same round.
    cpu_ratio: Option<f64>,
    own_cores: Option<f64>,
}

impl Case {
    /// Works the runs out.
    pub(super) fn new(script: &str, samples: Vec<Sample>) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for sample in &samples {
            if rows.iter().all(|row| row.source != sample.source) {
                rows.push(Row::new(sample.source, &samples));
            }
        }
        rows.sort_by_key(|row| row.source as u8);
        Self {
            script: script.to_owned(),
            rows,
            samples,
        }
    }
}

impl Row {
    fn new(source: Source, samples: &[Sample]) -> Self {
        let of = || samples.iter().filter(|sample| sample.source == source);
        let median =
            |values: &mut dyn Iterator<Item = f64>| Spread::of(values).map(|spread| spread.median);
        let alone = |round: u32| {
            let nobody = samples
                .iter()
                .find(|other| other.round == round && other.source == Source::Nobody);
            nobody.map(Sample::per_event_ns)
        };
        Self {
            source,
            told_p50_us: median(&mut of().filter_map(|sample| sample.told.p50_us)),
            told_p99_us: median(&mut of().filter_map(|sample| sample.told.p99_us)),
            load_p50_us: median(&mut of().filter_map(|sample| sample.load.p50_us)),
            load_p99_us: median(&mut of().filter_map(|sample| sample.load.p99_us)),
            p50_error: median(&mut of().filter_map(|sample| sample.error(|told| told.p50_us))),
            p99_error: median(&mut of().filter_map(|sample| sample.error(|told| told.p99_us))),
            seen: median(
                &mut of().map(|sample| sample.told.count as f64 / sample.event_count.max(1) as f64),
            ),
            cpu_ratio: median(
                &mut of().filter_map(|sample| Some(sample.per_event_ns() / alone(sample.round)?)),
            ),
            own_cores: median(&mut of().map(|sample| sample.own_cores)),
        }
    }
}

/// What a source may be off by at the median, as a share.
const P50_AIM: f64 = 0.05;
/// ... and at the 99th percentile.
const P99_AIM: f64 = 0.10;

impl Row {
    /// Whether it tells the truth within the aims.
    fn agrees(&self) -> bool {
        let within = |error: Option<f64>, aim: f64| error.is_some_and(|error| error.abs() <= aim);
        within(self.p50_error, P50_AIM) && within(self.p99_error, P99_AIM)
    }
}

/// Which sources tell the truth, and which of them asks least of the requests themselves.
fn verdict(case: &Case) -> String {
    let name = |row: &&Row| format!("{:?}", row.source).to_lowercase();
    let agree: Vec<&Row> = case.rows.iter().filter(|row| row.agrees()).collect();
    let least = agree.iter().min_by_key(|row| row.source.asks());
    let Some(least) = least else {
        return format!(
            "\n{}: no source is within 5 % at the median and 10 % at the 99th percentile\n",
            case.script
        );
    };
    let names: Vec<String> = agree.iter().map(name).collect();
    format!(
        "\n{}: within 5 % at the median and 10 % at the 99th percentile: {}; of these {} asks least of the requests\n",
        case.script,
        names.join(", "),
        name(least)
    )
}

/// The table, as the documentation takes it.
pub(super) fn markdown(cases: &[Case]) -> String {
    let mut text = "| load | source | p50 us: told, load, error | p99 us: told, load, error | requests seen | server CPU a request | reader of a core |\n|---|---|---|---|---|---|---|\n".to_owned();
    for Case { script, rows, .. } in cases {
        for row in rows {
            let Row {
                source,
                told_p50_us,
                told_p99_us,
                load_p50_us,
                load_p99_us,
                p50_error,
                p99_error,
                seen,
                cpu_ratio,
                own_cores,
            } = row;
            let us =
                |value: &Option<f64>| value.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
            let percent = |value: Option<f64>| {
                value.map_or_else(
                    || "-".to_owned(),
                    |share| format!("{:+.1} %", share * 100.0),
                )
            };
            let _ = writeln!(
                text,
                "| {script} | {} | {}, {}, {} | {}, {}, {} | {:.2} % | {} | {:.2} % |",
                format!("{source:?}").to_lowercase(),
                us(told_p50_us),
                us(load_p50_us),
                percent(*p50_error),
                us(told_p99_us),
                us(load_p99_us),
                percent(*p99_error),
                seen.unwrap_or(0.0) * 100.0,
                percent(cpu_ratio.map(|ratio| ratio - 1.0)),
                own_cores.unwrap_or(0.0) * 100.0,
            );
        }
    }
    for case in cases {
        text += &verdict(case);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(source: Source, round: u32, p50: f64, cpu: u64) -> Sample {
        let told = |p50: f64| Told {
            count: 50,
            p50_us: Some(p50),
            p99_us: Some(p50 * 2.0),
        };
        Sample {
            round,
            source,
            told: if source == Source::Nobody {
                Told::default()
            } else {
                told(p50)
            },
            load: told(100.0),
            event_count: 100,
            server_cpu_ns: cpu,
            own_cores: 0.004,
        }
    }

    #[test]
    fn errors_are_against_the_load_of_the_same_run_and_cost_against_nobody_of_the_same_round() {
        let samples = vec![
            sample(Source::Memory, 1, 97.0, 1010),
            sample(Source::Nobody, 1, 0.0, 1000),
            sample(Source::Nobody, 2, 0.0, 2000),
            sample(Source::Memory, 2, 97.0, 2020),
        ];
        let case = Case::new("oltp_point_select", samples);
        let text = markdown(&[case]);
        assert!(
            text.contains(
                "| memory | 97, 100, -3.0 % | 194, 200, -3.0 % | 50.00 % | +1.0 % | 0.40 % |"
            ),
            "{text}"
        );
        assert!(text.contains("| nobody | -, 100, - |"), "{text}");
    }

    #[test]
    fn of_the_sources_that_tell_the_truth_the_one_that_asks_least_is_named() {
        let samples = vec![
            sample(Source::Nobody, 1, 0.0, 1000),
            sample(Source::Memory, 1, 94.0, 1000),
            sample(Source::Probes, 1, 99.0, 1000),
            sample(Source::Sampled, 1, 104.0, 1000),
        ];
        let text = markdown(&[Case::new("range", samples)]);
        assert!(
            text.contains("percentile: probes, sampled; of these sampled asks least"),
            "{text}"
        );
        let samples = vec![sample(Source::Memory, 1, 94.0, 1000)];
        let text = markdown(&[Case::new("range", samples)]);
        assert!(text.contains("range: no source is within"), "{text}");
    }
}
