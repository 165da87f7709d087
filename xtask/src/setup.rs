//! Takes a fresh Debian or Ubuntu that has git, a C compiler and cargo to a machine that builds, tests and shows everything.
//!
//! Idempotent: what is there is left alone. Each command is printed. Packages are installed as root or through sudo, and start no
//! service; everything else belongs to the invoking user.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::apt::Apt;
use crate::doctor;
use crate::process::{as_root, cargo, find, run};
use crate::toolchain::{self, Compiler, LINKED, LINKER_VERSION, Source, Toolchain};

/// What the build of bpf-linker and the tests' fixtures need besides LLVM.
const BUILD_PACKAGES: [&str; 4] = ["g++", "zlib1g-dev", "libzstd-dev", "libxml2-dev"];
/// The server that tests and demo use.
const SERVER_PACKAGES: [&str; 2] = ["mariadb-server", "mariadb-client"];
/// The other server that tests use.
const POSTGRESQL_PACKAGES: [&str; 1] = ["postgresql"];
/// The load of the soak with which the tests end, and of most benches.
const LOAD_PACKAGES: [&str; 1] = ["sysbench"];
/// The distribution's compiler with the source of `core`.
const COMPILER_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// Its clippy and rustfmt.
const LINT_PACKAGES: [&str; 2] = ["rust-web-clippy", "rustfmt-web"];

/// The verb `setup`.
#[derive(clap::Args)]
pub(crate) struct Setup {
    /// Take this compiler for the kernel half, instead of the first that works.
    #[arg(long, value_enum)]
    compiler: Option<Source>,
}

impl Setup {
    /// Sets the machine up.
    pub(crate) fn run(&self) -> Result<()> {
        setup(self.compiler).map(|_| ())
    }
}

/// Sets the machine up, and says which compiler builds the kernel half.
pub(crate) fn setup(wanted: Option<Source>) -> Result<Toolchain> {
    let apt = Apt::new();
    install_servers(&apt);
    without_server(wanted, &apt)
}

/// The same, but for the server.
pub(crate) fn setup_without_server() -> Result<Toolchain> {
    without_server(None, &Apt::new())
}

fn without_server(wanted: Option<Source>, apt: &Apt) -> Result<Toolchain> {
    apt.install(&BUILD_PACKAGES)?;
    mount_tracefs();
    let chosen =
        Toolchain::chosen().filter(|chosen| wanted.is_none_or(|wanted| wanted == chosen.source));
    let chosen = match chosen {
        Some(chosen) => chosen,
        None => choose(wanted, apt)?,
    };
    println!(
        "setup: kernel half by {} ({:?}), linked by {} (LLVM {})",
        chosen.rustc,
        chosen.source,
        chosen.linker.display(),
        chosen.llvm
    );
    Ok(chosen)
}

/// A missing server stops nothing here: building needs none, and whoever needs one says so.
fn install_servers(apt: &Apt) {
    if !server_is_there()
        && let Err(error) = apt.install(&SERVER_PACKAGES)
    {
        eprintln!(
            "setup: MariaDB cannot be had: {error:#}; its tests will not run, and the demo takes the sample server"
        );
    }
    if find("sysbench").is_none()
        && let Err(error) = apt.install(&LOAD_PACKAGES)
    {
        eprintln!("setup: sysbench cannot be had: {error:#}; the soak will not run");
    }
    if !postgresql_is_there()
        && let Err(error) = apt.install(&POSTGRESQL_PACKAGES)
    {
        eprintln!("setup: PostgreSQL cannot be had: {error:#}; its tests will not run");
    }
}

/// Folder with the programs of the newest `PostgreSQL` that is there. The distribution keeps them out of PATH.
pub(crate) fn postgresql_programs() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, bin)| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    versions.sort();
    versions.pop().map(|(_, bin)| bin)
}

/// Whether a version of `PostgreSQL` is there.
pub(crate) fn postgresql_is_there() -> bool {
    postgresql_programs().is_some()
}

/// Whether a server and the script that makes its data directory are there.
pub(crate) fn server_is_there() -> bool {
    find("mariadbd").is_some() && find("mariadb-install-db").is_some()
}

/// Tracepoint ids are read from tracefs, which a bare machine or container may not have mounted.
fn mount_tracefs() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if doctor::tracefs(&mounts).is_some() {
        return;
    }
    let mounted = as_root("mount")
        .and_then(|mut mount| run(mount.args(["-t", "tracefs", "tracefs", "/sys/kernel/tracing"])));
    if let Err(error) = mounted {
        eprintln!("setup: tracefs is not mounted: {error:#}; tracepoints cannot be attached");
    }
}

