//! `atropos check`.

use std::process::ExitCode;

use clap::Args;

use super::Failure;

/// Arguments.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {}

pub(super) fn check(_args: &CheckArgs) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
