//! `atropos run`: attach, watch, and in enforce mode act.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::find::{TargetArgs, preset_for};
use super::{ControlArgs, Failure, exit};
use crate::agent::carrier::Carrier;
use crate::agent::clock;
use crate::agent::initiator;
use crate::agent::resolve::Resolved;
use crate::agent::run::{End, RunError, StopSignals, run as watch};
use crate::agent::screen::Screen;
use crate::agent::tell::Teller;
use crate::cancel::{AnyInitiator, Initiator as _, Ladder};
use crate::config::parse_slo;
use crate::engine::settings::{Mode, Settings, Slo};
use crate::journal::{Audit, AuditClock, Recorder, Run};
use crate::target::Process;

/// The objective when none is given.
const DEFAULT_SLO: &str = "p99=+100%,floor=50ms";

/// How often a server that is gone is looked for.
const SUCCESSOR_EVERY: Duration = Duration::from_millis(500);

/// Arguments of `run`.
#[derive(Clone, Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    control: ControlArgs,
    /// Preset: a name or a file [default: the one that knows the program]
    #[arg(long, value_name = "NAME|FILE")]
    preset: Option<String>,
    /// Objective: which latency is too much (p99=20ms, p99=+20%, p99=+20%,floor=5ms)
    #[arg(long, value_name = "SLO", default_value = DEFAULT_SLO)]
    slo: String,
    /// Cancel what the decisions name
    #[arg(long, conflicts_with = "dry_run")]
    enforce: bool,
    /// Write orders out and do not send them
    #[arg(long)]
    dry_run: bool,
    /// Never cancel sessions of this user (may be given several times). PostgreSQL: of this `application_name`, which any
    /// client may give itself
    #[arg(long, value_name = "USER")]
    protect_user: Vec<String>,
    /// Append every decision, order and outcome to this file, one JSON object a line (docs/audit.md)
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Record what the decisions are made from, for `atropos replay` (docs/recording.md)
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
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
pub(super) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    // One worker for the watch, which also waits for the time and so wakes by itself; one that carries orders meanwhile.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::FAILURE, error))?;
    let watch = runtime.spawn(run_all(args.clone()));
    let result = runtime
        .block_on(watch)
        .unwrap_or_else(|error| Err(Failure::new(exit::FAILURE, error)));
    // A command that still waits for the server must not keep the agent.
    runtime.shutdown_background();
    result
}

/// Watches the process and, when it restarts and can be found again, its successors.
async fn run_all(mut args: RunArgs) -> Result<ExitCode, Failure> {
    let slo = parse_slo(&args.slo)
        .map_err(|error| Failure::new(exit::USAGE, anyhow!("--slo {}: {error}", args.slo)))?;
    // One for all lives of the server: between two of them somebody may ask as well.
    let mut stop = StopSignals::listen()?;
    let screen = Screen::start(std::io::stdout(), args.json).context("cannot start a thread")?;
    let screen = Arc::new(screen);
    let mut process = args.target.find()?;
    let recording = args.record.clone();
    let mut life = 1_u32;
    loop {
        let end = Box::pin(run_one(&args, slo, process, &screen, &mut stop)).await?;
        if end == End::Asked {
            return Ok(ExitCode::SUCCESS);
        }
        if !args.target.survives_restart() {
            return Ok(ExitCode::from(exit::TARGET));
        }
        process = tokio::select! {
            biased;
            () = stop.asked() => return Ok(ExitCode::SUCCESS),
            successor = successor(&args) => successor,
        };
        life += 1;
        // How the life before ended may be what somebody wants to look into.
        args.record = recording.as_deref().map(|file| of_life(file, life));
    }
}

/// The file for the recording of a server's second life and those behind it.
fn of_life(recording: &Path, life: u32) -> PathBuf {
    let mut name = recording.to_owned().into_os_string();
    name.push(format!(".{life}"));
    name.into()
}

