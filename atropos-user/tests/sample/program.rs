//! The program `atropos-sample`, built on demand: it belongs to another package, so cargo does not build it for these tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use usdt_probes::server::Server;

/// Starts the server.
pub(crate) fn start() -> Server {
    Server::start(program(), &[]).unwrap()
}

/// Where it is.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(build)
}

fn build() -> PathBuf {
    // Beside the binary under test, so with the same profile.
    let folder = Path::new(env!("CARGO_BIN_EXE_atropos")).parent().unwrap();
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        profile => profile,
    };
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "usdt-probes",
            "--bin",
            "atropos-sample",
            "--profile",
            profile,
        ])
        .arg("--target-dir")
        .arg(folder.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(status.success(), "the sample server cannot be built");
    folder.join("atropos-sample")
}
