//! `atropos replay`.

use std::process::ExitCode;

use clap::Args;

use super::Failure;

/// Arguments.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {}

pub(super) fn replay(_args: &ReplayArgs) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
