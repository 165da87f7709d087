//! `bench churn`: the test in which PostgreSQL's sessions come and go, optimised and for longer.

use anyhow::{Context as _, Result};

use super::program::{build_tests, said_by};
use crate::demo::watch::ask_for_root;
use crate::process::as_root;
use crate::setup::require_postgresql;

/// The test; it fails if a session is missed, if anything is lost, or if anything of one that is gone is kept.
const TEST: &str = "churn::sessions_that_come_and_go_are_all_seen_and_leave_nothing_behind";
/// What the line that says how it was has behind its number.
const TOLD: &str = " sessions came and went";

/// The verb `bench churn`.
#[derive(clap::Args)]
pub(super) struct Churn {
    /// For how long they come and go.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..))]
    seconds: u64,
}

impl Churn {
    pub(super) fn run(&self) -> Result<()> {
        let executable = build_tests("postgresql")?;
        require_postgresql()?;
        ask_for_root()?;
        // Through env, because sudo passes no variables on.
        let mut test = as_root("env")?;
        test.arg(format!("ATROPOS_CHURN_SECONDS={}", self.seconds))
            .arg(executable);
        let output = said_by(test, TEST)?;
        println!(
            "{}",
            told(&output).context("the test does not tell how it was")?
        );
        Ok(())
    }
}

/// The line that the test prints.
fn told(output: &str) -> Option<&str> {
    let line = output.lines().find(|line| line.contains(TOLD))?;
    let start = line.find(TOLD)?;
    let number = line[..start]
        .rfind(char::is_whitespace)
        .map_or(0, |at| at + 1);
    Some(&line[number..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_behind_the_name_of_the_test() {
        let output = "running 1 test\ntest churn::x ... 504 sessions came and went in 10 s\nok\n";
        assert_eq!(told(output), Some("504 sessions came and went in 10 s"));
        assert_eq!(told("SKIPPED"), None);
    }
}
