//! Threads of the process and what they block on.

use std::fs;

use procfs::FromRead as _;
use procfs::process::{Stat, StatFlags};

use super::glibc::{self, LockOwner};
use super::{Process, TargetError};
use crate::memory::Memory;

/// Number of the `futex` system call on x86-64.
const SYS_FUTEX: u64 = 202;
/// Operation bits of a futex call that do not change what is waited for: private, clock.
const FUTEX_FLAGS: u64 = 0x80 | 0x100;

/// Characters of a title.
const TITLE_CHARS: usize = 64;

/// What the system calls a thread of whatever process: a process by its title where it has given itself one (`postgres: walwriter`)
/// or else the name of its program, any other thread by its name. Empty if it is gone. Arguments of a program are left out.
pub fn title_of(tid: u32) -> String {
    let read = |file: &str| fs::read(format!("/proc/{tid}/{file}")).unwrap_or_default();
    let status = read("status");
    let is_process = String::from_utf8_lossy(&status)
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
        == Some(tid);
    let title = if is_process {
        read("cmdline")
    } else {
        Vec::new()
    };
    let first = title.split(|byte| *byte == 0).next().unwrap_or_default();
    let title = String::from_utf8_lossy(first).trim().to_owned();
    let title = if title.is_empty() {
        String::from_utf8_lossy(&read("comm")).trim().to_owned()
    } else {
        title
    };
    title.chars().take(TITLE_CHARS).collect()
}

/// A thread of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Thread id in our PID namespace.
    pub tid: u32,
    /// Thread id as the target itself sees it: what its memory holds.
    pub tid_in_target: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
}

/// A thread that waits in the kernel for a word of memory to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexWait {
    /// Address of the word.
    pub address: u64,
    /// Operation without its flags: 0 wait, 6 and 13 lock with priority inheritance, 9 wait with bit set, 11 requeue.
    pub op: u32,
    /// Value that the thread expected there.
    pub expected: u32,
}

/// A lock that a thread waits for, with its owner's thread id in both namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockingLock {
    /// The wait.
    pub wait: FutexWait,
    /// The lock and who has it; ids as the target sees them.
    pub lock: LockOwner,
    /// Owner's thread id in our PID namespace, when one thread owns it.
    pub owner_tid: Option<u32>,
}

impl Process {
    /// Ids of its threads in our PID namespace.
    pub fn thread_ids(&self) -> Result<Vec<u32>, TargetError> {
        let what = format!("/proc/{}/task", self.pid);
        let unreadable = |error| TargetError::reading(self.pid, &what, &error);
        let mut ids = Vec::new();
        for entry in fs::read_dir(&what).map_err(unreadable)? {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Err(unreadable(error)),
            };
            ids.extend(
                entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<u32>().ok()),
            );
        }
        if ids.is_empty() {
            Err(self.exited(&what))
        } else {
            Ok(ids)
        }
    }

    /// Whether its main thread has ended and others go on; those that are about to end do not.
    pub fn is_headless(&self) -> bool {
        let others = self.thread_ids().unwrap_or_default();
        others
            .into_iter()
            .filter(|tid| *tid != self.pid)
            .any(|tid| {
                let stat = Stat::from_file(self.task_file(tid, "stat"));
                stat.is_ok_and(|stat| stat.flags & StatFlags::PF_EXITING.bits() == 0)
            })
    }

    /// Its threads. One that ends in between is left out.
    pub fn threads(&self) -> Result<Vec<Thread>, TargetError> {
        let ids = self.thread_ids()?;
        Ok(ids
            .into_iter()
            .filter_map(|tid| {
                let name = fs::read(self.task_file(tid, "comm")).ok()?;
                let name = String::from_utf8_lossy(&name)
                    .trim_end_matches('\n')
                    .to_owned();
                Some(Thread {
                    tid,
                    tid_in_target: self.theirs(tid)?,
                    name,
                })
            })
            .collect())
    }

    /// The futex that a thread waits on; `None` when it runs, waits otherwise, or is gone.
    pub fn blocked_on(&self, tid: u32) -> Result<Option<FutexWait>, TargetError> {
        let path = self.task_file(tid, "syscall");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(parse_syscall(&text)),
            Err(error) => match TargetError::reading(self.pid, &path, &error) {
                denied @ TargetError::PermissionDenied { .. } => Err(denied),
                _ => Ok(None),
            },
        }
    }

    /// The glibc mutex or rwlock that a thread waits for, and its owner. `None` unless that is certain: the memory has passed
    /// every check, and the thread still waits for the same word afterwards.
    pub fn lock_that_blocks(
        &self,
        tid: u32,
        memory: &impl Memory,
    ) -> Result<Option<BlockingLock>, TargetError> {
        let Some(wait) = self.blocked_on(tid)? else {
            return Ok(None);
        };
        let (Some(waiter), ids) = (self.theirs(tid), self.thread_ids()?) else {
            return Ok(None);
        };
        let ours = |wanted: u32| self.called(&ids, wanted);
        let Some(lock) = glibc::lock_owner(&wait, waiter, memory, &|tid| ours(tid).is_some())
        else {
            return Ok(None);
        };
        if self.blocked_on(tid)? != Some(wait) {
            return Ok(None);
        }
        Ok(Some(BlockingLock {
            wait,
            lock,
            owner_tid: lock.owner_tid().and_then(ours),
        }))
    }

    fn task_file(&self, tid: u32, name: &str) -> String {
        format!("/proc/{}/task/{tid}/{name}", self.pid)
    }
}

/// Reads `/proc/PID/task/TID/syscall`: number and six arguments, `running`, or `-1` outside of a call.
fn parse_syscall(text: &str) -> Option<FutexWait> {
    let mut words = text.split_ascii_whitespace();
    if words.next()?.parse::<u64>().ok()? != SYS_FUTEX {
        return None;
    }
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (address, op, expected) = (argument()?, argument()?, argument()?);
    let op = (op & !FUTEX_FLAGS) as u32;
    let waits = matches!(
        op,
        glibc::FUTEX_WAIT
            | glibc::FUTEX_LOCK_PI
            | glibc::FUTEX_WAIT_BITSET
            | 11
            | glibc::FUTEX_LOCK_PI2
    );
    waits.then_some(FutexWait {
        address,
        op,
        expected: expected as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_on_a_futex_are_taken() {
        let wait = "202 0x7f12 0x189 0x2 0x0 0x0 0xffffffff 0x7ffc 0x7f00\n";
        assert_eq!(
            parse_syscall(wait),
            Some(FutexWait {
                address: 0x7f12,
                op: 9,
                expected: 2
            })
        );
        assert_eq!(
            parse_syscall("202 0x7f12 0x81 0x1 0x0 0x0 0x0 0x7ffc 0x7f00"),
            None,
            "a wake waits for nothing"
        );
        for other in [
            "running\n",
            "-1 0x7ffc 0x7f00\n",
            "0 0x3 0x7f 0x400 0x0 0x0 0x0 0x7f 0x7f\n",
            "",
            "202",
            "202 7 8 9",
        ] {
            assert_eq!(parse_syscall(other), None, "{other}");
        }
    }
}
