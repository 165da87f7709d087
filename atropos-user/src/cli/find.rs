//! From `--pid`, `--exe` or `--service` to a process, and from the process to its preset.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;

use super::{Failure, exit};
use crate::agent::declared::carrier;
use crate::config::{self, Preset};
use crate::target::{Process, TargetError, find_by_exe, find_by_service};

/// Which process.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TargetArgs {
    /// Process id of the server
    #[arg(long, value_name = "N")]
    pub pid: Option<u32>,
    /// Program file of the server; a server that restarts is followed
    #[arg(long, value_name = "PATH")]
    pub exe: Option<PathBuf>,
    /// systemd service of the server; a server that restarts is followed
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
}

impl TargetArgs {
    /// The process as it is now.
    ///
    /// # Errors
    /// When there is none, or it may not be read; the message says which capability is missing.
    pub fn find(&self) -> Result<Process, TargetError> {
        match (self.pid, &self.exe, &self.service) {
            (Some(pid), ..) => Process::open(pid),
            (None, Some(exe), _) => find_by_exe(exe),
            (None, None, service) => find_by_service(service.as_deref().unwrap_or_default()),
        }
    }

    /// Whether a successor of the process can be found when it restarts.
    pub fn survives_restart(&self) -> bool {
        self.pid.is_none()
    }
}

/// The preset that was named, or the one that knows the process.
///
/// # Errors
/// When the named preset has mistakes, or no embedded preset knows the process.
pub(super) fn preset_for(named: Option<&str>, process: &Process) -> Result<Preset, Failure> {
    if let Some(name) = named {
        return Ok(config::load(name)?);
    }
    let mut programs: Vec<String> = file_name(process.exe()).into_iter().collect();
    // A server started through the dynamic loader is recognised by what it maps.
    programs.extend(
        process
            .mapped_files()?
            .iter()
            .filter_map(|file| file_name(&file.path_in_target)),
    );
    let known = programs
        .iter()
        .flat_map(|program| config::recognise(program))
        .next();
    // An application that no preset knows by its name may carry marks.
    let known = match known {
        None if carrier(process, &process.mapped_files()?)?.is_some() => {
            Some(config::load("atropos")?)
        }
        known => known,
    };
    known.ok_or_else(|| {
        let names: Vec<&str> = config::embedded().iter().map(|(name, _)| *name).collect();
        Failure::new(
            exit::PRESET,
            anyhow!(
                "no preset knows the program {} of process {}; name one with --preset (there are: {}), or write one \
                 (docs/config.md)",
                process.exe().display(),
                process.pid(),
                names.join(", "),
            ),
        )
    })
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
}
