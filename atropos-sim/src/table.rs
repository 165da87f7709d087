//! The results as a table for a terminal.

use std::fmt::Write as _;

use crate::run::Line;
use crate::stats::Estimate;

/// A column: its head, and its cell of a line.
type Column = (&'static str, fn(&Line) -> String);

/// Every column behind the controller's name.
const COLUMNS: [Column; 10] = [
    ("throughput", |line| ratio(line.throughput)),
    ("goodput", |line| ratio(line.goodput)),
    ("p99", |line| ratio(line.p99)),
    ("drops innocent", |line| percent(line.innocent_drops)),
    ("drops culprits", |line| percent(line.culprit_drops)),
    ("cancels", |line| plain(line.cancels)),
    ("wrong", |line| plain(line.wrong_cancels)),
    ("recovery s", |line| plain(line.recovery_s)),
    ("bad s", |line| plain(line.bad_s)),
    ("wasted", |line| percent(line.wasted)),
];

/// The table: one block for each scenario, then the means over all scenarios.
pub(crate) fn table(lines: &[Line], seed_count: u64) -> String {
    let mut text = format!(
        "means over {seed_count} seeds with 95 % intervals; throughput, goodput and p99 of innocents relative to the same \
         seed without the trouble\n"
    );
    let mut rest = lines;
    while let Some(first) = rest.first() {
        let count = rest
            .iter()
            .take_while(|line| line.scenario == first.scenario)
            .count();
        let (block, behind) = rest.split_at(count);
        let _ = write!(text, "\n{}\n{}", first.scenario, rows(block));
        rest = behind;
    }
    if lines.iter().any(|line| line.scenario != lines[0].scenario) {
        let _ = write!(text, "\nover all scenarios\n{}", over_all(lines));
    }
    text
}

fn rows(lines: &[Line]) -> String {
    let mut rows = vec![head("p99")];
    for line in lines {
        let cells = COLUMNS.iter().map(|(_, cell)| cell(line));
        rows.push(
            std::iter::once(line.controller.clone())
                .chain(cells)
                .collect(),
        );
    }
    aligned(&rows)
}

fn head(p99: &str) -> Vec<String> {
    let names = COLUMNS
        .iter()
        .map(|(name, _)| if *name == "p99" { p99 } else { name });
    std::iter::once("controller")
        .chain(names)
        .map(str::to_owned)
        .collect()
}

/// Means over scenarios, by controller. A p99 ratio is a factor, so its mean is geometric: where one case is a thousand, the
/// arithmetic one says nothing of the others.
fn over_all(lines: &[Line]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for line in lines {
        if !names.contains(&line.controller.as_str()) {
            names.push(&line.controller);
        }
    }
    let mut rows = vec![head("p99 (geometric)")];
    for name in names {
        let of: Vec<&Line> = lines
            .iter()
            .filter(|line| line.controller == name)
            .collect();
        let mean = mean_of(&of);
        let cells = COLUMNS.iter().map(|(_, cell)| cell(&mean));
        rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
    }
    aligned(&rows)
}

fn mean_of(lines: &[&Line]) -> Line {
    let mean = |value: fn(&Line) -> Estimate| {
        Estimate::mean_of(&lines.iter().map(|line| value(line)).collect::<Vec<_>>())
    };
    let logarithm = mean(|line| Estimate {
        mean: line.p99.mean.max(1e-9).ln(),
        half_width: line.p99.half_width / line.p99.mean.max(1e-9),
    });
    let p99 = logarithm.mean.exp();
    Line {
        scenario: String::new(),
        family: lines[0].family,
        controller: lines[0].controller.clone(),
        throughput: mean(|line| line.throughput),
        goodput: mean(|line| line.goodput),
        p99: Estimate {
            mean: p99,
            half_width: p99 * logarithm.half_width,
        },
        innocent_drops: mean(|line| line.innocent_drops),
        culprit_drops: mean(|line| line.culprit_drops),
        cancels: mean(|line| line.cancels),
        wrong_cancels: mean(|line| line.wrong_cancels),
        bad_s: mean(|line| line.bad_s),
        recovery_s: mean(|line| line.recovery_s),
        wasted: mean(|line| line.wasted),
    }
}

/// Columns as wide as their widest cell; the first to the left, numbers to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let _ = write!(text, "{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

/// Two digits; more where two would hide that something happened at all.
fn plain(estimate: Estimate) -> String {
    let digits = if estimate.mean > 0.0 && estimate.mean < 0.1 {
        4
    } else {
        2
    };
    shown(estimate, digits, "")
}

fn ratio(estimate: Estimate) -> String {
    shown(estimate, if estimate.mean >= 100.0 { 0 } else { 3 }, "")
}

fn percent(estimate: Estimate) -> String {
    let of_hundred = Estimate {
        mean: estimate.mean * 100.0,
        half_width: estimate.half_width * 100.0,
    };
    let digits = if of_hundred.mean > 0.0 && of_hundred.mean < 0.1 {
        4
    } else {
        2
    };
    shown(of_hundred, digits, " %")
}

fn shown(estimate: Estimate, digits: usize, unit: &str) -> String {
    let Estimate { mean, half_width } = estimate;
    format!("{mean:.digits$} ± {half_width:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Family;

    fn estimate(mean: f64) -> Estimate {
        Estimate {
            mean,
            half_width: mean / 10.0,
        }
    }

    fn line(scenario: &str, value: f64) -> Line {
        let estimate = estimate(value);
        Line {
            scenario: scenario.to_owned(),
            family: Family::Hard,
            controller: "none".to_owned(),
            throughput: estimate,
            goodput: estimate,
            p99: estimate,
            innocent_drops: estimate,
            culprit_drops: estimate,
            cancels: estimate,
            wrong_cancels: estimate,
            bad_s: estimate,
            recovery_s: estimate,
            wasted: estimate,
        }
    }

    #[test]
    fn one_cancel_in_a_thousand_runs_is_not_rounded_away() {
        assert_eq!(plain(estimate(0.001)), "0.0010 ± 0.0001");
        assert_eq!(plain(estimate(0.0)), "0.00 ± 0.00");
        assert_eq!(percent(estimate(0.0001)), "0.0100 ± 0.0010 %");
        assert_eq!(plain(estimate(1.25)), "1.25 ± 0.12");
    }

    #[test]
    fn each_scenario_has_its_block_and_every_column_its_interval() {
        let text = table(&[line("one", 0.5), line("two", 2.0)], 3);
        let blocks: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(blocks.len(), 4, "{text}");
        assert!(blocks[1].starts_with("one\n") && blocks[2].starts_with("two\n"));
        assert!(blocks[1].contains("0.500 ± 0.050") && blocks[1].contains("50.00 ± 5.00 %"));
        // Arithmetic means, and a geometric one for p99: 1 of 0.5 and 2.
        assert!(
            blocks[3].contains("1.250 ± 0.103") && blocks[3].contains("1.000 ± 0.071"),
            "{text}"
        );
        for row in blocks[3].lines().skip(2) {
            assert_eq!(row.matches('±').count(), COLUMNS.len());
        }
    }

    #[test]
    fn one_scenario_needs_no_mean_over_all() {
        assert!(!table(&[line("one", 0.5)], 3).contains("over all"));
    }
}
