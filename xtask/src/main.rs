//! Verbs for whoever works on Atropos: set-up, doctor, build, run, lint, test, demo.
//!
//! Every verb prints the commands that it runs. Building never needs root; what does is run through `sudo` for itself alone.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program talks to its user"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the ban on clocks protects the engine; these verbs measure a server from outside"
)]

mod apt;
mod bench;
mod build;
mod demo;
mod doctor;
mod lint;
mod mutate;
mod process;
mod setup;
mod test;
mod toolchain;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Verbs for whoever works on Atropos"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what building, testing and the demo need; does nothing where it is there already.
    Setup(setup::Setup),
    /// Say what this machine has and lacks; fails if Atropos cannot run here.
    Doctor,
    /// Build both halves.
    Build(build::Build),
    /// Build both halves and run `atropos ARGS` with the privileges that it needs.
    Run(build::Run),
    /// Check formatting and lints.
    Lint,
    /// Set up, lint, and run every test; the last line counts them.
    Test,
    /// Show Atropos at work on a private server under load.
    Demo(demo::Demo),
    /// Measure Atropos on a private server; docs/benchmarks.md says how.
    Bench(bench::Bench),
    /// Break each formula of the engine once, and see that some test notices; takes some minutes.
    Mutate(mutate::Mutate),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Setup(setup) => setup.run(),
        Verb::Doctor => doctor::doctor(),
        Verb::Build(build) => build.run(),
        Verb::Run(run) => run.run(),
        Verb::Lint => lint::lint(),
        Verb::Test => test::test(),
        Verb::Demo(demo) => demo.run(),
        Verb::Bench(bench) => bench.run(),
        Verb::Mutate(mutate) => mutate.run(),
    };
    finish(done)
}

fn finish(done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
