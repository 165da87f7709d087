//! The result for people: one line a second while it goes on, and one table at the end.

use super::clock::SECOND;
use super::json::{Phase, Played, Report, percentile};
use super::load::Sample;

/// One second of the victims' life, as a line.
pub(crate) fn second(samples: &[Sample], from_ns: u64, to_ns: u64, phase: &str) -> String {
    let finished = |sample: &Sample| sample.finished_ns >= from_ns && sample.finished_ns < to_ns;
    let done = samples
        .iter()
        .filter(|sample| finished(sample) && sample.error == 0)
        .count();
    let errors = samples
        .iter()
        .filter(|sample| finished(sample) && sample.error != 0)
        .count();
    // What waits counts with its age: a full stall must not look like silence.
    let mut latencies: Vec<u64> = samples
        .iter()
        .filter(|sample| sample.arrived_ns < to_ns)
        .filter(|sample| finished(sample) || sample.finished_ns == 0 || sample.finished_ns >= to_ns)
        .map(|sample| {
            let until_ns = if finished(sample) {
                sample.finished_ns
            } else {
                to_ns
            };
            until_ns.saturating_sub(sample.arrived_ns)
        })
        .collect();
    latencies.sort_unstable();
    let rate = done as f64 * SECOND as f64 / (to_ns - from_ns) as f64;
    let p99_ms = percentile(&latencies, 99) as f64 / 1e6;
    format!("{rate:6.0}/s   p99 {p99_ms:8.1} ms   {errors} errors   {phase}")
}

/// The table at the end: one for each run, and one over the runs of a case that was played more than once.
pub(crate) fn table(report: &Report) -> String {
    report
        .cases
        .chunk_by(|a, b| a.id == b.id)
        .flat_map(|runs| {
            let all = (runs.len() > 1).then(|| summary(runs));
            runs.iter().map(case).chain(all)
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// All runs of one case.
fn summary(runs: &[Played]) -> String {
    let right = |run: &&Played| run.target_chosen.as_deref() == Some(run.target_expected);
    let mut text = format!(
        "case {} over {} runs: median (least to most)\n",
        runs[0].id,
        runs.len()
    );
    for (index, (what, _)) in times(&runs[0]).into_iter().enumerate() {
        let mut values: Vec<f64> = runs.iter().filter_map(|run| times(run)[index].1).collect();
        values.sort_by(f64::total_cmp);
        let value = match (values.first(), values.get(values.len() / 2), values.last()) {
            (Some(least), Some(median), Some(most)) => {
                format!("{median:.1} ms ({least:.1} to {most:.1})")
            }
            _ => "-".to_owned(),
        };
        text += &fact(what, &value);
    }
    text += &fact(
        "right target",
        &format!("{} of {}", runs.iter().filter(right).count(), runs.len()),
    );
    text += &fact(
        "orders",
        &runs.iter().map(|run| run.orders).sum::<usize>().to_string(),
    );
    text += &fact(
        "victims cancelled",
        &runs
            .iter()
            .map(|run| run.wrong_cancels)
            .sum::<usize>()
            .to_string(),
    );
    text
}

/// The times of a case, as they are told.
fn times(case: &Played) -> [(&'static str, Option<f64>); 6] {
    [
        (
            "from the block to the decision",
            case.trouble_to_decision_ms,
        ),
        (
            "from the first breach to the decision",
            case.breach_to_decision_ms,
        ),
        (
            "from the decision to the command",
            case.decision_to_command_ms,
        ),
        (
            "from the command to the release",
            case.command_to_release_ms,
        ),
        ("blocked in all", Some(case.stall_ms)),
        ("from the release to the old p99", case.recovery_ms),
    ]
}

fn case(case: &Played) -> String {
    let mut text = format!("case {}\n", case.id);
    text += "             seconds   offered  completed    per s     p50 ms     p99 ms   errors\n";
    for (name, phase) in [
        ("before", &case.before),
        ("during", &case.during),
        ("after", &case.after),
    ] {
        text += &row(name, phase);
    }
    for (what, time_ms) in times(case) {
        let time = time_ms.map_or_else(|| "-".to_owned(), |time_ms| format!("{time_ms:.1} ms"));
        text += &fact(what, &time);
    }
    let chosen = case.target_chosen.as_deref().unwrap_or("nobody");
    text += &fact("right target", case.target_expected);
    text += &fact("ended", chosen);
    text += &fact("orders", &case.orders.to_string());
    text += &fact("victims cancelled", &case.wrong_cancels.to_string());
    text
}

fn fact(what: &str, value: &str) -> String {
    format!("  {what:<40}{value:>12}\n")
}

fn row(name: &str, phase: &Phase) -> String {
    let Phase {
        seconds,
        offered,
        completed,
        p50_ms,
        p99_ms,
        errors,
    } = phase;
    let rate = if *seconds > 0.0 {
        *completed as f64 / seconds
    } else {
        0.0
    };
    format!(
        "  {name:<8}{seconds:>10.2}{offered:>10}{completed:>11}{rate:>9.0}{p50_ms:>11.1}{p99_ms:>11.1}{errors:>9}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_stall_shows_the_age_of_what_waits() {
        let waiting = Sample {
            arrived_ns: SECOND,
            ..Sample::default()
        };
        let line = second(&[waiting], 3 * SECOND, 4 * SECOND, "stall");
        assert!(
            line.contains(" 0/s") && line.contains("3000.0 ms"),
            "{line}"
        );
    }

    #[test]
    fn what_was_answered_later_was_waiting_then() {
        let sample = Sample {
            arrived_ns: SECOND,
            finished_ns: 9 * SECOND,
            error: 0,
        };
        assert!(second(&[sample], SECOND, 2 * SECOND, "").contains("1000.0 ms"));
        assert!(second(&[sample], 9 * SECOND, 10 * SECOND, "").contains("1/s"));
    }
}
