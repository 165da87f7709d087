//! Every check and test, and one count over all of them.
//!
//! First what needs no privilege, then the tests of the kernel half and of real servers, which are built as the invoking user and
//! run as root. A test that needs what the machine lacks prints a line with `SKIPPED:` and its reason; on CI (`CI=true`) a skipped
//! test is a failure.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::bench::soak;
use crate::build::with_kernel_half;
use crate::lint::lint;
use crate::process::{as_root, capture, cargo, shown, workspace};
use crate::setup::setup;
use crate::toolchain::Toolchain;

/// What a test prints, with the reason, when this machine cannot run it.
const SKIPPED: &str = "SKIPPED:";

/// The seed of property tests, so that two runs of the verb test the same. `tests without privileges` has all of them. What is set
/// outside goes before it.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20260101");

/// How the reason begins of an ignored test that another test runs: no skip.
const RUN_BY: &str = "ignored, run by ";

/// Runs everything; ends the process with failure if anything failed.
pub(crate) fn test() -> Result<()> {
    let toolchain = setup(None)?;
    let mut count = Count::default();
    for (part, done) in [
        ("lint", lint()),
        ("tests without privileges", unprivileged(&mut count)),
        ("tests as root", privileged(&toolchain, &mut count)),
        ("soak", soaked(&mut count)),
    ] {
        if let Err(error) = done {
            eprintln!("test: {part}: {error:#}");
            count.broken += 1;
        }
    }
    let on_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    println!("{count}");
    if count.is_bad(on_ci) {
        // The count is the last line, so no error may follow it.
        std::process::exit(1);
    }
    Ok(())
}

fn unprivileged(count: &mut Count) -> Result<()> {
    let mut tests = cargo();
    // What a passing test printed is shown, or a skipped one would look like any other.
    tests.args(["test", "--no-fail-fast", "--", "--show-output"]);
    if std::env::var_os(SEED.0).is_none() {
        tests.env(SEED.0, SEED.1);
    }
    count.of(&mut tests)
}

