//! `atropos check`: a preset, and what of it can be seen in a process.

use std::process::ExitCode;
#[cfg(feature = "ebpf")]
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;

use super::find::preset_for;
use super::{ControlArgs, Failure, exit};
use crate::agent::check::Report;
use crate::agent::initiator;
use crate::agent::resolve::Resolved;
use crate::cancel::Initiator as _;
use crate::config;
use crate::target::Process;
use crate::ui;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Preset: a name or a file [default with --pid: the one that knows the program]
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "pid")]
    preset: Option<String>,
    /// Process id of the server
    #[arg(long, value_name = "N")]
    pid: Option<u32>,
    /// Attach every probe for so long and count how often each fires; 0 attaches nothing
    #[arg(long, value_name = "S", default_value_t = 2.0, requires = "pid")]
    seconds: f64,
    /// Also open the control connection and end an own idle session, to see whether orders would be allowed
    #[arg(long, requires = "pid")]
    try_cancel: bool,
    #[command(flatten)]
    control: ControlArgs,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Checks and prints. The exit code tells whether everything can be seen.
pub(super) fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let Some(pid) = args.pid else {
        let name = args.preset.as_deref().unwrap_or_default();
        return print(args, &Report::of_preset(&config::load(name)?));
    };
    let process = Process::open(pid)?;
    let preset = preset_for(args.preset.as_deref(), &process)?;
    let resolved = Resolved::new(process, preset)?;
    let mut report = Report::of_process(&resolved);
    if args.seconds > 0.0 {
        attach(args.seconds, &resolved, &mut report)?;
    }
    if args.try_cancel {
        let permission = try_cancel(args, &resolved)?;
        if let Some(initiator) = &mut report.initiator {
            initiator.permission = Some(permission);
        }
    }
    print(args, &report)
}

/// Attaches everything for a while and counts.
#[cfg(feature = "ebpf")]
fn attach(seconds: f64, resolved: &Resolved, report: &mut Report) -> Result<(), Failure> {
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|error| Failure::new(exit::USAGE, anyhow!("--seconds {seconds}: {error}")))?;
    report
        .measure(resolved, time)
        .map_err(|error| Failure::new(exit::KERNEL, error))
}

/// Without the kernel half nothing is attached.
#[cfg(not(feature = "ebpf"))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "the twin with the kernel half can fail"
)]
fn attach(_seconds: f64, _resolved: &Resolved, _report: &mut Report) -> Result<(), Failure> {
    Ok(())
}

fn try_cancel(args: &CheckArgs, resolved: &Resolved) -> Result<Result<(), String>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::FAILURE, error))?;
    Ok(runtime.block_on(async {
        let control = (&args.control).into();
        let mut initiator =
            initiator::build(resolved, &control).map_err(|error| format!("{error:#}"))?;
        initiator.keep_warm().await?;
        initiator.check_permission().await
    }))
}

/// Prints; the code says what is missing, sight before rights.
fn print(args: &CheckArgs, report: &Report) -> Result<ExitCode, Failure> {
    if args.json {
        let json = serde_json::to_string_pretty(report)
            .map_err(|error| Failure::new(exit::FAILURE, anyhow!(error)))?;
        super::print(&format!("{json}\n"));
    } else {
        super::print(&ui::check::text(report));
    }
    Ok(match (report.is_seen(), report.may_cancel()) {
        (false, _) => ExitCode::from(exit::BLIND),
        (true, false) => ExitCode::from(exit::CONTROL),
        (true, true) => ExitCode::SUCCESS,
    })
}
