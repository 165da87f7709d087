//! Generates the table of embedded presets (adding an application is adding a folder under `presets/`), and builds the
//! kernel half when the feature `ebpf` is on.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    embed_presets()?;
    #[cfg(feature = "ebpf")]
    ebpf::build()?;
    Ok(())
}

/// Writes `$OUT_DIR/presets.rs`: a static slice of (name, text), one for each `presets/*/preset.toml`, sorted by name.
fn embed_presets() -> Result<()> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../presets");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut presets = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let text = entry?.path().join("preset.toml");
        if text.is_file() {
            println!("cargo::rerun-if-changed={}", text.display());
            presets.push(text.canonicalize()?);
        }
    }
    presets.sort();
    let target = PathBuf::from(env::var("OUT_DIR")?).join("presets.rs");
    fs::write(&target, table(&presets)?)
        .with_context(|| format!("cannot write {}", target.display()))
}

/// The Rust source of the table.
fn table(presets: &[PathBuf]) -> Result<String> {
    let mut source = "static EMBEDDED: &[(&str, &str)] = &[\n".to_owned();
    for text in presets {
        let name = text
            .parent()
            .and_then(Path::file_name)
            .and_then(|name| name.to_str())
            .context("a preset's folder has no readable name")?;
        let path = text.to_str().context("the path of a preset is not UTF-8")?;
        writeln!(source, "    ({name:?}, include_str!({path:?})),")?;
    }
    source.push_str("];\n");
    Ok(source)
}

#[cfg(feature = "ebpf")]
mod ebpf {
    use aya_build::{Package, Toolchain, build_ebpf};

    /// The toolchain comes from `ATROPOS_EBPF_TOOLCHAIN` (`cargo xtask` sets it), else `nightly`.
    pub(crate) fn build() -> anyhow::Result<()> {
        println!("cargo::rerun-if-env-changed=ATROPOS_EBPF_TOOLCHAIN");
        println!("cargo::rerun-if-changed=../atropos-common/src");
        let name = std::env::var("ATROPOS_EBPF_TOOLCHAIN").unwrap_or_else(|_| "nightly".to_owned());
        let root_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../atropos-ebpf");
        // Log lines from inside the programs, for whoever works on them.
        let features: &[&str] = if cfg!(feature = "bpf-log") {
            &["log"]
        } else {
            &[]
        };
        let package = Package {
            name: "atropos-ebpf",
            root_dir,
            features,
            ..Default::default()
        };
        build_ebpf([package], Toolchain::Custom(&name))
    }
}
