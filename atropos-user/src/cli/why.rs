//! `atropos why`: one look, no configuration, nothing changed.

use std::process::ExitCode;

use clap::Args;

use super::find::{TargetArgs, preset_for};
use super::{Failure, exit};
use crate::agent::resolve::Resolved;
use crate::agent::why::look;
use crate::ui;

/// Arguments of `why`.
#[derive(Debug, Args)]
pub(super) struct WhyArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Preset: a name or a file [default: the one that knows the program]
    #[arg(long, value_name = "NAME|FILE")]
    preset: Option<String>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Looks and prints.
pub(super) fn why(args: &WhyArgs) -> Result<ExitCode, Failure> {
    let process = args.target.find()?;
    let preset = preset_for(args.preset.as_deref(), &process)?;
    let resolved = Resolved::new(process, preset)?;
    let report = look(&resolved)?;
    if args.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::new(exit::FAILURE, error))?;
        super::print(&format!("{json}\n"));
    } else {
        super::print(&ui::why::text(&report));
    }
    Ok(ExitCode::SUCCESS)
}
