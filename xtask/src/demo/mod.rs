//! The demo.
use anyhow::Result;

/// The verb `demo`.
#[derive(clap::Args)]
pub(crate) struct Demo {}

impl Demo {
    /// Runs it.
    pub(crate) fn run(&self) -> Result<()> {
        let _ = self;
        anyhow::bail!("under construction")
    }
}
