//! Processes of fixtures that a real compiler made: identity, mapped files, addresses, memory, threads, locks, sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use atropos::elf::{Image, SymbolPattern};
use atropos::memory::Memory as _;
use atropos::target::{
    MappedFile, Process, ProcessMemory, TargetError, find_by_exe, find_by_service,
};

use common::{Started, compile, skip, wait_for};

const PLAIN: &str = include_str!("fixtures/plain.c");
const LOCKS: &str = include_str!("fixtures/locks.c");

fn addresses(started: &mut Started) -> Vec<u64> {
    let line = started.line();
    line.split(' ')
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap())
        .collect()
}

fn exe_of(process: &Process) -> MappedFile {
    process
        .mapped_files()
        .unwrap()
        .into_iter()
        .find(|file| file.is_exe)
        .expect("the program is mapped")
}

fn copy_program(from: &str, to: &Path) -> PathBuf {
    common::copy_program(Path::new(from), to);
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
    to.to_owned()
}

#[test]
fn addresses_of_symbols_are_those_that_the_program_itself_prints() {
    for flags in [
        &["-O1", "-pie"][..],
        &["-O1", "-no-pie"],
        &["-O1", "-pie", "-s", "-rdynamic"],
        &["-O1", "-static-pie"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut started = Started::new(&mut Command::new(compile(
            PLAIN,
            &folder.path().join("plain"),
            flags,
        )));
        let printed = addresses(&mut started);
        let process = Process::open(started.pid()).unwrap();
        let file = exe_of(&process);
        assert_eq!((file.deleted, file.replaced), (false, false), "{flags:?}");
        let parts = process.file_parts(&file).unwrap();
        let image = Image::parse(&parts).unwrap();
        assert_eq!(image.layout().position_independent, flags[1] != "-no-pie");
        assert_eq!(file.build_id.as_ref(), image.build_id());
        let landmark = image.find(&SymbolPattern::new("landmark")).unwrap();
        assert_eq!(file.symbol_address(&landmark), printed[0], "{flags:?}");
        assert_eq!(file.vaddr_of(printed[0]), Some(landmark.vaddr));
        assert_eq!(
            file.symbol_address(&image.data_symbol("marker").unwrap()),
            printed[1],
            "{flags:?}"
        );
    }
}

#[test]
fn memory_is_read_one_by_one_in_many_and_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let mut started = Started::new(&mut Command::new(compile(
        PLAIN,
        &folder.path().join("plain"),
        &["-O1"],
    )));
    let printed = addresses(&mut started);
    let process = Process::open(started.pid()).unwrap();
    let memory = ProcessMemory::open(&process).unwrap();
    assert_eq!(memory.read_u64(printed[1]), Ok(0x1234_5678_9abc_def0));
    assert_eq!(
        memory.read_c_string(printed[2], 100).unwrap(),
        b"hello from the target"
    );
    assert_eq!(memory.read_c_string(printed[2], 5).unwrap(), b"hello");
    assert!(memory.read_u64(8).is_err());
    assert!(memory.read_u64(u64::MAX).is_err());

    let (mut first, mut bad, mut last) = ([0; 8], [0; 8], [0; 5]);
    let mut reads: Vec<(u64, &mut [u8])> = vec![
        (printed[1], &mut first),
        (8, &mut bad),
        (printed[2], &mut last),
    ];
    let outcomes = memory.read_many(&mut reads);
    assert_eq!(
        outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false, true]
    );
    assert_eq!(
        (u64::from_le_bytes(first), &last),
        (0x1234_5678_9abc_def0, b"hello")
    );

    let mut buffers = vec![[0_u8; 8]; 3000];
    let mut reads: Vec<(u64, &mut [u8])> = buffers
        .iter_mut()
        .map(|buffer| (printed[1], &mut buffer[..]))
        .collect();
    assert!(
        memory.read_many(&mut reads).iter().all(Result::is_ok),
        "more places than one call takes"
    );
    assert!(
        buffers
            .iter()
            .all(|buffer| u64::from_le_bytes(*buffer) == 0x1234_5678_9abc_def0)
    );
}

