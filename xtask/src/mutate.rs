//! Breaks each formula of the engine once, and asks that some test notices.
//!
//! The list is `atropos-engine/mutations.toml`. It is carried out on a copy of the sources, never on the checkout. A change that
//! no longer applies, or that does not compile, is an error: then the list is out of date.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::build::target_dir;
use crate::process::{capture, cargo, workspace};

/// The crate whose formulas are broken.
const CRATE: &str = "atropos-engine";

/// Its tests, those first that take least and find most: what a change is not noticed by, the next are asked.
const TESTS: [&[&str]; 3] = [
    &["--lib"],
    &[
        "--test",
        "scenarios",
        "--test",
        "pacing",
        "--test",
        "safety",
        "--test",
        "own_time",
        "--test",
        "budget",
        "--test",
        "usage",
        "--test",
        "climb",
        "--test",
        "limits",
        "--test",
        "requeue",
        "--test",
        "every_order",
    ],
    &["--test", "properties"],
];

/// The verb `mutate`.
#[derive(clap::Args)]
pub(crate) struct Mutate {
    /// Only changes whose file or formula has this in it (may be given several times).
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// See that every change applies, and run nothing.
    #[arg(long)]
    check: bool,
}

#[derive(Deserialize)]
struct List {
    mutation: Vec<Mutation>,
}

/// One formula, and how it is broken.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    /// What the formula says.
    formula: String,
    /// The file below `src/`.
    file: String,
    /// A piece of it that is there once.
    from: String,
    /// What takes its place.
    to: String,
}

/// What became of a change.
#[derive(Debug, PartialEq)]
enum Fate {
    Noticed,
    Survived,
    NoProgram,
}

impl Mutate {
    /// Breaks one formula after the other; fails if a change survives.
    pub(crate) fn run(&self) -> Result<()> {
        let list = read(&workspace().join(CRATE))?;
        let chosen: Vec<&Mutation> = list
            .mutation
            .iter()
            .filter(|mutation| self.wants(mutation))
            .collect();
        ensure!(
            !chosen.is_empty(),
            "no change has that in its file or formula"
        );
        for mutation in &chosen {
            mutation.apply(&workspace().join(CRATE))?;
        }
        println!("mutate: {} changes apply", chosen.len());
        if self.check {
            return Ok(());
        }
        let copy = Copy::make()?;
        ensure!(
            copy.fate()? == Fate::Survived,
            "the tests fail before anything is changed: see `cargo test -p {CRATE}`"
        );
        let mut bad = String::new();
        for mutation in chosen {
            let fate = copy.with(mutation)?;
            let word = match fate {
                Fate::Noticed => "noticed",
                Fate::Survived => "SURVIVED",
                Fate::NoProgram => "DOES NOT COMPILE",
            };
            println!("{word:<16} {}: {}", mutation.file, mutation.formula);
            if fate != Fate::Noticed {
                let _ = write!(bad, "\n  {word}: {}: {}", mutation.file, mutation.formula);
            }
        }
        ensure!(
            bad.is_empty(),
            "no test notices, or the list is wrong:{bad}"
        );
        Ok(())
    }

    fn wants(&self, mutation: &Mutation) -> bool {
        let has = |text: &String| mutation.file.contains(text) || mutation.formula.contains(text);
        self.only.is_empty() || self.only.iter().any(has)
    }
}

fn read(of: &Path) -> Result<List> {
    let file = of.join("mutations.toml");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    toml::from_str(&text).with_context(|| format!("{} has a mistake", file.display()))
}

impl Mutation {
    /// The changed text of the file in this crate.
    fn apply(&self, of: &Path) -> Result<String> {
        let file = self.file_in(of);
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        self.changed(&text)
    }

    fn changed(&self, text: &str) -> Result<String> {
        let count = text.matches(&self.from).count();
        if count != 1 {
            bail!(
                "mutations.toml no longer applies: `{}` is {count} times in {} and must be there once ({})",
                self.from,
                self.file,
                self.formula
            );
        }
        Ok(text.replacen(&self.from, &self.to, 1))
    }

    fn file_in(&self, of: &Path) -> PathBuf {
        of.join("src").join(&self.file)
    }
}

/// A copy of the sources with a build of its own.
struct Copy {
    root: PathBuf,
    build: PathBuf,
}

impl Copy {
    /// Copies everything that git knows or would take in.
    fn make() -> Result<Self> {
        let home = target_dir().join("mutate");
        let (root, build) = (home.join("tree"), home.join("build"));
        if root.exists() {
            fs::remove_dir_all(&root)
                .with_context(|| format!("cannot empty {}", root.display()))?;
        }
        let mut list = Command::new("git");
        list.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(workspace());
        for name in capture(&mut list)?
            .split('\0')
            .filter(|name| !name.is_empty())
        {
            let (from, to) = (workspace().join(name), root.join(name));
            if !from.is_file() {
                continue;
            }
            let folder = to.parent().context("a file has a folder")?;
            fs::create_dir_all(folder)?;
            fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
        Ok(Self { root, build })
    }

    /// With one formula broken; whole again afterwards.
    fn with(&self, mutation: &Mutation) -> Result<Fate> {
        let of = self.root.join(CRATE);
        let file = mutation.file_in(&of);
        let before = fs::read_to_string(&file)?;
        fs::write(&file, mutation.apply(&of)?)?;
        let fate = self.fate();
        fs::write(&file, before)?;
        fate
    }

    /// What the tests say of the copy as it is.
    fn fate(&self) -> Result<Fate> {
        for tests in TESTS {
            if !self.cargo(tests, &["--no-run"])? {
                return Ok(Fate::NoProgram);
            }
            if !self.cargo(tests, &[])? {
                return Ok(Fate::Noticed);
            }
        }
        Ok(Fate::Survived)
    }

    fn cargo(&self, tests: &[&str], more: &[&str]) -> Result<bool> {
        let mut command = cargo();
        command
            .args(["test", "--quiet", "--package", CRATE])
            .args(tests)
            .args(more)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.build)
            // Enough to notice, and quickly; and the same each time.
            .env("PROPTEST_CASES", "32")
            .env("PROPTEST_RNG_SEED", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = command.status().context("cannot start cargo")?;
        Ok(status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_of_the_engine_is_asked_but_for_those_that_measure() {
        let tests = workspace().join(CRATE).join("tests");
        for entry in fs::read_dir(tests).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let is_asked = TESTS.iter().any(|tests| tests.contains(&name));
            assert!(is_asked || ["kit", "memory"].contains(&name), "{name}");
        }
    }

    #[test]
    fn every_change_applies_to_the_sources_as_they_are() {
        let of = workspace().join(CRATE);
        for mutation in read(&of).unwrap().mutation {
            let changed = mutation.apply(&of).unwrap();
            assert_ne!(changed, fs::read_to_string(mutation.file_in(&of)).unwrap());
        }
    }

    #[test]
    fn a_piece_that_is_not_there_once_is_an_error() {
        let mutation = Mutation {
            formula: "sum".to_owned(),
            file: "a.rs".to_owned(),
            from: "a + b".to_owned(),
            to: "a - b".to_owned(),
        };
        assert_eq!(
            mutation.changed("let c = a + b;").unwrap(),
            "let c = a - b;"
        );
        for text in ["let c = b;", "a + b + (a + b)"] {
            let error = mutation.changed(text).unwrap_err().to_string();
            assert!(error.contains("no longer applies"), "{error}");
        }
    }
}
