//! Building both halves, and running what was built with the privileges that it needs.
//!
//! Building never happens as root on behalf of a user, so no file of the build ever belongs to root.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::{as_root, cargo, is_root, run, shown, workspace};
use crate::toolchain::Toolchain;

/// The verb `build`.
#[derive(clap::Args)]
pub(crate) struct Build {
    /// Optimise.
    #[arg(long)]
    release: bool,
}

impl Build {
    /// Builds both halves.
    pub(crate) fn run(&self) -> Result<()> {
        build(self.release).map(|_| ())
    }
}

/// The verb `run`.
#[derive(clap::Args)]
pub(crate) struct Run {
    /// Optimise.
    #[arg(long)]
    release: bool,
    /// Arguments for `atropos`.
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

impl Run {
    /// Builds both halves and becomes `atropos`, as root.
    pub(crate) fn run(&self) -> Result<()> {
        let binary = build(self.release)?;
        let mut command = as_root(&binary)?;
        command.args(&self.arguments);
        if !is_root() {
            println!("$ {}", shown(&command));
        }
        // In our place, so that signals and the exit code are its own.
        let error = command.exec();
        Err(error).with_context(|| format!("cannot start {}", binary.display()))
    }
}

/// Builds both halves; where the binary is.
pub(crate) fn build(release: bool) -> Result<PathBuf> {
    let mut command = with_kernel_half(&Toolchain::require()?, "build");
    command.args(["--package", "atropos-user", "--bin", "atropos"]);
    if release {
        command.arg("--release");
    }
    run(&mut command)?;
    let profile = if release { "release" } else { "debug" };
    Ok(target_dir().join(profile).join("atropos"))
}

/// A cargo command with everything that the kernel half needs.
pub(crate) fn with_kernel_half(toolchain: &Toolchain, verb: &str) -> Command {
    let mut command = cargo();
    toolchain.apply(&mut command);
    command.args([verb, "--features", "ebpf"]);
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}
