//! `atropos simulate`: controllers on simulated incidents, compared.

use std::process::ExitCode;

use atropos_sim::cli::{SimulateArgs, SimulateError, simulate as run};

use super::{Failure, exit};

/// Simulates and prints.
pub(super) fn simulate(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    let text = run(args).map_err(|error| {
        let code = match &error {
            SimulateError::Scenario(_) => exit::PRESET,
            SimulateError::Results(_) => exit::FAILURE,
        };
        Failure::new(code, error)
    })?;
    super::print(&text);
    Ok(ExitCode::SUCCESS)
}
