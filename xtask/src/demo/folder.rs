//! A temporary folder for a private server, removed when dropped.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The folder.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes one that nobody else can enter.
    pub(crate) fn new() -> Result<Self> {
        let template = std::env::temp_dir().join("atropos-demo-XXXXXX");
        nix::unistd::mkdtemp(&template)
            .map(Self)
            .with_context(|| format!("cannot make a folder like {}", template.display()))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The last lines of a file in it.
    pub(crate) fn tail(&self, name: &str) -> String {
        tail(&fs::read_to_string(self.join(name)).unwrap_or_default())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!(
                "demo: cannot remove {}: {error}; remove it yourself",
                self.0.display()
            );
        }
    }
}

/// The last lines of a text.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
