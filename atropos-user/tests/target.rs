//! Processes of fixtures that a real compiler made: identity, mapped files, addresses, memory, threads, locks, sockets.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use atropos::elf::{Image, SymbolPattern};
use atropos::memory::Memory as _;
use atropos::target::glibc::LockOwner;
use atropos::target::{
    MappedFile, Process, ProcessMemory, TargetError, find_by_exe, find_by_service,
};

use common::{Started, compile, skip, wait_for};

/// Prints where its function and its variable are, then sleeps until its input ends.
const PLAIN: &str = r#"
#include <stdio.h>
#include <unistd.h>
long marker = 0x123456789abcdef0;
char text[] = "hello from the target";
__attribute__((noinline)) void landmark(void) { __asm__ volatile("" ::: "memory"); }
int main(void) {
    char byte;
    landmark();
    printf("%p %p %p\n", (void *)landmark, (void *)&marker, (void *)text);
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
"#;

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
    fs::copy(from, to).unwrap();
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
        let bytes = process.file_bytes(&file).unwrap();
        let image = Image::parse(&bytes).unwrap();
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
    assert_eq!(process.cmdline()[1..], ["--socket", "with space"]);
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
    let tid = waiter(&started.line()).0;
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
        let bytes = process.file_bytes(file).unwrap();
        let answer = Image::parse(&bytes).unwrap().data_symbol("answer").unwrap();
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
    let bytes = process.file_bytes(&file).unwrap();
    let landmark = Image::parse(&bytes)
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
    let program = compile(PLAIN, &folder.path().join("lonely-fixture"), &["-O1"]);
    let mut first = Started::new(&mut Command::new(&program));
    first.line();
    assert_eq!(find_by_exe(&program).unwrap().pid(), first.pid());
    assert_eq!(
        find_by_exe(Path::new("lonely-fixture")).unwrap().pid(),
        first.pid()
    );
    let error = find_by_exe(Path::new("lonely-fixtures"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("closest running: lonely-fixture ("),
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
    let test = std::env::current_exe().unwrap();
    let started = Command::new("sleep").arg("100").spawn().unwrap();
    let started = Started(started);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = copy_program(test.to_str().unwrap(), &folder.path().join("test"));
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

/// One thread takes a lock of the kind that the argument names, another waits for it. Prints the waiter's thread id, the
/// holder's, and the lock's address.
const LOCKS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>

static struct { pthread_cond_t cond; pthread_mutex_t after; } waits = {PTHREAD_COND_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t mutex;
static pthread_rwlock_t rwlock;
static sem_t sem;
static unsigned words[32] __attribute__((aligned(8)));
static pthread_t main_thread;
static volatile int waiter_tid;
static const char *what;

static struct timespec later(void) {
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    when.tv_sec += 1000;
    return when;
}

static void *waiter(void *unused) {
    struct timespec when = later();
    waiter_tid = gettid();
    if (!strcmp(what, "mutex-timed")) pthread_mutex_timedlock(&mutex, &when);
    else if (!strncmp(what, "mutex", 5)) pthread_mutex_lock(&mutex);
    else if (!strcmp(what, "rwlock-writer-timed")) pthread_rwlock_timedwrlock(&rwlock, &when);
    else if (!strcmp(what, "rwlock-writer-reader")) pthread_rwlock_rdlock(&rwlock);
    else if (!strncmp(what, "rwlock", 6)) pthread_rwlock_wrlock(&rwlock);
    else if (!strcmp(what, "cond")) { pthread_mutex_lock(&waits.after); pthread_cond_wait(&waits.cond, &waits.after); }
    else if (!strcmp(what, "cond-timed")) { pthread_mutex_lock(&waits.after); pthread_cond_timedwait(&waits.cond, &waits.after, &when); }
    else if (!strcmp(what, "sem")) sem_wait(&sem);
    else if (!strcmp(what, "join")) pthread_join(main_thread, NULL);
    else syscall(SYS_futex, words, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    return unused;
}

int main(int argc, char **argv) {
    pthread_mutexattr_t kind;
    pthread_rwlockattr_t preference;
    pthread_t thread;
    void *lock = NULL;
    char byte;
    what = argc > 1 ? argv[1] : "";
    main_thread = pthread_self();
    pthread_mutexattr_init(&kind);
    if (!strcmp(what, "mutex-recursive")) pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    if (!strcmp(what, "mutex-errorcheck")) pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    if (!strcmp(what, "mutex-adaptive")) pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
    if (!strcmp(what, "mutex-robust")) pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    if (!strcmp(what, "mutex-inherit")) pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    if (!strcmp(what, "mutex-shared")) pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&mutex, &kind);
    pthread_rwlockattr_init(&preference);
    pthread_rwlock_init(&rwlock, &preference);
    sem_init(&sem, 0, 0);
    if (!strncmp(what, "mutex", 5)) pthread_mutex_lock(lock = &mutex);
    if (!strncmp(what, "rwlock-writer", 13)) pthread_rwlock_wrlock(lock = &rwlock);
    if (!strncmp(what, "rwlock-readers", 14)) { pthread_rwlock_rdlock(lock = &rwlock); pthread_rwlock_rdlock(&rwlock); }
    words[0] = 2;
    if (!strcmp(what, "futex-like-mutex")) { words[2] = gettid(); words[3] = 1; words[4] = 0x1000; }
    pthread_create(&thread, NULL, waiter, NULL);
    while (!waiter_tid) usleep(100);
    if (!strncmp(what, "cond", 4)) { usleep(50000); pthread_mutex_lock(&waits.after); }
    printf("%d %d %p\n", waiter_tid, (int)gettid(), lock);
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    _exit(0);
}
"#;

/// Waiter, holder and lock out of the fixture's line.
fn waiter(line: &str) -> (u32, u32, u64) {
    let mut words = line.split(' ');
    let waiter = words.next().unwrap().parse().unwrap();
    let holder = words.next().unwrap().parse().unwrap();
    let lock = words.next().unwrap();
    (
        waiter,
        holder,
        if lock == "(nil)" {
            0
        } else {
            u64::from_str_radix(&lock[2..], 16).unwrap()
        },
    )
}

#[test]
fn glibc_locks_name_their_owner_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(LOCKS, &folder.path().join("locks"), &["-O1", "-pthread"]);
    let mutex = |address, tid| Some(LockOwner::Mutex { address, tid });
    let writer = |address, tid| Some(LockOwner::RwLockWriter { address, tid });
    let readers = |address, _| {
        Some(LockOwner::RwLockReaders {
            address,
            reader_count: 2,
        })
    };
    let nobody = |_, _| None;
    let cases: [(&str, &dyn Fn(u64, u32) -> Option<LockOwner>); 17] = [
        ("mutex", &mutex),
        ("mutex-recursive", &mutex),
        ("mutex-errorcheck", &mutex),
        ("mutex-adaptive", &mutex),
        ("mutex-robust", &mutex),
        ("mutex-inherit", &mutex),
        ("mutex-timed", &mutex),
        ("mutex-shared", &nobody),
        ("rwlock-writer", &writer),
        ("rwlock-writer-reader", &writer),
        ("rwlock-writer-timed", &writer),
        ("rwlock-readers", &readers),
        ("cond", &nobody),
        ("cond-timed", &nobody),
        ("sem", &nobody),
        ("join", &nobody),
        ("futex-like-mutex", &nobody),
    ];
    for (case, expected) in cases {
        let mut started = Started::new(Command::new(&program).arg(case));
        let (tid, holder, lock) = waiter(&started.line());
        let process = Process::open(started.pid()).unwrap();
        let memory = ProcessMemory::open(&process).unwrap();
        wait_for(&format!("{case}: the waiter to block"), || {
            process.blocked_on(tid).unwrap()
        });
        let found = process.lock_that_blocks(tid, &memory).unwrap();
        assert_eq!(
            found.map(|found| found.lock),
            expected(lock, holder),
            "{case}"
        );
        assert_eq!(
            found.and_then(|found| found.owner_tid),
            expected(lock, holder).and_then(|lock| lock.owner_tid())
        );
        assert_eq!(
            process.lock_that_blocks(holder, &memory).unwrap(),
            None,
            "{case}: the holder waits for no lock"
        );
        let threads = process.threads().unwrap();
        assert_eq!(threads.len(), 2);
        assert!(
            threads
                .iter()
                .any(|thread| (thread.tid, thread.tid_in_target, &*thread.name)
                    == (tid, tid, "locks"))
        );
    }
}
