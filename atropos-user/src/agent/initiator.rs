//! From a preset's ladder and the command line to an initiator.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::clock;
use super::resolve::Resolved;
use crate::cancel::exact::Ours;
use crate::cancel::{
    Answer, AnyInitiator, Credentials, Endpoint, Exact, ExactSettings, Exec, ExecRung, Mysql,
    MysqlCommand, MysqlSettings, PgCommand, PgEndpoint, Postgres, PostgresSettings, ProcessSignal,
    Proof, SignalRung, SignalTarget, exec,
};
use crate::config::{Cancel, Command, Initiator};
use crate::engine::input::Activity;
use crate::engine::record::Task;
use crate::target::{Process, ProcessMemory};

/// How long a program of the user's may take.
const EXEC_LIMIT: Duration = Duration::from_secs(5);

/// How long the ladder waits for the watch, which looks every 50 ms and takes some milliseconds for it.
const WATCH_LIMIT: Duration = Duration::from_millis(200);

/// Where the control connection goes, as far as it was said.
#[derive(Clone, Debug, Default)]
pub struct ControlOptions {
    /// Unix socket.
    pub socket: Option<PathBuf>,
    /// Host.
    pub host: Option<String>,
    /// Port.
    pub port: Option<u16>,
    /// The server's `extra_port`.
    pub extra_port: Option<u16>,
    /// User.
    pub user: String,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// Password from the environment.
    pub password: Option<String>,
    /// The password may go to another machine unencrypted.
    pub password_in_clear: bool,
}

/// The initiator that the preset names. Nothing is connected yet.
///
/// # Errors
/// When the preset has none, when the password cannot be had, or when no way to the server is known.
pub fn build(resolved: &Resolved, control: &ControlOptions) -> Result<AnyInitiator> {
    let Resolved {
        preset, process, ..
    } = resolved;
    let Some(cancel) = &preset.cancel else {
        bail!(
            "the preset `{}` names no way to end a task; give it a [cancel] table (docs/config.md), or run without --enforce",
            preset.name.value
        );
    };
    match cancel.initiator {
        Initiator::Mysql => Ok(AnyInitiator::Mysql(Box::new(Mysql::new(MysqlSettings {
            endpoint: endpoint(process, control)?,
            commands: mysql_commands(cancel),
            timeout: MysqlSettings::TIMEOUT,
            clock: clock::monotonic_ns,
            epoch_minus_monotonic_ns: clock::epoch_minus_monotonic_ns,
        })))),
        Initiator::Signal => signal(cancel, resolved),
        Initiator::Exec => exec(cancel),
        Initiator::Postgres => Ok(AnyInitiator::Postgres(Box::new(Postgres::new(
            PostgresSettings {
                endpoint: pg_endpoint(process, control)?,
                commands: pg_commands(cancel),
                timeout: PostgresSettings::TIMEOUT,
                clock: clock::monotonic_ns,
            },
        )))),
    }
}

/// The exact way of the preset's rungs, if it has one.
pub fn exact(resolved: &Resolved) -> Option<Exact> {
    let cancel = resolved.preset.cancel.as_ref()?;
    let exact = cancel.exact.as_ref()?;
    let settings = ExactSettings {
        pid: resolved.process.pid(),
        forks: resolved.preset.matching.forks,
        signals: cancel.rungs.iter().map(|rung| rung.exact).collect(),
        within: exact.within,
        nudge: exact.nudge,
        clock: clock::monotonic_ns,
    };
    Some(Exact::new(settings, ours(resolved)))
}

/// How the target's numbers of threads become ours.
fn ours(resolved: &Resolved) -> Ours {
    let (process, forks) = (resolved.process.clone(), resolved.preset.matching.forks);
    Box::new(move |in_target| process.session_thread(in_target, forks))
}

