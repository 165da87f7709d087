//! The results as a table for a terminal.

use std::fmt::Write as _;

use crate::run::Line;
use crate::stats::Estimate;

const HEAD: &str = "controller       throughput      goodput         p99             drops innocent  culprits  cancels  wrong   bad s          wasted";

/// The table: one block for each scenario, then the means over all scenarios.
pub(crate) fn table(lines: &[Line], seed_count: u64) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "means over {seed_count} seeds with 95 % intervals; throughput, goodput and p99 of innocents relative to the same seed without the trouble"
    );
    let mut scenario = "";
    for line in lines {
        if line.scenario != scenario {
            scenario = &line.scenario;
            let _ = writeln!(text, "\n{scenario}\n{HEAD}");
        }
        let _ = writeln!(text, "{}", row(&line.controller, line));
    }
    let _ = write!(text, "{}", means(lines));
    text
}

fn row(name: &str, line: &Line) -> String {
    format!(
        "{name:<16} {:<15} {:<15} {:<15} {:<15} {:<9} {:<8} {:<7} {:<14} {}",
        ratio(line.throughput),
        ratio(line.goodput),
        ratio(line.p99),
        percent(line.innocent_drops),
        share(line.culprit_drops.mean),
        plain(line.cancels.mean),
        plain(line.wrong_cancels.mean),
        plain(line.bad_s.mean) + " ± " + &plain(line.bad_s.half_width),
        share(line.wasted.mean),
    )
}

fn share(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

/// Two digits; more where two would hide that something happened at all.
fn plain(value: f64) -> String {
    if value > 0.0 && value < 0.1 {
        format!("{value:.4}")
    } else {
        format!("{value:.2}")
    }
}

fn ratio(estimate: Estimate) -> String {
    if estimate.mean >= 100.0 {
        return format!("{:.0} ± {:.0}", estimate.mean, estimate.half_width);
    }
    format!("{:.3} ± {:.3}", estimate.mean, estimate.half_width)
}

fn percent(estimate: Estimate) -> String {
    format!(
        "{:.3} % ± {:.3}",
        estimate.mean * 100.0,
        estimate.half_width * 100.0
    )
}

/// Means over scenarios, by controller. A p99 ratio is a factor, so its mean is geometric as well as arithmetic.
fn means(lines: &[Line]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for line in lines {
        if !names.contains(&line.controller.as_str()) {
            names.push(&line.controller);
        }
    }
    let mut text = "\nover all scenarios\ncontroller       throughput  goodput  p99 mean  p99 geo   drops innocent  cancels  wrong  bad s\n".to_owned();
    for name in names {
        let of: Vec<&Line> = lines
            .iter()
            .filter(|line| line.controller == name)
            .collect();
        let mean = |value: fn(&Line) -> f64| {
            of.iter().map(|line| value(line)).sum::<f64>() / of.len() as f64
        };
        let _ = writeln!(
            text,
            "{name:<16} {:<11.3} {:<8.3} {:<9.2} {:<9.2} {:<15} {:<8} {:<6} {:.2}",
            mean(|line| line.throughput.mean),
            mean(|line| line.goodput.mean),
            mean(|line| line.p99.mean),
            mean(|line| line.p99.mean.max(1e-9).ln()).exp(),
            format!("{:.4} %", mean(|line| line.innocent_drops.mean) * 100.0),
            plain(mean(|line| line.cancels.mean)),
            plain(mean(|line| line.wrong_cancels.mean)),
            mean(|line| line.bad_s.mean),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cancel_in_a_thousand_runs_is_not_rounded_away() {
        assert_eq!(plain(0.001), "0.0010");
        assert_eq!(plain(0.0), "0.00");
        assert_eq!(plain(1.25), "1.25");
    }
}
