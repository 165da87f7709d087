//! What came of the runs of a case, and their table. Pure.

use std::fmt::Write as _;

use serde::Serialize;

use super::stats::Spread;

/// One run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Run {
    /// The culprit whose ending is right was named first, and nobody else.
    pub(super) right_target: bool,
    /// Whom the first order named, by the demo's names.
    pub(super) target_chosen: Option<String>,
    /// Victims that were cancelled, and orders that named a wrong culprit.
    pub(super) wrong_cancels: usize,
    /// Commands after the first.
    pub(super) second_kills: usize,
    /// Whether `why` named the same culprit first; only where it was asked.
    pub(super) why_right: Option<bool>,
    /// Why the run came to nothing.
    pub(super) failure: Option<String>,
    /// The times.
    pub(super) times: Times,
}

/// The times of a run, milliseconds.
#[expect(clippy::struct_field_names, reason = "numbers carry their unit")]
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Times {
    /// From the others being blocked to the decision.
    pub(super) trouble_to_decision_ms: Option<f64>,
    /// From the first breach of the SLO that the agent saw to its decision.
    pub(super) breach_to_decision_ms: Option<f64>,
    /// From the decision to the sending of the command.
    pub(super) decision_to_sent_ms: Option<f64>,
    /// From the decision to the server's answer to the command.
    pub(super) decision_to_answer_ms: Option<f64>,
    /// From the sending of the command to the release, as the culprits' connections show it.
    pub(super) command_to_release_ms: Option<f64>,
    /// From the release to the victims' p99 being within 20 % of what it was before.
    pub(super) recovery_ms: Option<f64>,
    /// For how long the others were blocked.
    pub(super) stall_ms: Option<f64>,
    /// From the start of `atropos why` to its end.
    pub(super) start_to_why_ms: Option<f64>,
    /// From the start of `atropos run` to its decision.
    pub(super) start_to_decision_ms: Option<f64>,
}

/// A time's name, aim in milliseconds if there is one, and how it is taken from a run.
type Measure = (
    &'static str,
    &'static str,
    Option<f64>,
    fn(&Times) -> Option<f64>,
);

const MEASURES: [Measure; 9] = [
    (
        "trouble_to_decision_ms",
        "others blocked -> decision",
        None,
        |t| t.trouble_to_decision_ms,
    ),
    (
        "breach_to_decision_ms",
        "first breach -> decision",
        Some(250.0),
        |t| t.breach_to_decision_ms,
    ),
    (
        "decision_to_sent_ms",
        "decision -> command sent",
        Some(20.0),
        |t| t.decision_to_sent_ms,
    ),
    (
        "decision_to_answer_ms",
        "decision -> server's answer",
        Some(20.0),
        |t| t.decision_to_answer_ms,
    ),
    ("command_to_release_ms", "command -> release", None, |t| {
        t.command_to_release_ms
    }),
    (
        "recovery_ms",
        "release -> old p99 (+20 %)",
        Some(2000.0),
        |t| t.recovery_ms,
    ),
    ("stall_ms", "blocked in all", None, |t| t.stall_ms),
    (
        "start_to_why_ms",
        "start of why -> its answer",
        Some(1000.0),
        |t| t.start_to_why_ms,
    ),
    (
        "start_to_decision_ms",
        "start of run -> decision",
        Some(1000.0),
        |t| t.start_to_decision_ms,
    ),
];

/// All runs of a case.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    /// Its id.
    pub(super) id: &'static str,
    /// The culprit whose ending is right.
    pub(super) target_expected: &'static str,
    /// Runs whose target was right.
    right_targets: usize,
    /// Runs in which `why` was right; nothing where it was not asked.
    why_right: Option<usize>,
    /// Over all runs.
    wrong_cancels: usize,
    /// Over all runs.
    second_kills: usize,
    /// Runs that came to nothing.
    failures: usize,
    /// The times over all runs.
    summary: Vec<Line>,
    /// Each run.
    pub(super) runs: Vec<Run>,
}

/// A time over all runs.
#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    /// At most this is wanted of every run, milliseconds.
    aim_ms: Option<f64>,
    #[serde(flatten)]
    spread: Spread,
    /// Runs in which the aim was met.
    met: Option<usize>,
    #[serde(skip)]
    title: &'static str,
}

