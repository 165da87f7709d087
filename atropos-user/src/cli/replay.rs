//! `atropos replay`: decides a recorded incident again, with the same engine, and prints what it says.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;

use super::{Failure, exit};
use crate::agent::tell::effect_text;
use crate::engine::Engine;
use crate::engine::record::Effect;
use crate::journal::{RecordReader, replay as decide_again};

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Recording made by `atropos run --record`
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

/// One JSON line.
#[derive(Serialize)]
struct Line<'a> {
    at_ns: u64,
    effect: &'a Effect,
}

/// Replays and prints.
#[expect(
    clippy::print_stderr,
    reason = "a remark that must not mix with the output"
)]
pub(super) fn replay(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let damaged = |error| {
        Failure::new(
            exit::RECORDING,
            anyhow!("{}: {error}", args.recording.display()),
        )
    };
    let reader = RecordReader::open(&args.recording).map_err(damaged)?;
    let replayed =
        decide_again(reader, |settings| Engine::new(settings.clone())).map_err(damaged)?;
    let first_ns = replayed.effects.first().map_or(0, |(at_ns, _)| *at_ns);
    for (at_ns, effect) in &replayed.effects {
        let text = if args.json {
            serde_json::to_string(&Line {
                at_ns: *at_ns,
                effect,
            })
            .map_err(|error| Failure::new(exit::FAILURE, error))?
        } else {
            format!(
                "{:+10.3} s  {}",
                at_ns.saturating_sub(first_ns) as f64 / 1e9,
                effect_text(effect)
            )
        };
        super::print(&format!("{text}\n"));
    }
    if let Some(error) = &replayed.unclean {
        eprintln!("atropos: the recording was not closed: {error}; what came before is whole");
    }
    Ok(ExitCode::SUCCESS)
}
