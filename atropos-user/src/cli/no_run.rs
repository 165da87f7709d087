//! `atropos run` in a build without the kernel half: says how to get one.

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;

use super::{Failure, exit};

/// Takes and ignores whatever `run` takes.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _ignored: Vec<String>,
}

/// Fails.
pub(super) fn run(_args: &RunArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new(
        exit::KERNEL,
        anyhow!(
            "this build has no kernel half; build one with `cargo xtask build` (which sets the BPF toolchain up)"
        ),
    ))
}
