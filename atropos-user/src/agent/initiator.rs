//! From a preset's ladder and the command line to an initiator.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use super::clock;
use super::resolve::Resolved;
use crate::cancel::signal::{Ours, Proof, start_ticks};
use crate::cancel::{
    AnyInitiator, Credentials, Endpoint, Exact, ExactSettings, Exec, ExecRung, Mysql, MysqlCommand,
    MysqlSettings, PgCommand, PgEndpoint, Postgres, PostgresSettings, ProcessSignal, SignalRung,
    SignalTarget,
};
use crate::config::{Cancel, Command, Initiator};
use crate::engine::input::Activity;
use crate::engine::record::Task;
use crate::target::{Process, ProcessMemory};

/// How long a program of the user's may take.
const EXEC_LIMIT: Duration = Duration::from_secs(5);

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
            "the preset `{}` names no way to end a task",
            preset.name.value
        );
    };
    match cancel.initiator {
        Initiator::Mysql => Ok(AnyInitiator::Mysql(Box::new(Mysql::new(MysqlSettings {
            endpoint: endpoint(process, control)?,
            commands: mysql_commands(cancel),
            timeout: MysqlSettings::TIMEOUT,
            clock: clock::monotonic_ns,
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

/// How the target's numbers of threads and processes become ours.
fn ours(resolved: &Resolved) -> Ours {
    let process = resolved.process.clone();
    Box::new(move |in_target| process.ours(in_target))
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
            let in_target = if *to_thread {
                Some(task.thread)
            } else {
                u32::try_from(task.id).ok()
            };
            let number = in_target.and_then(|number| resolved.process.ours(number));
            // To a shell, 0 means itself and everything that it has started.
            let Some(number) = number.filter(|number| *number != 0) else {
                return "(it has no process)".to_owned();
            };
            format!(
                "kill -{} {number}",
                signal.as_str().trim_start_matches("SIG")
            )
        }
        Some(Command::Exec { argv }) => argv.join(" "),
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
    Ok(PgEndpoint {
        socket_directory,
        host,
        port,
        credentials,
    })
}

fn signal(cancel: &Cancel, resolved: &Resolved) -> Result<AnyInitiator> {
    let mut target = SignalTarget::Process;
    let mut rungs = Vec::new();
    for rung in &cancel.rungs {
        if let Command::Signal { signal, to_thread } = &rung.command {
            target = if *to_thread {
                SignalTarget::Thread
            } else {
                SignalTarget::Process
            };
            rungs.push(SignalRung::parse(signal.as_str()).map_err(|reason| anyhow!(reason))?);
        }
    }
    let pid = resolved.process.pid();
    let process = resolved.process.clone();
    let start_seen = move |task: &Task| match target {
        SignalTarget::Process => {
            start_ticks(process.ours(u32::try_from(task.id).ok()?)?, None).ok()
        }
        SignalTarget::Thread => start_ticks(pid, Some(process.ours(task.thread)?)).ok(),
    };
    let initiator = ProcessSignal::new(pid, target, rungs, ours(resolved), Box::new(start_seen));
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
    let offset_ns = clock::epoch_minus_monotonic_ns();
    Ok(Some(Box::new(move |task| {
        let seen = list
            .view(task.session.0, &memory, offset_ns)
            .map_err(|error| format!("session {} is gone: {error}", task.id))?;
        let was = (
            task.id,
            task.thread,
            task.request,
            task.activity == Activity::Busy,
        );
        let is = (seen.id, seen.thread, seen.request, seen.busy);
        if is == was {
            Ok(())
        } else {
            Err(format!("session {} has gone on since", task.id))
        }
    })))
}

fn exec(cancel: &Cancel) -> Result<AnyInitiator> {
    let mut rungs = Vec::new();
    for rung in &cancel.rungs {
        if let Command::Exec { argv } = &rung.command
            && let [program, arguments @ ..] = argv.as_slice()
        {
            rungs.push(
                ExecRung::new(program, arguments.to_vec()).map_err(|reason| anyhow!(reason))?,
            );
        }
    }
    Ok(AnyInitiator::Exec(Box::new(Exec::new(rungs, EXEC_LIMIT))))
}
