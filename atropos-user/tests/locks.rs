//! Owners of real glibc locks, told from outside; and the things that only look like locks.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::process::Command;

use atropos::target::glibc::LockOwner;
use atropos::target::{Process, ProcessMemory};
use object::ReadRef as _;

use common::{Started, compile, skip, wait_for};

const LOCKS: &str = include_str!("fixtures/locks.c");

/// The owner that must be told, from the lock's address and its holder.
type Expected<'a> = &'a dyn Fn(u64, u32) -> Option<LockOwner>;

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
    let cases: [(&str, Expected<'_>); 17] = [
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
        assert_owner(&program, case, expected);
    }
}

fn assert_owner(program: &Path, case: &str, expected: Expected<'_>) {
    let mut started = Started::new(Command::new(program).arg(case));
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
    let owner = expected(lock, holder).and_then(|lock| lock.owner_tid());
    assert_eq!(found.and_then(|found| found.owner_tid), owner);
    let of_holder = process.lock_that_blocks(holder, &memory).unwrap();
    assert_eq!(of_holder, None, "{case}: the holder waits for no lock");
    let threads = process.threads().unwrap();
    assert_eq!(threads.len(), 2);
    let thread = threads.iter().find(|thread| thread.tid == tid).unwrap();
    assert_eq!((thread.tid_in_target, &*thread.name), (tid, "locks"));
}

#[test]
fn a_target_in_other_namespaces_is_read_by_its_own_paths_and_thread_ids() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(LOCKS, &folder.path().join("locks"), &["-O1", "-pthread"]);
    let hidden = folder.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    // The program lies on a mount that only the target sees, and is process 1 to itself.
    let script = r#"mount -t tmpfs none "$1" && cp "$2" "$1/inner" && exec "$1/inner" mutex"#;
    let unshare = ["--mount", "--pid", "--fork", "--kill-child"];
    if !Command::new("unshare")
        .args(unshare)
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("not allowed to make namespaces with `unshare`");
    }
    let mut command = Command::new("unshare");
    command
        .args(unshare)
        .args(["sh", "-c", script, "sh"])
        .arg(&hidden)
        .arg(&program);
    let mut started = Started::new(&mut command);
    let (waiter_in_target, holder_in_target, lock) = waiter(&started.line());
    assert_eq!(holder_in_target, 1);

    let inside = Process::open(started.pid()).unwrap().descendants();
    let process = Process::open(inside[0]).unwrap();
    assert!(process.in_other_mount_namespace() && process.in_other_pid_namespace());
    // A test that itself runs in a changed root is told a longer path.
    let shown = hidden.join("inner");
    let tail = shown.strip_prefix("/").unwrap();
    assert!(process.exe().ends_with(tail), "{:?}", process.exe());
    assert!(
        !hidden.join("inner").exists(),
        "the path means nothing to us"
    );
    let files = process.mapped_files().unwrap();
    assert!(files[0].is_exe && !files[0].deleted && !files[0].replaced);
    let parts = process.file_parts(&files[0]).unwrap();
    let bytes = std::fs::read(&program).unwrap();
    assert_eq!(
        parts.read_bytes_at(0, bytes.len() as u64).unwrap(),
        bytes,
        "the file that runs"
    );

    let threads = process.threads().unwrap();
    let blocked = threads
        .iter()
        .find(|thread| thread.tid_in_target == waiter_in_target)
        .unwrap()
        .tid;
    let memory = ProcessMemory::open(&process).unwrap();
    wait_for("the waiter to block", || {
        process.blocked_on(blocked).unwrap()
    });
    let found = process.lock_that_blocks(blocked, &memory).unwrap().unwrap();
    assert_eq!(
        found.lock,
        LockOwner::Mutex {
            address: lock,
            tid: 1
        }
    );
    assert_eq!(
        found.owner_tid,
        Some(process.pid()),
        "the owner under the id that we know it by"
    );
}
