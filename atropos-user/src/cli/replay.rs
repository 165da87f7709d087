//! `atropos replay`: decides a recorded incident again, with the same engine, and prints what it says; or says what another
//! controller would have decided, beside what was done.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use atropos_sim::hindsight::{Act, Counts, Hindsight, HindsightError, Line, Side, What};
use clap::Args;
use serde::Serialize;

use super::{Failure, exit};
use crate::agent::tell::effect_text;
use crate::config::parse_slo;
use crate::engine::Engine;
use crate::engine::input::OrderResult;
use crate::engine::record::Effect;
use crate::journal::{RecordError, RecordReader, each_input, replay as decide_again};

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Recording made by `atropos run --record`
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
    /// Say what this controller would have decided at each moment, beside what was done: `atropos`, `root-blocker`, `pt-kill`,
    /// `timeout-any`, ..
    #[arg(long, value_name = "NAME")]
    controller: Option<String>,
    /// The objective that it would have had, such as p99=20ms [default: the recorded one]; alone, for the controller `atropos`
    #[arg(long, value_name = "SLO")]
    slo: Option<String>,
}

/// One JSON line of a replay.
#[derive(Serialize)]
struct Replayed<'a> {
    at_ns: u64,
    effect: &'a Effect,
}

/// The last JSON line beside another controller.
#[derive(Serialize)]
struct Summary {
    summary: Counts,
}

/// Replays and prints.
pub(super) fn replay(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let reader = RecordReader::open(&args.recording).map_err(|error| damaged(args, &error))?;
    let unclean = match (&args.controller, &args.slo) {
        (None, None) => again(args, reader)?,
        (None, Some(_)) => beside(args, reader, "atropos")?,
        (Some(name), _) => beside(args, reader, name)?,
    };
    if let Some(error) = unclean {
        remark(&format!(
            "the recording was not closed: {error}; what came before is whole"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn damaged(args: &ReplayArgs, error: &RecordError) -> Failure {
    let text = anyhow!("{}: {error}", args.recording.display());
    Failure::new(exit::RECORDING, text)
}

#[expect(
    clippy::print_stderr,
    reason = "a remark that must not mix with the output"
)]
fn remark(text: &str) {
    eprintln!("atropos: {text}");
}

/// The same decisions again; returns how the recording ends if not as it should.
fn again(
    args: &ReplayArgs,
    reader: RecordReader<BufReader<File>>,
) -> Result<Option<RecordError>, Failure> {
    let replayed = decide_again(reader, |settings| Engine::new(settings.clone()))
        .map_err(|error| damaged(args, &error))?;
    let first_ns = replayed.effects.first().map_or(0, |(at_ns, _)| *at_ns);
    for (at_ns, effect) in &replayed.effects {
        let at_ns = *at_ns;
        let text = if args.json {
            json(&Replayed { at_ns, effect })?
        } else {
            format!("{}  {}", since(first_ns, at_ns), effect_text(effect))
        };
        super::print(&format!("{text}\n"));
    }
    Ok(replayed.unclean)
}

/// What another controller would have decided; returns how the recording ends if not as it should.
fn beside(
    args: &ReplayArgs,
    mut reader: RecordReader<BufReader<File>>,
    name: &str,
) -> Result<Option<RecordError>, Failure> {
    let parsed = args.slo.as_deref().map(|typed| {
        parse_slo(typed)
            .map_err(|problem| Failure::new(exit::USAGE, anyhow!("--slo {typed}: {problem}")))
    });
    let slo = parsed.transpose()?;
    let mut hindsight =
        Hindsight::new(name, reader.settings(), slo).map_err(|error| unjudged(&error))?;
    if !args.json {
        super::print(&heading(name, &hindsight));
    }
    let mut first_ns = None;
    let mut failed = None;
    let unclean = each_input(&mut reader, |input| {
        let first_ns = *first_ns.get_or_insert(input.at_ns());
        for line in hindsight.handle(&input) {
            let text = if args.json {
                json(&line)
            } else {
                Ok(line_text(first_ns, name, &line))
            };
            match text {
                Ok(text) => super::print(&format!("{text}\n")),
                Err(error) => failed = Some(error),
            }
        }
    })
    .map_err(|error| damaged(args, &error))?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    let counts = hindsight.counts();
    let last = if args.json {
        json(&Summary { summary: counts })?
    } else {
        summary(name, counts)
    };
    super::print(&format!("{last}\n"));
    Ok(unclean)
}

fn unjudged(error: &HindsightError) -> Failure {
    let judged = Hindsight::judged().join(", ");
    let next = match error {
        HindsightError::Relative(_) => String::new(),
        _ => format!("; a recording can judge {judged}"),
    };
    Failure::new(exit::USAGE, anyhow!("{error}{next}"))
}

fn heading(name: &str, hindsight: &Hindsight) -> String {
    let misses = hindsight
        .misses()
        .map_or(String::new(), |misses| format!("  {misses}\n"));
    format!(
        "{name}: {}\n{misses}  from its first decision on this is a guess: what it ends is taken to be gone at once, and with it \
         whoever waited for nobody else\n",
        hindsight.about()
    )
}

fn line_text(first_ns: u64, name: &str, line: &Line) -> String {
    let side = match line.side {
        Side::Done => "done",
        Side::Would => name,
    };
    let what = match &line.what {
        What::Answer { order, result } => {
            let result = match result {
                OrderResult::Accepted => "accepted".to_owned(),
                OrderResult::Missed => "missed, the task had ended".to_owned(),
                OrderResult::Refused(reason) => format!("refused: {reason}"),
                OrderResult::NotSent => "not sent".to_owned(),
                OrderResult::Unknown(reason) => format!("without an answer: {reason}"),
                OrderResult::Unsent(reason) => format!("could not be sent: {reason}"),
            };
            format!("order {order} {result}")
        }
        What::Act(act) => act_text(act),
    };
    format!("{}  {side:<14} {what}", since(first_ns, line.at_ns))
}

fn act_text(act: &Act) -> String {
    // The engine's own sentence names act and task.
    if act.why.starts_with(&act.how) {
        return act.why.clone();
    }
    let known = [act.principal.as_str(), act.statement.as_str()];
    let who: Vec<&str> = known.into_iter().filter(|text| !text.is_empty()).collect();
    let who = if who.is_empty() {
        String::new()
    } else {
        format!(" ({})", who.join(", "))
    };
    format!("{} of session {}{who}: {}", act.how, act.id, act.why)
}

fn summary(name: &str, counts: Counts) -> String {
    let Counts {
        done,
        would,
        would_of_waiting,
        refused,
    } = counts;
    let refused = if refused > 0 {
        format!(", and {refused} refused")
    } else {
        String::new()
    };
    format!(
        "done: {done} accepted; {name}: {would} ended, {would_of_waiting} of them waiting themselves{refused}"
    )
}

fn json(line: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(line).map_err(|error| Failure::new(exit::FAILURE, error))
}

/// Time since the first moment.
fn since(first_ns: u64, at_ns: u64) -> String {
    let seconds = at_ns.saturating_sub(first_ns) as f64 / 1e9;
    format!("{seconds:+10.3} s")
}
