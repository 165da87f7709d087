//! `atropos run`: attach, watch, and in enforce mode act.

use std::process::ExitCode;

use clap::Args;

use super::find::{TargetArgs, preset_for};
use super::{ControlArgs, Failure, exit};
use crate::agent::carrier::Carrier;
use crate::agent::initiator;
use crate::agent::resolve::Resolved;
use crate::agent::run::{End, run as watch};
use crate::agent::tell::Teller;
use crate::agent::clock;
use crate::cancel::{AnyInitiator, Initiator as _, Ladder};
use crate::config::parse_slo;
use crate::engine::settings::{Mode, Slo};

/// The objective when none is given.
const DEFAULT_SLO: &str = "p99=+100%,floor=50ms";

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    control: ControlArgs,
    /// Preset: a name or a file [default: the one that knows the program]
    #[arg(long, value_name = "NAME|FILE")]
    preset: Option<String>,
    /// Objective: which latency is too much (p99=20ms, p99=+20%, p99=+20%,floor=5ms)
    #[arg(long, value_name = "SLO", default_value = DEFAULT_SLO, value_parser = slo)]
    slo: Slo,
    /// Cancel what the decisions name
    #[arg(long, conflicts_with = "dry_run")]
    enforce: bool,
    /// Write orders out and do not send them
    #[arg(long)]
    dry_run: bool,
    /// Never cancel sessions of this user (may be given several times)
    #[arg(long, value_name = "USER")]
    protect_user: Vec<String>,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

fn slo(text: &str) -> Result<Slo, String> {
    parse_slo(text).map_err(|error| error.to_string())
}

impl RunArgs {
    fn mode(&self) -> Mode {
        match (self.enforce, self.dry_run) {
            (true, _) => Mode::Enforce,
            (false, true) => Mode::DryRun,
            (false, false) => Mode::Observe,
        }
    }
}

/// Runs until asked to stop or the target is gone.
pub(super) fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::FAILURE, error))?;
    let result = runtime.block_on(run_all(&args));
    // A command that still waits for the server must not keep the agent.
    runtime.shutdown_background();
    result
}

async fn run_all(args: &RunArgs) -> Result<ExitCode, Failure> {
    let process = args.target.find()?;
    let preset = preset_for(args.preset.as_deref(), &process)?;
    let resolved = Resolved::new(process, preset)?;
    let carrier = Carrier::start(ladder(args, &resolved).await?);
    let settings = resolved.preset.settings(args.slo, args.mode(), args.protect_user.clone());
    let mut teller = Teller::new(args.json);
    let end = watch(&resolved, settings, carrier, &mut teller).await?;
    let _ = clock::monotonic_ns();
    match end {
        End::Asked => {
            teller.stopped("asked to stop");
            Ok(ExitCode::SUCCESS)
        }
        End::TargetGone => {
            teller.stopped("the target is gone");
            Ok(ExitCode::from(exit::TARGET))
        }
    }
}

/// The way to the target. In enforce mode it must be open before anything is attached; in the others it is a convenience.
async fn ladder(args: &RunArgs, resolved: &Resolved) -> Result<Ladder<AnyInitiator>, Failure> {
    let built = initiator::build(&resolved.preset, &resolved.process, &(&args.control).into());
    let mut initiator = match built {
        Ok(initiator) => initiator,
        Err(error) if args.enforce => return Err(Failure::new(exit::CONTROL, error)),
        Err(error) => AnyInitiator::None(format!("{error:#}")),
    };
    if args.enforce {
        let refused = |reason: String| Failure::new(exit::CONTROL, anyhow::anyhow!("{reason}"));
        initiator.keep_warm().await.map_err(refused)?;
        initiator.check_permission().await.map_err(refused)?;
    }
    Ok(Ladder::new(initiator, args.mode(), clock::monotonic_ns))
}