#[test]
fn identity_tells_who_a_process_is_and_when_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(PLAIN, &folder.path().join("a plain one"), &["-O1"]);
    let mut started = Started::new(Command::new(&program).args(["--socket", "with space"]));
    started.line();
    let pid = started.pid();
    let process = Process::open(pid).unwrap();
    assert_eq!(
        (process.pid(), process.comm(), process.exe()),
        (pid, "a plain one", program.as_path())
    );
    assert!(!process.in_other_mount_namespace() && !process.in_other_pid_namespace());
    assert!(process.rss_bytes().unwrap() > 100_000);
    process.cpu_time_ns().unwrap();
    assert!(process.still_same());
    assert!(
        Process::open(std::process::id())
            .unwrap()
            .descendants()
            .contains(&pid)
    );

    drop(started.0.stdin.take());
    wait_for("the fixture to become a zombie", || {
        (!process.still_same()).then_some(())
    });
    assert!(
        matches!(Process::open(pid), Err(TargetError::Exited { .. })),
        "a zombie has ended"
    );
    started.0.wait().unwrap();
    assert!(matches!(
        process.mapped_files(),
        Err(TargetError::Exited { .. })
    ));
    assert!(matches!(
        process.rss_bytes(),
        Err(TargetError::Exited { .. })
    ));
    assert!(matches!(
        process.thread_ids(),
        Err(TargetError::Exited { .. })
    ));
    assert!(matches!(
        process.listening(),
        Err(TargetError::Exited { .. })
    ));
    assert!(matches!(
        Process::open(pid),
        Err(TargetError::NoSuchProcess { .. })
    ));
}

#[test]
fn ids_that_are_no_process_are_explained() {
    let error = Process::open(u32::MAX).unwrap_err().to_string();
    assert!(error.starts_with("no process 4294967295"), "{error}");
    assert!(Process::open(0).is_err());
    let folder = tempfile::tempdir().unwrap();
    let program = compile(LOCKS, &folder.path().join("locks"), &["-O1", "-pthread"]);
    let mut started = Started::new(Command::new(program).arg("cond"));
    let tid = started.line().split(' ').next().unwrap().parse().unwrap();
    let error = Process::open(tid).unwrap_err().to_string();
    assert!(
        error.contains(&format!("is a thread of process {}", started.pid())),
        "{error}"
    );
    if let Ok(thread) = fs::read_to_string("/proc/2/comm")
        && thread.trim() == "kthreadd"
    {
        assert!(matches!(
            Process::open(2),
            Err(TargetError::KernelThread { .. })
        ));
    }
}

#[test]
fn a_library_on_the_library_path_and_a_program_under_the_loader_are_found_by_their_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libanswer.so");
    compile(
        "long answer = 42; long *the_answer(void) { return &answer; }",
        &library,
        &["-shared", "-fPIC", "-O1"],
    );
    let source = r#"
        #include <stdio.h>
        #include <unistd.h>
        long *the_answer(void);
        void in_the_program(void) {}
        int main(void) { char byte; printf("%p\n", (void *)the_answer()); fflush(stdout); while (read(0, &byte, 1) > 0) {} }
    "#;
    let search = format!("-L{}", folder.path().display());
    let program = compile(
        source,
        &folder.path().join("asks"),
        &["-rdynamic", "-O1", &search, "-lanswer"],
    );
    let loader = "/lib64/ld-linux-x86-64.so.2";
    for mut command in [Command::new(&program), Command::new(loader)] {
        if command.get_program() == loader {
            if !Path::new(loader).exists() {
                skip("no glibc loader at /lib64/ld-linux-x86-64.so.2");
                continue;
            }
            command.arg(&program);
        }
        let mut started = Started::new(command.env("LD_LIBRARY_PATH", folder.path()));
        let printed = addresses(&mut started);
        let process = Process::open(started.pid()).unwrap();
        let files = process.mapped_files().unwrap();
        let file = process
            .file_defining(&files, &["answer", "the_answer"])
            .unwrap()
            .expect("the library");
        assert_eq!(file.path_in_target, library);
        let parts = process.file_parts(file).unwrap();
        let answer = Image::parse(&parts).unwrap().data_symbol("answer").unwrap();
        assert_eq!(file.symbol_address(&answer), printed[0]);
        assert_eq!(
            ProcessMemory::open(&process).unwrap().read_u64(printed[0]),
            Ok(42)
        );
        let file = process
            .file_defining(&files, &["in_the_program", "main"])
            .unwrap()
            .expect("the program");
        assert_eq!(file.path_in_target, program);
        assert!(
            process
                .file_defining(&files, &["answer", "in_the_program"])
                .unwrap()
                .is_none()
        );
    }
}

