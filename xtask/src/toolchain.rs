//! The compiler for the kernel half: which one this machine has, what `setup` chose, and the environment that a build needs for it.
//!
//! The BPF target needs a compiler that accepts unstable flags, the source of `core`, and a bpf-linker whose LLVM is at least as
//! new as the compiler's. rustup's nightly is taken where its source can be had; else the distribution's compiler, behind two
//! wrappers that switch the unstable flags on for the kernel half alone. (Switched on for everything, `RUSTC_BOOTSTRAP` changes
//! what build scripts see, and each plain `cargo build` in between would compile the world again.)

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::process::{capture, find, is_executable, state_dir};

/// The bpf-linker that the kernel half is linked with.
pub(crate) const LINKER_VERSION: &str = "0.13.0";
/// The LLVM versions that this bpf-linker can be built for, newest first.
const LINKER_LLVMS: [u32; 3] = [23, 22, 21];
/// Name under which rustup knows the distribution's compiler.
pub(crate) const LINKED: &str = "atropos-bpf";
/// The variable that the agent's build script reads.
pub(crate) const VARIABLE: &str = "ATROPOS_EBPF_TOOLCHAIN";

/// Where the compiler comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    /// rustup's nightly with rust-src.
    Nightly,
    /// The distribution's compiler, linked into rustup.
    Linked,
    /// The distribution's compiler, without any rustup.
    System,
}

/// What `setup` chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Toolchain {
    /// Where the compiler comes from.
    pub(crate) source: Source,
    /// What the compiler calls itself.
    pub(crate) rustc: String,
    /// LLVM's major version in the linker.
    pub(crate) llvm: u32,
    /// The linker.
    pub(crate) linker: PathBuf,
}

impl Toolchain {
    fn file() -> PathBuf {
        state_dir().join("toolchain.json")
    }

    /// What `setup` chose; `None` if it has not run, or what it chose is gone.
    pub(crate) fn chosen() -> Option<Self> {
        let text = fs::read_to_string(Self::file()).ok()?;
        let chosen: Self = serde_json::from_str(&text).ok()?;
        let there = is_executable(&chosen.linker)
            && match chosen.source {
                Source::Nightly => compiler_of("nightly").is_some_and(|found| found.has_source),
                Source::Linked => compiler_of(LINKED).is_some_and(|found| found.has_source),
                Source::System => system_compiler().is_some_and(|found| found.has_source),
            };
        there.then_some(chosen)
    }

    /// What `setup` chose, or an error that says to run it.
    pub(crate) fn require() -> Result<Self> {
        Self::chosen().context(
            "the kernel half cannot be built: no BPF toolchain has been set up; run `cargo xtask setup`",
        )
    }

    /// Writes the choice down.
    pub(crate) fn save(&self) -> Result<()> {
        let file = Self::file();
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::create_dir_all(state_dir())
            .and_then(|()| fs::write(&file, text))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Sets what a build of both halves needs in the environment.
    pub(crate) fn apply(&self, command: &mut Command) {
        let folder = match self.source {
            Source::Nightly => {
                command.env(VARIABLE, "nightly");
                self.linker.parent()
            }
            Source::Linked => {
                command.env(VARIABLE, LINKED);
                self.linker.parent()
            }
            Source::System => {
                // Without rustup the inner build takes whatever cargo is first on PATH; the outer one keeps the real compiler.
                // The linker is linked in there: its own folder may hold a rustup that was kept off PATH.
                command.env("RUSTC", "/usr/bin/rustc");
                None
            }
        };
        let wrappers = wrappers().join("bin");
        command.env("PATH", path_with(folder.unwrap_or(&wrappers)));
    }
}

/// PATH with this folder in front.
fn path_with(folder: &Path) -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let rest = env::split_paths(&path);
    env::join_paths(std::iter::once(folder.to_path_buf()).chain(rest)).unwrap_or(path)
}

/// A compiler that was found.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    /// `rustc 1.96.0 (...)`.
    pub(crate) version: String,
    /// LLVM's major version.
    pub(crate) llvm: u32,
    /// Whether the source of `core` is there.
    pub(crate) has_source: bool,
}

/// The compiler of a rustup toolchain.
pub(crate) fn compiler_of(toolchain: &str) -> Option<Compiler> {
    let rustup = find("rustup")?;
    let command = || {
        let mut command = Command::new(&rustup);
        // A plain question must not start a download.
        command
            .env("RUSTUP_AUTO_INSTALL", "0")
            .args(["run", toolchain, "rustc"]);
        command
    };
    look_at(command)
}

