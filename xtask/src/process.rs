//! Running other programs: each command is printed before it runs, and a failure names the command.
//!
//! Refuses shells: arguments stay arguments.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The repository's root.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_path_buf()
}

/// Where xtask keeps what it knows about this machine; ignored by git.
pub(crate) fn state_dir() -> PathBuf {
    workspace().join(".atropos")
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The cargo that started us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// `program` as root: itself if we are root, else through sudo.
pub(crate) fn as_root(program: impl AsRef<OsStr>) -> Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    let Some(sudo) = find("sudo") else {
        bail!(
            "cannot run {} as root: this user is not root and there is no sudo; run this verb as root once",
            program.as_ref().display()
        );
    };
    let mut command = Command::new(sudo);
    command.arg("--").arg(program);
    Ok(command)
}

/// Runs a command with our standard streams; an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", shown(command));
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs a command silently; its standard output if it succeeds.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!(
            "`{}` failed: {}: {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as a person would type it: variables set on purpose, program, arguments.
pub(crate) fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter(|(name, _)| *name != "PATH");
    let variables = variables.filter_map(|(name, value)| {
        let value = value?;
        Some(format!("{}={}", name.display(), quoted(value)))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    variables
        .chain(words.map(quoted))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The first executable of that name on PATH, or in the folders of administrators, which an ordinary user's PATH lacks.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

/// Whether this is a file that somebody may execute.
pub(crate) fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("prog");
        command
            .env("A", "x y")
            .env("PATH", "/nowhere")
            .args(["-n", "it's", ""]);
        assert_eq!(shown(&command), r"A='x y' prog -n 'it'\''s' ''");
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        let error = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.contains("`false`"), "{error}");
    }

    #[test]
    fn a_program_in_no_folder_is_not_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
    }
}
