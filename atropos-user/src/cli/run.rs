//! `atropos run`.

use std::process::ExitCode;

use clap::Args;

use super::Failure;

/// Arguments.
#[derive(Debug, Args)]
pub struct RunArgs {}

pub(super) fn run(_args: RunArgs) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