impl Outcome {
    /// Sums the runs up.
    pub(super) fn new(id: &'static str, target_expected: &'static str, runs: Vec<Run>) -> Self {
        let asked = runs.iter().any(|run| run.why_right.is_some());
        Self {
            id,
            target_expected,
            right_targets: runs.iter().filter(|run| run.right_target).count(),
            why_right: asked.then(|| {
                runs.iter()
                    .filter(|run| run.why_right == Some(true))
                    .count()
            }),
            wrong_cancels: runs.iter().map(|run| run.wrong_cancels).sum(),
            second_kills: runs.iter().map(|run| run.second_kills).sum(),
            failures: runs.iter().filter(|run| run.failure.is_some()).count(),
            summary: MEASURES
                .iter()
                .filter_map(|measure| line(measure, &runs))
                .collect(),
            runs,
        }
    }

    /// The table for people.
    pub(super) fn table(&self) -> String {
        let of = self.runs.len();
        let mut text = format!("case {}, {of} runs\n", self.id);
        let _ = writeln!(
            text,
            "  {:<28}{:>6}{:>11}{:>11}{:>11}{:>11}   aim",
            "ms", "runs", "min", "median", "p95", "max"
        );
        for Line {
            title,
            spread,
            aim_ms,
            met,
            ..
        } in &self.summary
        {
            let Spread {
                count,
                min,
                median,
                p95,
                max,
            } = spread;
            let aim = aim_ms
                .zip(*met)
                .map(|(aim_ms, met)| format!("{aim_ms:.0}, met in {met} of {of}"));
            let aim = aim.unwrap_or_default();
            let _ = writeln!(
                text,
                "  {title:<28}{count:>6}{min:>11.1}{median:>11.1}{p95:>11.1}{max:>11.1}   {aim}"
            );
        }
        let _ = write!(
            text,
            "  right target ({}): {} of {of}",
            self.target_expected, self.right_targets
        );
        if let Some(why_right) = self.why_right {
            let _ = write!(text, ", named first by why: {why_right} of {of}");
        }
        let _ = writeln!(
            text,
            "\n  wrong cancels: {}, second kills: {}",
            self.wrong_cancels, self.second_kills
        );
        for (number, run) in self.runs.iter().enumerate() {
            if let Some(failure) = &run.failure {
                let _ = writeln!(text, "  run {} came to nothing: {failure}", number + 1);
            }
        }
        text
    }
}

fn line(measure: &Measure, runs: &[Run]) -> Option<Line> {
    let (name, title, aim_ms, take) = *measure;
    let values: Vec<f64> = runs.iter().filter_map(|run| take(&run.times)).collect();
    let met = aim_ms.map(|aim_ms| values.iter().filter(|value| **value <= aim_ms).count());
    Some(Line {
        name,
        aim_ms,
        spread: Spread::of(values)?,
        met,
        title,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(breach_to_decision_ms: Option<f64>, right_target: bool) -> Run {
        let times = Times {
            breach_to_decision_ms,
            ..Times::default()
        };
        Run {
            right_target,
            times,
            ..Run::default()
        }
    }

    #[test]
    fn an_aim_is_met_by_a_run_that_has_the_time_and_by_no_other() {
        let runs = vec![
            run(Some(100.0), true),
            run(Some(251.0), true),
            run(None, false),
        ];
        let outcome = Outcome::new("c1", "backup", runs);
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!(json["right_targets"], 2);
        assert_eq!(json["summary"].as_array().unwrap().len(), 1, "{json:#}");
        assert_eq!(json["summary"][0]["name"], "breach_to_decision_ms");
        assert_eq!(json["summary"][0]["met"], 1);
        assert_eq!(json["summary"][0]["max"], 251.0);
        assert!(
            outcome.table().contains("250, met in 1 of 3"),
            "{}",
            outcome.table()
        );
        assert!(
            outcome.table().contains("right target (backup): 2 of 3\n"),
            "{}",
            outcome.table()
        );
    }

    #[test]
    fn a_run_that_came_to_nothing_is_told_and_is_not_right() {
        let failed = Run {
            failure: Some("no server".to_owned()),
            ..Run::default()
        };
        let outcome = Outcome::new("m01", "forgotten", vec![run(Some(1.0), true), failed]);
        assert!(
            outcome.table().contains("right target (forgotten): 1 of 2"),
            "{}",
            outcome.table()
        );
        assert!(
            outcome.table().contains("run 2 came to nothing: no server"),
            "{}",
            outcome.table()
        );
    }
}
