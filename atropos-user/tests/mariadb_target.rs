//! A live `mariadbd`, looked at from outside: its sockets, its symbols, and its list of sessions read out of its memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use atropos::elf::Image;
use atropos::memory::Memory as _;
use atropos::target::{Process, ProcessMemory};

use common::mariadb::MariaDb;
use common::orders::id_of;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_server_tells_its_sockets_and_its_sessions() {
    let Some(server) = MariaDb::start_listening(&[]) else {
        return;
    };
    let mut client = server.connect().await;
    let connection = id_of(&mut client).await;

    let process = Process::open(server.pid).unwrap();
    let (listening, ports) = (process.listening().unwrap(), server.ports.unwrap());
    assert!(
        listening
            .unix
            .iter()
            .any(|found| found.path_for_us == server.socket),
        "{listening:?}"
    );
    assert!(
        listening.tcp.iter().any(|found| found.port() == ports.port),
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
