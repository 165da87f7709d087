//! Debian's package tools: installs what is missing, prints what it runs, starts no service.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::{as_root, capture, find, run, state_dir};

/// Debian's package tools, if this is a system that has them.
pub(crate) struct Apt {
    there: bool,
    lists_are_fresh: Cell<bool>,
}

impl Apt {
    /// Looks whether this system has them.
    pub(crate) fn new() -> Self {
        Self {
            there: find("apt-get").is_some() && find("dpkg-query").is_some(),
            lists_are_fresh: Cell::new(false),
        }
    }

    /// Whether a package is installed.
    fn is_installed(package: &str) -> bool {
        let mut query = Command::new("dpkg-query");
        capture(query.args(["-W", "-f", "${db:Status-Status}", package]))
            .is_ok_and(|status| status == "installed")
    }

    /// Whether a package can be installed; fetches the lists if they do not know it.
    pub(crate) fn has(&self, package: &str) -> bool {
        let listed = || {
            let mut policy = Command::new("apt-cache");
            capture(policy.args(["policy", package])).is_ok_and(|text| {
                text.lines()
                    .filter_map(|line| line.trim().strip_prefix("Candidate: "))
                    .any(|candidate| candidate != "(none)")
            })
        };
        self.there && (listed() || (self.update().is_ok() && listed()))
    }

    /// Installs those packages that are missing; once more if that fails, since mirrors hiccup.
    pub(crate) fn install(&self, packages: &[&str]) -> Result<()> {
        let missing: Vec<&str> = packages
            .iter()
            .copied()
            .filter(|package| !self.there || !Self::is_installed(package))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        if !self.there {
            let list = missing.join(" ");
            println!(
                "setup: no apt here: these, or what stands for them, are yours to install: {list}"
            );
            return Ok(());
        }
        let _quiet = NoServices::start()?;
        let once = || self.update().and_then(|()| Self::get(&missing));
        once().or_else(|first| {
            println!("setup: {first:#}; once more");
            self.lists_are_fresh.set(false);
            once()
        })
    }

    /// Fetches the package lists, once.
    fn update(&self) -> Result<()> {
        if !self.lists_are_fresh.get() {
            run(as_root("apt-get")?.args(["update", "-q"]))?;
            self.lists_are_fresh.set(true);
        }
        Ok(())
    }

    fn get(packages: &[&str]) -> Result<()> {
        // Through env, because sudo passes no variables on.
        let mut env = as_root("env")?;
        env.args([
            "DEBIAN_FRONTEND=noninteractive",
            "apt-get",
            "install",
            "-q",
            "-y",
        ]);
        run(env.arg("--no-install-recommends").args(packages))
    }
}

/// While this lives, packages that are installed start no service. A rule that the machine has already is kept.
struct NoServices {
    ours: bool,
}

impl NoServices {
    const RULE: &str = "/usr/sbin/policy-rc.d";

    fn start() -> Result<Self> {
        if Path::new(Self::RULE).exists() {
            return Ok(Self { ours: false });
        }
        let text = state_dir().join("policy-rc.d");
        catch_signals()?;
        fs::create_dir_all(state_dir())?;
        fs::write(&text, "#!/bin/sh\nexit 101\n")
            .with_context(|| format!("cannot write {}", text.display()))?;
        let mut install = as_root("install")?;
        run(install.args(["-m", "755"]).arg(&text).arg(Self::RULE))?;
        Ok(Self { ours: true })
    }
}

/// From here on Ctrl-C ends the program that we run, which fails, and not us before the rule is taken away.
fn catch_signals() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _in_runtime = runtime.enter();
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        drop(signal(kind).context("cannot catch signals")?);
    }
    Ok(())
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        let removed = as_root("rm").and_then(|mut rm| run(rm.args(["-f", Self::RULE])));
        if let Err(error) = removed {
            eprintln!(
                "setup: {error:#}; remove {} yourself, or packages will start no services",
                Self::RULE
            );
        }
    }
}
