//! Ending a task by a program of the user's: an argument list, never a shell.
//!
//! The program must prove the identity itself with what it is given, and says by its exit code what came of it:
//! 0 accepted, 3 the task had ended, anything else refused (with the first line of its standard error as the reason). Of one
//! that takes too long or is killed nobody knows what came.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::engine::record::Task;

use super::{Answer, Initiator};

/// Exit code by which the program says that the task had ended.
const EXIT_MISSED: i32 = 3;
/// `PATH` of the program; the rest of the environment is empty.
const SAFE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// As much of the program's complaint as is kept.
const COMPLAINT_CHARS: usize = 200;

/// One rung: a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRung {
    program: PathBuf,
    arguments: Vec<String>,
    limit: Duration,
}

impl ExecRung {
    /// Checks that the program is an absolute path that only root or this user could have put there. `{id}`, `{thread}`
    /// and `{request}` are replaced where they stand as a whole argument. Beyond `limit` it is killed.
    pub fn new(
        program: impl Into<PathBuf>,
        arguments: Vec<String>,
        limit: Duration,
    ) -> Result<Self, String> {
        let program = program.into();
        for argument in &arguments {
            let whole = matches!(argument.as_str(), "{id}" | "{thread}" | "{request}");
            if !whole && argument.contains(['{', '}']) {
                return Err(format!(
                    "argument `{argument}`: {{id}}, {{thread}} and {{request}} must each be an argument of their own"
                ));
            }
        }
        trusted(&program)?;
        Ok(Self {
            program,
            arguments,
            limit,
        })
    }
}

/// Arguments with the task's numbers in the place of `{id}`, `{thread}` and `{request}`.
fn filled(arguments: &[String], task: &Task) -> Vec<String> {
    let fill = |argument: &String| match argument.as_str() {
        "{id}" => task.id.to_string(),
        "{thread}" => task.thread.to_string(),
        "{request}" => task.request.to_string(),
        other => other.to_owned(),
    };
    arguments.iter().map(fill).collect()
}

/// Program and arguments as a person could type them.
pub fn command_line(argv: &[String], task: &Task) -> String {
    filled(argv, task).join(" ")
}

/// The real path of a program that nobody but root and this user can have written or moved.
fn trusted(program: &Path) -> Result<PathBuf, String> {
    let shown = program.display();
    if !program.is_absolute() {
        return Err(format!(
            "the program {shown} must be given by its absolute path"
        ));
    }
    let real = fs::canonicalize(program)
        .map_err(|error| format!("cannot use the program {shown}: {error}"))?;
    let me = nix::unistd::geteuid().as_raw();
    for part in real.ancestors() {
        let meta = fs::metadata(part)
            .map_err(|error| format!("cannot look at {}: {error}", part.display()))?;
        let sticky_directory = meta.is_dir() && meta.mode() & 0o1000 != 0;
        if meta.uid() != 0 && meta.uid() != me {
            return Err(format!(
                "will not run {shown}: {} belongs to user id {}, not to root or user id {me}",
                part.display(),
                meta.uid()
            ));
        }
        if meta.mode() & 0o022 != 0 && !sticky_directory {
            return Err(format!(
                "will not run {shown}: {} can be written by others; run chmod go-w on it",
                part.display()
            ));
        }
    }
    let meta = fs::metadata(&real).map_err(|error| format!("cannot look at {shown}: {error}"))?;
    if !meta.is_file() || meta.mode() & 0o111 == 0 {
        return Err(format!("{shown} is not a program"));
    }
    Ok(real)
}

/// The initiator.
#[derive(Clone, Debug)]
pub struct Exec {
    rungs: Vec<ExecRung>,
}

impl Exec {
    /// With a program for each rung.
    pub fn new(rungs: Vec<ExecRung>) -> Self {
        Self { rungs }
    }

    async fn run(&self, rung: &ExecRung, task: &Task) -> Answer {
        // Checked again: it may have been exchanged since the start.
        let program = match trusted(&rung.program) {
            Ok(program) => program,
            Err(why) => return Answer::refused(why),
        };
        let mut command = Command::new(program);
        command
            .args(filled(&rung.arguments, task))
            .env_clear()
            .env("PATH", SAFE_PATH)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let shown = rung.program.display();
        match timeout(rung.limit, command.output()).await {
            Ok(Ok(output)) => judge(&shown.to_string(), &output),
            Ok(Err(error)) => Answer::refused(format!("cannot run {shown}: {error}")),
            // What it had begun may still take its way.
            Err(_) => Answer::unknown(format!(
                "{shown} gave no answer within {} ms and was killed",
                rung.limit.as_millis()
            )),
        }
    }
}

fn judge(program: &str, output: &Output) -> Answer {
    let text = String::from_utf8_lossy(&output.stderr);
    let complaint: String = text
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(COMPLAINT_CHARS)
        .collect();
    match output.status.code() {
        Some(0) => Answer::accepted(),
        Some(EXIT_MISSED) => Answer::missed(complaint),
        None => Answer::unknown(format!("{program} was ended by a {}", output.status)),
        _ => Answer::refused(format!(
            "{program} ended with {}: {complaint}",
            output.status
        )),
    }
}

impl Initiator for Exec {
    fn describe(&self, rung: u8, task: &Task) -> String {
        match self.rungs.get(usize::from(rung)) {
            Some(rung) => {
                let program = std::iter::once(rung.program.display().to_string());
                let argv: Vec<String> = program.chain(rung.arguments.iter().cloned()).collect();
                command_line(&argv, task)
            }
            None => format!("no program for rung {rung}"),
        }
    }

    async fn send(&mut self, rung: u8, task: &Task) -> Answer {
        match self.rungs.get(usize::from(rung)) {
            Some(rung) => self.run(rung, task).await,
            None => Answer::refused(format!("the ladder has no rung {rung}")),
        }
    }

    async fn check_permission(&mut self) -> Result<(), String> {
        self.rungs
            .iter()
            .try_for_each(|rung| trusted(&rung.program).map(drop))
    }

    fn own_ids(&self) -> Vec<u64> {
        Vec::new()
    }

    async fn keep_warm(&mut self) -> Result<(), String> {
        Ok(())
    }
}
