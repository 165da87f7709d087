//! Whether a preset is right for the version of the application that runs.

use anyhow::{Context as _, Result, bail};

use crate::config::Preset;
use crate::target::Process;

/// Refuses a version that the preset is not right for, and a process that does not tell its version: numbers of another one
/// can pass every check and mean something else.
pub(super) fn is_known(process: &Process, preset: &Preset) -> Result<()> {
    let Some(version) = &preset.matching.version else {
        return Ok(());
    };
    let told = process.first_line(&version.file).with_context(|| {
        format!(
            "cannot tell the version of process {} ({}): there is no {} that can be read in the directory that it works in; the \
             preset `{}` knows {}",
            process.pid(),
            process.comm(),
            version.file,
            preset.name.value,
            version.known.join(", "),
        )
    })?;
    if version.known.contains(&told) {
        return Ok(());
    }
    bail!(
        "process {} ({}) is of version {told} (so says {} in the directory that it works in), and the preset `{}` knows {}: its \
         numbers would be wrong there; name a preset of that version with --preset",
        process.pid(),
        process.comm(),
        version.file,
        preset.name.value,
        version.known.join(", "),
    )
}
