//! The command line: what a person types, turned into one call.

mod check;
mod find;
mod replay;
#[cfg(feature = "ebpf")]
mod run;
#[cfg(not(feature = "ebpf"))]
#[path = "no_run.rs"]
mod run;
mod simulate;
mod why;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use atropos_sim::cli::SimulateArgs;
use clap::{Args, Parser, Subcommand};

pub use find::TargetArgs;

use crate::agent::initiator::ControlOptions;

/// Finds the task that starves the others of an application resource, and ends that task, only that one.
#[derive(Debug, Parser)]
#[command(name = "atropos", version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
enum Command {
    /// Watch a running server; say, and in enforce mode end, what stalls it
    Run(run::RunArgs),
    /// One look at a server that may be stalled: who blocks whom on what. Changes nothing, needs no configuration
    Why(why::WhyArgs),
    /// Check a preset, and with a process what of it can be seen there
    Check(check::CheckArgs),
    /// Decide a recorded incident again
    Replay(replay::ReplayArgs),
    /// Run controllers on simulated incidents, and compare what the innocents got
    Simulate(SimulateArgs),
}

/// How long an error waits for its reader.
const READER_LIMIT: Duration = Duration::from_secs(2);

/// Where the control connection goes, and as whom.
#[derive(Clone, Debug, Args)]
pub struct ControlArgs {
    /// Unix socket of the server [default: the one that the process listens on]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    pub socket: Option<PathBuf>,
    /// Host of the server
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// TCP port of the server
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The server's `extra_port`, which answers when every connection is taken
    #[arg(long, value_name = "PORT")]
    pub extra_port: Option<u16>,
    /// User of the control connection
    #[arg(long, value_name = "NAME", default_value = "root")]
    pub user: String,
    /// File with the password on its first line [default: the environment variable ATROPOS_PASSWORD, else no password]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Send the password to a PostgreSQL on another machine although the connection is not encrypted
    #[arg(long)]
    pub password_in_clear: bool,
}

impl From<&ControlArgs> for ControlOptions {
    fn from(args: &ControlArgs) -> Self {
        let ControlArgs {
            socket,
            host,
            port,
            extra_port,
            user,
            password_file,
            password_in_clear,
        } = args.clone();
        let password = std::env::var("ATROPOS_PASSWORD").ok();
        Self {
            socket,
            host,
            port,
            extra_port,
            user,
            password_file,
            password,
            password_in_clear,
        }
    }
}

/// Exit codes, as `docs/troubleshooting.md` documents them.
pub mod exit {
    /// Something failed that has no code of its own.
    pub const FAILURE: u8 = 1;
    /// A command line that cannot be understood.
    pub const USAGE: u8 = 2;
    /// The target process is not there, cannot be read, or went away.
    pub const TARGET: u8 = 3;
    /// The kernel or the privileges are not enough.
    pub const KERNEL: u8 = 4;
    /// The preset or a scenario has mistakes; none knows the target, or none has that name.
    pub const PRESET: u8 = 5;
    /// The control connection cannot be had.
    pub const CONTROL: u8 = 6;
    /// A recording is damaged.
    pub const RECORDING: u8 = 7;
    /// `check`: something that the preset wants cannot be seen.
    pub const BLIND: u8 = 8;
}

/// An error with its exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// An error with a code of [`exit`].
    pub fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self {
            code,
            error: error.into(),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let of_target = error.downcast_ref::<crate::target::TargetError>().is_some();
        Self {
            code: if of_target {
                exit::TARGET
            } else {
                exit::FAILURE
            },
            error,
        }
    }
}

impl From<crate::config::Problems> for Failure {
    fn from(problems: crate::config::Problems) -> Self {
        Self::new(exit::PRESET, anyhow::anyhow!("{problems}"))
    }
}

impl From<crate::target::TargetError> for Failure {
    fn from(error: crate::target::TargetError) -> Self {
        Self::new(exit::TARGET, error)
    }
}

/// Writes to standard output; whoever reads may go away.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Runs the command line; errors become one text on standard error and a code.
pub fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let result = match command {
        Command::Run(args) => run::run(&args),
        Command::Why(args) => why::why(&args),
        Command::Check(args) => check::check(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Simulate(args) => simulate::simulate(&args),
    };
    match result {
        Ok(code) => code,
        Err(Failure { code, error }) => {
            complain(error);
            ExitCode::from(code)
        }
    }
}

/// Says an error, on a thread of its own: whoever reads and stalls does not keep a program that has nothing left to do.
#[expect(
    clippy::print_stderr,
    reason = "the one place where an error becomes text"
)]
fn complain(error: anyhow::Error) {
    let (done, said) = channel::<()>();
    let started = thread::Builder::new().spawn(move || {
        eprintln!("atropos: {error:#}");
        drop(done);
    });
    if started.is_ok() {
        // Nothing is ever sent: the end of the thread is what is waited for.
        let _ = said.recv_timeout(READER_LIMIT);
    }
}