#[test]
fn a_program_deleted_or_replaced_on_disk_is_read_from_the_mapping() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(PLAIN, &folder.path().join("plain"), &["-O1"]);
    let other = compile(
        PLAIN,
        &folder.path().join("other"),
        &["-O2", "-DOTHER", "-Wl,--build-id=0xabcdef"],
    );
    let mut started = Started::new(&mut Command::new(&program));
    let printed = addresses(&mut started);
    let process = Process::open(started.pid()).unwrap();
    let build_id = exe_of(&process).build_id.unwrap();

    fs::remove_file(&program).unwrap();
    let file = exe_of(&process);
    assert_eq!((file.deleted, file.replaced), (true, false));
    assert_eq!(
        (file.path_in_target.as_path(), file.build_id.as_ref()),
        (program.as_path(), Some(&build_id))
    );

    fs::rename(&other, &program).unwrap();
    let file = exe_of(&process);
    assert_eq!((file.deleted, file.replaced), (true, true));
    assert_eq!(
        file.build_id.as_ref(),
        Some(&build_id),
        "of the file that runs, not of the one that has its name"
    );
    let parts = process.file_parts(&file).unwrap();
    let landmark = Image::parse(&parts)
        .unwrap()
        .find(&SymbolPattern::new("landmark"))
        .unwrap();
    assert_eq!(file.symbol_address(&landmark), printed[0]);
    assert_eq!(
        Process::open(started.pid()).unwrap().exe(),
        program,
        "without the kernel's mark"
    );
}

#[test]
fn a_process_is_found_by_its_executable() {
    let folder = tempfile::tempdir().unwrap();
    // A name of this test's own: what other programs are called is not known.
    let name = format!("lonely-{}", std::process::id());
    let program = compile(PLAIN, &folder.path().join(&name), &["-O1"]);
    let mut first = Started::new(&mut Command::new(&program));
    first.line();
    assert_eq!(find_by_exe(&program).unwrap().pid(), first.pid());
    assert_eq!(find_by_exe(Path::new(&name)).unwrap().pid(), first.pid());
    let error = find_by_exe(Path::new(&format!("{name}s"))).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains(&format!("closest running: {name} (")),
        "{error}"
    );
    let mut second = Started::new(&mut Command::new(&program));
    second.line();
    let error = find_by_exe(&program).unwrap_err().to_string();
    assert!(
        error.contains("2 processes") && error.contains(&first.pid().to_string()),
        "{error}"
    );
    let error = find_by_service("no-such-service-here")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the service `no-such-service-here.service`"),
        "{error}"
    );
    assert!(find_by_service("../../etc").is_err());
}

#[test]
fn without_rights_the_missing_capability_is_named() {
    const NOBODY: u32 = 65534;
    let denied = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", "true"])
        .status();
    if !denied.is_ok_and(|status| status.success()) {
        return skip("not root, or no `setpriv`: cannot look at a process without rights");
    }
    let started = Command::new("sleep").arg("100").spawn().unwrap();
    let started = Started(started);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = copy_program(
        std::env::current_exe().unwrap().to_str().unwrap(),
        &folder.path().join("test"),
    );
    let out = Command::new("setpriv")
        .args(["--reuid", &NOBODY.to_string(), "--clear-groups"])
        .arg(copy)
        .args([
            "--exact",
            "opened_without_rights",
            "--ignored",
            "--nocapture",
        ])
        .env("ATROPOS_TEST_PID", started.pid().to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        text.contains("not allowed to read") && text.contains("CAP_SYS_PTRACE"),
        "{text}"
    );
}

#[test]
#[ignore = "run by `without_rights_the_missing_capability_is_named` as another user"]
#[allow(
    clippy::print_stdout,
    reason = "its output is what the other test reads"
)]
fn opened_without_rights() {
    let pid = std::env::var("ATROPOS_TEST_PID").unwrap().parse().unwrap();
    println!("{}", Process::open(pid).unwrap_err());
}

#[test]
fn listening_sockets_are_found() {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("with space.sock");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let listening = Process::open(std::process::id())
        .unwrap()
        .listening()
        .unwrap();
    assert!(
        listening.tcp.contains(&tcp.local_addr().unwrap()),
        "{listening:?}"
    );
    let found = listening
        .unix
        .iter()
        .find(|found| found.path_in_target == path)
        .expect("the Unix socket");
    assert_eq!(found.path_for_us, path);
    assert!(!listening.other_network_namespace);
    drop((tcp, unix));
    let listening = Process::open(std::process::id())
        .unwrap()
        .listening()
        .unwrap();
    assert!(
        !listening
            .unix
            .iter()
            .any(|found| found.path_in_target == path)
    );
}