/// The command that a person would type to end the task by this rung.
pub fn describe(resolved: &Resolved, rung: usize, task: &Task) -> String {
    match resolved
        .preset
        .cancel
        .as_ref()
        .and_then(|cancel| cancel.rungs.get(rung))
        .map(|rung| &rung.command)
    {
        Some(Command::KillQueryId) => MysqlCommand::KillQueryId.text(task),
        Some(Command::KillQuery) => MysqlCommand::KillQuery.text(task),
        Some(Command::KillConnection) => MysqlCommand::KillConnection.text(task),
        Some(Command::PgCancel) => PgCommand::Cancel.text(task),
        Some(Command::PgTerminate) => PgCommand::Terminate.text(task),
        Some(Command::Signal { signal, to_thread }) => {
            signal_rung(*signal, *to_thread).text(&resolved.process, task)
        }
        Some(Command::Exec { argv }) => exec::command_line(argv, task),
        None => String::new(),
    }
}

fn mysql_commands(cancel: &Cancel) -> Vec<MysqlCommand> {
    cancel
        .rungs
        .iter()
        .filter_map(|rung| match rung.command {
            Command::KillQueryId => Some(MysqlCommand::KillQueryId),
            Command::KillQuery => Some(MysqlCommand::KillQuery),
            Command::KillConnection => Some(MysqlCommand::KillConnection),
            _ => None,
        })
        .collect()
}

/// What was said on the command line, else a socket or port that the server itself listens on.
fn endpoint(process: &Process, control: &ControlOptions) -> Result<Endpoint> {
    let credentials = Credentials::load(
        control.user.clone(),
        control.password_file.as_deref(),
        control.password.clone(),
    )?;
    let mut endpoint = if let Some(socket) = &control.socket {
        Endpoint::over_socket(socket.clone(), credentials)
    } else if control.host.is_some() || control.port.is_some() {
        let host = control
            .host
            .clone()
            .unwrap_or_else(|| "127.0.0.1".to_owned());
        Endpoint::over_tcp(host, control.port.unwrap_or(Endpoint::PORT), credentials)
    } else {
        let listening = process
            .listening()
            .context("cannot tell where the server listens; give --socket or --port")?;
        if let Some(socket) = listening.unix.first() {
            Endpoint::over_socket(socket.path_for_us.clone(), credentials)
        } else {
            let address = listening
                .tcp
                .first()
                .filter(|_| !listening.other_network_namespace);
            let address = address.ok_or_else(|| {
                anyhow!("process {} listens on no socket that can be reached; give --socket or --host and --port", process.pid())
            })?;
            let host = if address.ip().is_unspecified() {
                "127.0.0.1".to_owned()
            } else {
                address.ip().to_string()
            };
            Endpoint::over_tcp(host, address.port(), credentials)
        }
    };
    endpoint.extra_port = control.extra_port;
    Ok(endpoint)
}

fn pg_commands(cancel: &Cancel) -> Vec<PgCommand> {
    cancel
        .rungs
        .iter()
        .filter_map(|rung| match rung.command {
            Command::PgCancel => Some(PgCommand::Cancel),
            Command::PgTerminate => Some(PgCommand::Terminate),
            _ => None,
        })
        .collect()
}

/// What was said on the command line, else a socket or port that the server itself listens on.
fn pg_endpoint(process: &Process, control: &ControlOptions) -> Result<PgEndpoint> {
    let credentials = Credentials::load(
        control.user.clone(),
        control.password_file.as_deref(),
        control.password.clone(),
    )?;
    let port = control.port.unwrap_or(PgEndpoint::PORT);
    let host = control
        .host
        .clone()
        .unwrap_or_else(|| "127.0.0.1".to_owned());
    let mut socket = control.socket.clone();
    if socket.is_none() && control.host.is_none() && control.port.is_none() {
        let listening = process
            .listening()
            .context("cannot tell where the server listens; give --socket or --port")?;
        let found = listening.unix.first().ok_or_else(|| {
            anyhow!(
                "process {} listens on no socket that can be reached; give --socket or --host and --port",
                process.pid()
            )
        })?;
        socket = Some(found.path_for_us.clone());
    }
    let (socket_directory, port) = match socket.map(|path| PgEndpoint::of_socket(path, port)) {
        Some((directory, port)) => (Some(directory), port),
        None => (None, port),
    };
    let endpoint = PgEndpoint {
        socket_directory,
        host,
        port,
        credentials,
    };
    if endpoint.shows_password() && !control.password_in_clear {
        bail!(
            "will not send a password to {endpoint}: the connection is not encrypted, and {} is not known to be this machine; run \
             atropos beside the server, use --socket, an address of this machine or an account without a password (trust, ident, \
             peer), or say --password-in-clear",
            endpoint.host
        );
    }
    Ok(endpoint)
}

