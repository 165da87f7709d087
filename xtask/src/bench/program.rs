//! Tests of the agent that measure something, built optimised: which program they are in.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::build::with_kernel_half;
use crate::process::{capture, shown, workspace};
use crate::setup::setup;

/// Sets up and builds the agent's tests of that name; where they are.
pub(super) fn build_tests(name: &str) -> Result<PathBuf> {
    let mut build = with_kernel_half(&setup(None)?, "test");
    build.args([
        "--release",
        "--package",
        "atropos-user",
        "--test",
        name,
        "--no-run",
    ]);
    println!("$ {}", shown(&build));
    let messages = build
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()?;
    if !messages.status.success() {
        bail!("the tests `{name}` do not build");
    }
    executable(&String::from_utf8_lossy(&messages.stdout), name)
        .with_context(|| format!("cargo does not say where the tests `{name}` are"))
}

/// What one test of such a program says; `command` begins with the program.
pub(super) fn said_by(mut command: Command, test: &str) -> Result<String> {
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .current_dir(workspace().join("atropos-user"));
    capture(&mut command)
}

fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let built = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    built
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_the_one_of_the_tests_that_were_asked_for() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"atropos"},"executable":"/t/atropos"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"kernel"},"executable":"/t/kernel"}"#,
            "\n",
        );
        assert_eq!(
            executable(messages, "kernel"),
            Some(PathBuf::from("/t/kernel"))
        );
        assert_eq!(executable(messages, "postgresql"), None);
    }
}
