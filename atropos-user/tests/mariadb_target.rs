//! A live `mariadbd`, looked at from outside: its sockets, its symbols, and its list of sessions read out of its memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use atropos::elf::Image;
use atropos::memory::Memory as _;
use atropos::target::{Process, ProcessMemory};

use common::{Started, skip, wait_for};

/// A private server in an empty data directory: no accounts, loopback only, a port that the kernel chose.
fn server(folder: &Path) -> (Started, u16) {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut command = Command::new("/usr/sbin/mariadbd");
    command
        .args([
            "--no-defaults",
            "--user=root",
            "--skip-grant-tables",
            "--bind-address=127.0.0.1",
        ])
        .args(["--innodb-buffer-pool-size=8M", "--innodb-log-file-size=4M"])
        .arg(format!("--datadir={}", folder.display()))
        .arg(format!("--socket={}", folder.join("server.sock").display()))
        .arg(format!("--port={port}"))
        .stderr(Stdio::from(log));
    (Started::new(&mut command), port)
}

#[test]
fn a_live_server_tells_its_sockets_and_its_sessions() {
    if !Path::new("/usr/sbin/mariadbd").exists() {
        return skip("no /usr/sbin/mariadbd (Debian package mariadb-server)");
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("server.sock");
    let (server, port) = server(folder.path());
    wait_for("the server to listen", || {
        std::os::unix::net::UnixStream::connect(&socket).ok()
    });

    let mut client = Command::new("mariadb");
    client
        .args([
            "--no-defaults",
            "--unbuffered",
            "--skip-column-names",
            "--socket",
        ])
        .arg(&socket);
    let mut client = Started::new(&mut client);
    client
        .0
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"SELECT CONNECTION_ID();\n")
        .unwrap();
    let connection: u64 = client.line().parse().unwrap();

    let process = Process::open(server.pid()).unwrap();
    let listening = process.listening().unwrap();
    assert!(
        listening
            .unix
            .iter()
            .any(|found| found.path_for_us == socket),
        "{listening:?}"
    );
    assert!(
        listening.tcp.iter().any(|found| found.port() == port),
        "{listening:?}"
    );

    let files = process.mapped_files().unwrap();
    let file = process
        .file_defining(&files, &["server_threads", "thd_get_thread_id"])
        .unwrap()
        .unwrap();
    assert!(file.is_exe && !file.replaced);
    let parts = process.file_parts(file).unwrap();
    let image = Image::parse(&parts).unwrap();
    let memory = ProcessMemory::open(&process).unwrap();
    let sessions = file.symbol_address(&image.data_symbol("server_threads").unwrap());
    let id_at = image.accessor("thd_get_thread_id", 0).unwrap();
    let mut ids = Vec::new();
    let mut thd = memory.read_u64(sessions).unwrap();
    while thd != sessions + 8 && ids.len() < 100 {
        ids.push(memory.read_u64(thd.wrapping_add_signed(id_at)).unwrap());
        thd = memory.read_u64(thd + 0x10).unwrap();
    }
    assert!(
        ids.contains(&connection),
        "session {connection} among {ids:?}"
    );
    assert!(process.threads().unwrap().len() > 3);
    assert!(process.rss_bytes().unwrap() > 10_000_000);
}
