//! What every private server's start has in common: its data directory is made, the server is started, it is waited for.

use std::fmt::Display;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::folder::{Folder, tail};

/// How long a start may take on a slow disk.
const START: Duration = Duration::from_mins(1);

/// Runs the program that makes a data directory.
pub(super) fn make(program: &str, command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!(
            "{program} failed: {}: {}",
            output.status,
            tail(&String::from_utf8_lossy(&text))
        );
    }
    Ok(())
}

/// Starts a server. What it says goes to `log`.
pub(super) fn launch(name: &str, command: &mut Command, log: Stdio) -> Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // Ctrl-C is for us; we end the server.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {name}"))
}

/// Waits until a server that has just been started takes connections; its folder has its log, `log`.
pub(super) async fn answers<C, E: Display>(
    name: &str,
    child: &mut Child,
    folder: &Folder,
    connect: impl AsyncFn() -> Result<C, E>,
) -> Result<C> {
    let deadline = Instant::now() + START;
    loop {
        if let Some(status) = child.try_wait()? {
            bail!(
                "{name} ended while starting: {status}; its log ends with:\n{}",
                folder.tail("log")
            );
        }
        match connect().await {
            Ok(connection) => return Ok(connection),
            Err(error) if Instant::now() > deadline => {
                bail!(
                    "{name} does not answer after {START:?}: {error}; its log ends with:\n{}",
                    folder.tail("log")
                );
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