/// Finds or installs a compiler, an LLVM and a linker that fit together, and writes the choice down.
fn choose(wanted: Option<Source>, apt: &Apt) -> Result<Toolchain> {
    let mut tried = Vec::new();
    for source in wanted.map_or_else(candidates, |source| vec![source]) {
        match prepare(source, apt) {
            Ok(chosen) => {
                chosen.save()?;
                return Ok(chosen);
            }
            Err(error) => {
                println!("setup: {source:?}: {error:#}");
                tried.push(format!("{source:?}: {error:#}"));
            }
        }
    }
    toolchain::no_compiler(&tried)
}

fn candidates() -> Vec<Source> {
    if find("rustup").is_some() {
        vec![Source::Nightly, Source::Linked]
    } else {
        vec![Source::System]
    }
}

fn prepare(source: Source, apt: &Apt) -> Result<Toolchain> {
    let compiler = match source {
        Source::Nightly => nightly(apt)?,
        Source::Linked => {
            let compiler = distribution(apt)?;
            link()?;
            compiler
        }
        Source::System => {
            let compiler = distribution(apt)?;
            // rustup would bring these; here they are packages, and only `lint` needs them.
            if let Err(error) = apt.install(&LINT_PACKAGES) {
                println!("setup: without clippy or rustfmt: {error:#}");
            }
            toolchain::write_wrappers()?;
            compiler
        }
    };
    let llvm = llvm_for(&compiler, apt)?;
    let linker = linker(llvm, apt)?;
    if source == Source::System {
        toolchain::link_linker(&linker)?;
    }
    Ok(Toolchain {
        source,
        llvm,
        linker,
        rustc: compiler.version,
    })
}

/// rustup's nightly, with rust-src; asks rustup to download what is missing.
fn nightly(apt: &Apt) -> Result<Compiler> {
    let found = toolchain::compiler_of("nightly");
    if let Some(compiler) = &found {
        // Before anything is downloaded for it: no LLVM for this compiler, no use.
        llvm_for(compiler, apt)?;
    }
    if let Some(compiler) = found.clone().filter(|compiler| compiler.has_source) {
        return Ok(compiler);
    }
    let mut rustup = Command::new("rustup");
    match found {
        Some(_) => rustup.args(["component", "add", "rust-src", "--toolchain", "nightly"]),
        None => rustup.args([
            "toolchain",
            "install",
            "nightly",
            "--profile",
            "minimal",
            "--component",
            "rust-src",
        ]),
    };
    run(&mut rustup)?;
    toolchain::compiler_of("nightly")
        .filter(|compiler| compiler.has_source)
        .context("rustup's nightly has no rust-src")
}

/// The distribution's compiler with its source.
fn distribution(apt: &Apt) -> Result<Compiler> {
    let there = || toolchain::system_compiler().filter(|compiler| compiler.has_source);
    if let Some(compiler) = there() {
        return Ok(compiler);
    }
    apt.install(&COMPILER_PACKAGES)?;
    there().context("the distribution's packages brought no rustc with the source of `core`")
}

/// Makes the distribution's compiler known to rustup.
fn link() -> Result<()> {
    toolchain::write_wrappers()?;
    let folder = toolchain::wrappers();
    run(Command::new("rustup")
        .args(["toolchain", "link", LINKED])
        .arg(folder))
}

fn llvm_for(compiler: &Compiler, apt: &Apt) -> Result<u32> {
    toolchain::llvm_for(compiler, |version| {
        llvm_prefix(version).join("bin/llvm-config").exists() || apt.has(&format!("llvm-{version}-dev"))
    })
    .with_context(|| {
        format!(
            "{} needs LLVM {} or newer, and no llvm-NN-dev for it is to be had that bpf-linker {LINKER_VERSION} knows",
            compiler.version, compiler.llvm
        )
    })
}

fn llvm_prefix(version: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{version}"))
}

/// Finds bpf-linker, or builds it against the given LLVM.
fn linker(llvm: u32, apt: &Apt) -> Result<PathBuf> {
    if let Some(linker) = toolchain::linker() {
        return Ok(linker);
    }
    apt.install(&[&format!("llvm-{llvm}-dev")])?;
    let mut install = cargo();
    install
        .env("LLVM_PREFIX", llvm_prefix(llvm))
        .args([
            "install",
            "bpf-linker",
            "--version",
            LINKER_VERSION,
            "--locked",
        ])
        .args([
            "--no-default-features",
            "--features",
            &format!("llvm-{llvm}"),
        ]);
    run(&mut install)?;
    toolchain::linker()
        .context("bpf-linker was installed, and is neither in cargo's bin folder nor on PATH")
}

/// An error if there is no server to test with.
pub(crate) fn require_server() -> Result<()> {
    if server_is_there() {
        return Ok(());
    }
    bail!(
        "there is no MariaDB server here and it could not be installed; install mariadb-server 10.11 and try again"
    )
}

/// Folder with the programs of `PostgreSQL`; an error if there is none to test with.
pub(crate) fn require_postgresql() -> Result<PathBuf> {
    postgresql_programs().context(
        "there is no PostgreSQL server here and it could not be installed; install postgresql (Debian, Ubuntu: apt-get install postgresql) and try again",
    )
}