fn signal_rung(signal: Signal, to_thread: bool) -> SignalRung {
    let target = if to_thread {
        SignalTarget::Thread
    } else {
        SignalTarget::Process
    };
    SignalRung::new(signal, target)
}

fn signal(cancel: &Cancel, resolved: &Resolved) -> Result<AnyInitiator> {
    let rungs = cancel.rungs.iter().filter_map(|rung| match rung.command {
        Command::Signal { signal, to_thread } => Some(signal_rung(signal, to_thread)),
        _ => None,
    });
    let initiator = ProcessSignal::new(resolved.process.clone(), rungs.collect());
    Ok(AnyInitiator::Signal(Box::new(match proof(resolved)? {
        Some(proof) => initiator.proving(proof),
        None => initiator,
    })))
}

/// Compares a task with what the target's own memory says of its session at this moment.
fn proof(resolved: &Resolved) -> Result<Option<Proof>> {
    let Some(Ok(list)) = resolved.sessions.clone() else {
        return Ok(None);
    };
    let memory = ProcessMemory::open(&resolved.process)?;
    let look = move |task: &Task| {
        let seen = list
            .view(task.session.0, &memory, clock::epoch_minus_monotonic_ns())
            .map_err(|error| Answer::missed(format!("session {} is gone: {error}", task.id)))?;
        let was = (
            task.id,
            task.thread,
            task.request,
            task.activity == Activity::Busy,
        );
        let is = (seen.id, seen.thread, seen.request, seen.busy);
        if is == was {
            Ok(since_boot_ns(seen.started_ns))
        } else {
            Err(Answer::missed(format!(
                "session {} has gone on since",
                task.id
            )))
        }
    };
    Ok(Some(Box::new(move |task| {
        Box::pin(std::future::ready(look(task)))
    })))
}

/// A question of the ladder to the watch: whether a task is still at what it was at when it was chosen.
#[derive(Debug)]
pub struct Question {
    /// The task.
    pub task: Task,
    /// Since when it has been, `CLOCK_MONOTONIC` nanoseconds; or what is different.
    pub answer: oneshot::Sender<Result<u64, String>>,
}

/// Asks the watch, which alone sees what an application tells by marks.
pub fn proof_of_watch(questions: mpsc::Sender<Question>) -> Proof {
    Box::new(move |task| {
        let (questions, task) = (questions.clone(), task.clone());
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let asked = questions.send(Question { task, answer }).await;
            let heard = asked.is_ok().then_some(answered);
            let unheard =
                || Answer::unsent("the watch did not say whether the task is still there");
            match timeout(WATCH_LIMIT, heard.ok_or_else(unheard)?).await {
                Ok(Ok(seen)) => seen.map(since_boot_ns).map_err(Answer::missed),
                Ok(Err(_)) | Err(_) => Err(unheard()),
            }
        })
    })
}

/// A time of `CLOCK_MONOTONIC` as one of `CLOCK_BOOTTIME`, nanoseconds; 0, which is unknown, stays 0.
fn since_boot_ns(monotonic_ns: u64) -> u64 {
    match monotonic_ns {
        0 => 0,
        _ => monotonic_ns.saturating_add(clock::boot_minus_monotonic_ns()),
    }
}

fn exec(cancel: &Cancel) -> Result<AnyInitiator> {
    let mut rungs = Vec::new();
    for rung in &cancel.rungs {
        if let Command::Exec { argv } = &rung.command
            && let [program, arguments @ ..] = argv.as_slice()
        {
            // Behind its deadline the order counts as come to nothing: nothing of it may be under way then.
            let limit = rung.deadline.min(EXEC_LIMIT);
            let rung = ExecRung::new(program, arguments.to_vec(), limit);
            rungs.push(rung.map_err(|reason| anyhow!(reason))?);
        }
    }
    Ok(AnyInitiator::Exec(Box::new(Exec::new(rungs))))
}