fn privileged(toolchain: &Toolchain, count: &mut Count) -> Result<()> {
    let mut build = with_kernel_half(toolchain, "test");
    build.args([
        "--package",
        "atropos-user",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    println!("$ {}", shown(&build));
    let messages = build.stderr(Stdio::inherit()).output()?;
    if !messages.status.success() {
        bail!("the tests of the kernel half do not build");
    }
    let privileged_targets = privileged_targets()?;
    let mut failed = None;
    for executable in executables(&String::from_utf8_lossy(&messages.stdout)) {
        let filter = match executable.kind.as_str() {
            "lib" => &["kernel::"][..],
            "test" if privileged_targets.contains(&executable.name) => &[],
            _ => continue,
        };
        let mut command = as_root(&executable.file)?;
        command
            .args(["--test-threads=1", "--show-output"])
            .args(filter)
            .current_dir(workspace().join("atropos-user"));
        // The rest is run in any case: one count over everything.
        failed = count.of(&mut command).err().or(failed);
    }
    failed.map_or(Ok(()), Err)
}

/// Two minutes at 70 % load in enforce mode, both servers at once.
fn soaked(count: &mut Count) -> Result<()> {
    if let Some(reason) = soak::lacks() {
        println!("soak {SKIPPED} {reason}");
        count.skipped += 1;
        return Ok(());
    }
    let done = soak::brief();
    match &done {
        Ok(()) => count.passed = count.passed.wrapping_add(1),
        Err(_) => count.failed += 1,
    }
    done
}

/// A test executable as cargo reports it.
#[derive(Debug, PartialEq)]
struct Executable {
    kind: String,
    name: String,
    file: PathBuf,
}

fn executables(messages: &str) -> Vec<Executable> {
    #[derive(Deserialize)]
    struct Message {
        target: Target,
        executable: PathBuf,
        profile: Profile,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.profile.test)
        .filter_map(|message| {
            Some(Executable {
                kind: message.target.kind.into_iter().next()?,
                name: message.target.name,
                file: message.executable,
            })
        })
        .collect()
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
    src_path: PathBuf,
}

/// The test files that are run as root: those that speak of the kernel half's feature. The others have run without it.
fn privileged_targets() -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        targets: Vec<Target>,
    }
    let text = capture(cargo().args(["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata: Metadata =
        serde_json::from_str(&text).context("cargo metadata is not as expected")?;
    let targets = metadata
        .packages
        .into_iter()
        .flat_map(|package| package.targets);
    let needs_kernel_half = |target: &Target| {
        fs::read_to_string(&target.src_path).is_ok_and(|text| text.contains(r#"feature = "ebpf""#))
    };
    Ok(targets
        .filter(|target| target.kind == ["test"] && needs_kernel_half(target))
        .map(|target| target.name)
        .collect())
}

/// Tests counted, over all parts.
#[derive(Debug, Default, PartialEq)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Parts that failed by themselves, such as lints.
    broken: u64,
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
            broken,
        } = self;
        // A failed test breaks its part too, and is not counted twice.
        let failed = if *failed == 0 { *broken } else { *failed };
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl Count {
    fn is_bad(&self, on_ci: bool) -> bool {
        self.failed > 0 || self.broken > 0 || (on_ci && self.skipped > 0)
    }

    /// Runs a test command, shows its output, and adds what it counts.
    fn of(&mut self, command: &mut Command) -> Result<()> {
        println!("$ {}", shown(command));
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", shown(command)))?;
        let output = child.stdout.take().context("no output to read")?;
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            self.add(&line);
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("`{}` failed: {status}", short(command));
        }
        Ok(())
    }

    /// Adds one line of a test program's output.
    fn add(&mut self, line: &str) {
        if line.contains(SKIPPED) {
            // libtest will count it as passed.
            self.skipped += 1;
            self.passed = self.passed.wrapping_sub(1);
        }
        if line.starts_with("test ") && line.contains(" ... ignored") && !line.contains(RUN_BY) {
            self.skipped += 1;
        }
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
        for part in counts.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(number)), Some(what)) =
                (words.next().map(str::parse::<u64>), words.next())
            else {
                continue;
            };
            match what {
                "passed" => self.passed = self.passed.wrapping_add(number),
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }
}

fn short(command: &Command) -> String {
    Path::new(command.get_program()).file_name().map_or_else(
        || shown(command),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> Count {
        let mut count = Count::default();
        text.lines().for_each(|line| count.add(line));
        count
    }

    #[test]
    fn results_of_several_programs_are_summed() {
        let text = "test a ... ok\n\
                    test b ... ignored\n\
                    test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
                    test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1.50s\n";
        assert_eq!(count(text).to_string(), "7 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn an_ignored_test_that_another_test_runs_is_not_skipped() {
        let text = "test helper ... ignored, run by `a_test` as another user\n\
                    test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        assert_eq!(count(text).to_string(), "3 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn a_test_that_says_it_was_skipped_does_not_count_as_passed() {
        let text = "test needs_server ... ok\n\
                    ---- needs_server stdout ----\n\
                    SKIPPED: there is no MariaDB here\n\
                    test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let count = count(text);
        assert_eq!(count.to_string(), "1 passed, 0 failed, 1 skipped");
        assert!(count.is_bad(true));
        assert!(!count.is_bad(false));
    }

    #[test]
    fn a_failed_lint_is_a_failure_even_if_every_test_passes() {
        let count = Count {
            passed: 5,
            broken: 1,
            ..Count::default()
        };
        assert_eq!(count.to_string(), "5 passed, 1 failed, 0 skipped");
        assert!(count.is_bad(false));
    }

    #[test]
    fn only_test_programs_are_taken_from_cargos_messages() {
        let text = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"a","src_path":"/a.rs"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"b","src_path":"/b.rs"},"profile":{"test":false},"executable":"/b"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"c","src_path":"/c.rs"},"profile":{"test":true},"executable":"/c"}
{"reason":"build-finished","success":true}"#;
        let expected = Executable {
            kind: "test".into(),
            name: "c".into(),
            file: "/c".into(),
        };
        assert_eq!(executables(text), [expected]);
    }
}