/// The distribution's compiler.
pub(crate) fn system_compiler() -> Option<Compiler> {
    is_executable(Path::new("/usr/bin/cargo"))
        .then(|| look_at(|| Command::new("/usr/bin/rustc")))
        .flatten()
}

fn look_at(rustc: impl Fn() -> Command) -> Option<Compiler> {
    let text = capture(rustc().arg("-vV")).ok()?;
    let sysroot = capture(rustc().args(["--print", "sysroot"])).ok()?;
    let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/Cargo.toml");
    Some(Compiler {
        version: text.lines().next()?.to_owned(),
        llvm: llvm_of(&text)?,
        has_source: source.exists(),
    })
}

/// LLVM's major version out of `rustc -vV`.
fn llvm_of(text: &str) -> Option<u32> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?;
    line.split('.').next()?.parse().ok()
}

/// The LLVM to link with: as new as the compiler's or newer, known to bpf-linker, and to be had here.
pub(crate) fn llvm_for(compiler: &Compiler, available: impl Fn(u32) -> bool) -> Option<u32> {
    LINKER_LLVMS
        .into_iter()
        .rev()
        .filter(|version| *version >= compiler.llvm)
        .find(|version| available(*version))
}

/// A bpf-linker of the right version, if there is one.
pub(crate) fn linker() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let own = home.map(|home| home.join("bin/bpf-linker"));
    let found = own.into_iter().chain(find("bpf-linker"));
    let wanted = format!("bpf-linker {LINKER_VERSION}");
    found.into_iter().find(|file| {
        // Running it also proves that its LLVM library is there.
        is_executable(file)
            && capture(Command::new(file).arg("--version")).is_ok_and(|text| text.trim() == wanted)
    })
}

/// The folder of the wrappers around the distribution's compiler; it has the shape of a rustup toolchain.
pub(crate) fn wrappers() -> PathBuf {
    state_dir().join("toolchain")
}

/// Writes the wrappers: cargo and rustc of the distribution with unstable flags, and `core` built from source.
pub(crate) fn write_wrappers() -> Result<()> {
    let folder = wrappers();
    fs::create_dir_all(folder.join("bin"))
        .and_then(|()| fs::create_dir_all(folder.join("lib")))
        .with_context(|| format!("cannot make {}", folder.display()))?;
    for name in ["cargo", "rustc", "rustdoc"] {
        let text = format!(
            "#!/bin/sh\nexport RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_BUILD_STD=core RUSTC=/usr/bin/rustc\nexec /usr/bin/{name} \"$@\"\n"
        );
        let file = folder.join("bin").join(name);
        fs::write(&file, text)
            .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Puts the linker beside the wrappers.
pub(crate) fn link_linker(linker: &Path) -> Result<()> {
    let link = wrappers().join("bin/bpf-linker");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(linker, &link)
        .with_context(|| format!("cannot link {} to {}", link.display(), linker.display()))
}

/// What to do where no compiler and LLVM fit together.
pub(crate) fn no_compiler(tried: &[String]) -> Result<Toolchain> {
    bail!(
        "no compiler for the BPF target: {}; install rustup (https://rustup.rs) with a nightly and rust-src, and llvm-NN-dev of one of \
         the versions {LINKER_LLVMS:?} that is at least as new as the compiler's LLVM (apt.llvm.org has them), then run this again",
        tried.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler(llvm: u32) -> Compiler {
        Compiler {
            version: "rustc".into(),
            llvm,
            has_source: true,
        }
    }

    #[test]
    fn the_linkers_llvm_is_the_oldest_that_is_new_enough_and_there() {
        assert_eq!(llvm_for(&compiler(22), |_| true), Some(22));
        assert_eq!(llvm_for(&compiler(21), |version| version >= 22), Some(22));
        assert_eq!(llvm_for(&compiler(23), |version| version < 23), None);
        assert_eq!(llvm_for(&compiler(24), |_| true), None);
    }

    #[test]
    fn llvm_is_read_from_the_compilers_own_words() {
        assert_eq!(llvm_of("rustc 1.96.0\nLLVM version: 22.1.8\n"), Some(22));
        assert_eq!(llvm_of("rustc 1.96.0\n"), None);
    }
}
