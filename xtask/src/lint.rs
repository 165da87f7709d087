//! Formatting and lints, on everything that this machine can compile.
//!
//! The agent is linted with and without the kernel half, since each hides code of the other; the kernel half by its own compiler's
//! clippy, where that has one.

use std::process::Command;

use anyhow::{Result, bail};

use crate::build::{target_dir, with_kernel_half};
use crate::process::{capture, cargo, find, run, workspace};
use crate::toolchain::{Source, Toolchain};

const DENY: [&str; 3] = ["--", "-D", "warnings"];

/// Runs every check, the rest too when one fails; an error names those that failed.
pub(crate) fn lint() -> Result<()> {
    let mut commands = Vec::new();
    let mut format = cargo();
    format.args(["fmt", "--all", "--", "--check"]);
    commands.push(format);
    let mut agent = cargo();
    agent.args(["clippy", "--all-targets"]).args(DENY);
    commands.push(agent);
    if let Some(toolchain) = Toolchain::chosen() {
        let mut both = with_kernel_half(&toolchain, "clippy");
        both.args(["--package", "atropos-user", "--all-targets"])
            .args(DENY);
        commands.push(both);
        commands.extend(kernel_half(&toolchain));
    } else {
        println!(
            "lint: without the kernel half: no BPF toolchain has been set up (`cargo xtask setup`)"
        );
    }
    let failed: Vec<String> = commands
        .iter_mut()
        .filter_map(|command| run(command).err())
        .map(|error| format!("{error:#}"))
        .collect();
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok(())
}

/// Clippy for the kernel half; only rustup's nightly comes with one.
fn kernel_half(toolchain: &Toolchain) -> Option<Command> {
    let clippy = || {
        let mut command = Command::new(find("rustup")?);
        command
            .args(["run", "nightly", "cargo", "clippy"])
            .current_dir(workspace());
        Some(command)
    };
    let there = toolchain.source == Source::Nightly && capture(clippy()?.arg("--version")).is_ok();
    if !there {
        println!(
            "lint: the kernel half by its compiler's warnings only: that compiler has no clippy"
        );
        return None;
    }
    let mut command = clippy()?;
    command
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            format!("--cfg=bpf_target_arch=\"{}\"", std::env::consts::ARCH),
        )
        .args([
            "--package",
            "atropos-ebpf",
            "--target",
            "bpfel-unknown-none",
            "-Z",
            "build-std=core",
        ])
        .arg("--target-dir")
        .arg(target_dir().join("lint-ebpf"))
        .args(DENY);
    Some(command)
}
