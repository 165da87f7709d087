//! A preset that lets probes cost what they cost.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::demo::Kind;
use crate::demo::folder::Folder;

/// A server's preset without a budget for level suspect.
pub(super) struct Unbounded {
    folder: Folder,
}

impl Unbounded {
    /// Of the preset for that server.
    pub(super) fn of(server: Kind) -> Result<Self> {
        let unbounded = Self {
            folder: Folder::new()?,
        };
        let text = format!(
            "schema = 1\nextends = \"{}\"\n\n[budget]\nsuspect = \"100%\"\n",
            server.preset()
        );
        let path = unbounded.path();
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(unbounded)
    }

    /// What makes the agent go by it.
    pub(super) fn arguments(&self) -> Vec<String> {
        vec!["--preset".to_owned(), self.path().display().to_string()]
    }

    fn path(&self) -> PathBuf {
        self.folder.join("unbounded.toml")
    }
}