async fn run_one(
    args: &RunArgs,
    slo: Slo,
    process: Process,
    screen: &Arc<Screen>,
    stop: &mut StopSignals,
) -> Result<End, Failure> {
    let preset = preset_for(args.preset.as_deref(), &process)?;
    let resolved = Resolved::new(process, preset)?;
    let settings = resolved
        .preset
        .settings(slo, args.mode(), args.protect_user.clone());
    let ladder = tokio::select! {
        biased;
        () = stop.asked() => return Ok(End::Asked),
        ladder = ladder(args, &resolved) => ladder?,
    };
    let deadlines_ns = settings.ladder.iter().map(|rung| rung.deadline_ns);
    let carrier = Carrier::start(ladder.with_deadlines(deadlines_ns.collect()));
    let mut teller = Teller::new(
        Arc::clone(screen),
        audit(args, &resolved)?,
        recorder(args, &settings)?,
    );
    let watched = Box::pin(watch(&resolved, settings, carrier, &mut teller, stop)).await;
    teller.stopped(&reason(&watched)).await;
    watched.map_err(|error| match error {
        RunError::Attach(_) => Failure::new(exit::KERNEL, error),
        RunError::Watch(error) => error.into(),
    })
}

/// Why a run is over.
fn reason(watched: &Result<End, RunError>) -> String {
    match watched {
        Ok(End::Asked) => "asked to stop".to_owned(),
        Ok(End::TargetGone) => "the target is gone".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The restarted server, once it answers on its control connection.
async fn successor(args: &RunArgs) -> Process {
    loop {
        tokio::time::sleep(SUCCESSOR_EVERY).await;
        let Ok(process) = args.target.find() else {
            continue;
        };
        if ready(args, &process).await {
            return process;
        }
    }
}

/// Whether a server that has just started can be watched: its symbols are mapped and, in enforce mode, it takes the
/// control connection.
async fn ready(args: &RunArgs, process: &Process) -> bool {
    let Ok(preset) = preset_for(args.preset.as_deref(), process) else {
        return false;
    };
    let Ok(resolved) = Resolved::new(process.clone(), preset) else {
        return false;
    };
    ladder(args, &resolved).await.is_ok()
}

fn audit(args: &RunArgs, resolved: &Resolved) -> Result<Option<Audit>, Failure> {
    let Some(path) = &args.audit else {
        return Ok(None);
    };
    let run = Run {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        pid: resolved.process.pid(),
        exe: resolved.process.exe().display().to_string(),
        build_id: resolved
            .binary
            .build_id
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        preset: resolved.preset.name.value.clone(),
        mode: args.mode(),
        slo: args.slo.clone(),
    };
    let clock = AuditClock {
        monotonic_ns: clock::monotonic_ns,
        unix_ns: clock::epoch_ns,
    };
    let opened = Audit::open(path, run, clock)
        .with_context(|| format!("cannot open the audit log {}", path.display()))?;
    Ok(Some(opened))
}

fn recorder(args: &RunArgs, settings: &Settings) -> Result<Option<Recorder>, Failure> {
    let Some(path) = &args.record else {
        return Ok(None);
    };
    let created = Recorder::create(path, settings)
        .with_context(|| format!("cannot create the recording {}", path.display()))?;
    Ok(Some(created))
}

/// The way to the target. In enforce mode it must be open before anything is attached; in the others it is a convenience.
async fn ladder(args: &RunArgs, resolved: &Resolved) -> Result<Ladder<AnyInitiator>, Failure> {
    let built = initiator::build(resolved, &(&args.control).into());
    let mut initiator = match built {
        Ok(initiator) => initiator,
        Err(error) if args.enforce => return Err(Failure::new(exit::CONTROL, error)),
        Err(error) => AnyInitiator::None(format!("{error:#}")),
    };
    if args.enforce {
        let refused = |reason: String| Failure::new(exit::CONTROL, anyhow!("{reason}"));
        initiator.keep_warm().await.map_err(refused)?;
        initiator.check_permission().await.map_err(refused)?;
    }
    let exact = initiator::exact(resolved);
    Ok(Ladder::new(initiator, args.mode(), clock::monotonic_ns).with_exact(exact))
}
