//! The memory of a live process, read from outside with `process_vm_readv`; through `/proc/PID/mem` where a seccomp filter
//! refuses that call. Reading does not stop the target, so values may be torn: walks check what they read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, OnceLock};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::{Process, TargetError};
use crate::memory::{Fault, Memory};

/// Vectors that one call takes (the kernel's `UIO_MAXIOV`).
const MAX_VECTORS: usize = 1024;

/// Nothing is mapped below this address: expressions that follow a null pointer end here, many times in each look, and need
/// no system call to fail.
const NULL_BYTES: u64 = 4096;

/// Children whose numbers are remembered.
const REMEMBERED: usize = 1024;

/// A process whose memory can be read.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: Pid,
    /// Opened when the call was refused for the first time. Stays with the process that it was opened for.
    mem: OnceLock<Option<File>>,
    /// The process that was opened, whose children can be read too.
    parent: Option<Parent>,
}

/// A process with children.
#[derive(Debug)]
struct Parent {
    process: Process,
    /// Our numbers of children, by its own, where it counts its own: finding one means looking at all.
    known: Mutex<BTreeMap<u32, u32>>,
}

impl Parent {
    /// Our number of the child that it calls so.
    fn child(&self, in_target: u32) -> Option<u32> {
        if !self.process.in_other_pid_namespace() {
            return Some(in_target);
        }
        let mut known = self.known.lock().ok()?;
        let is_it = |ours: &u32| self.process.theirs(*ours) == Some(in_target);
        let ours = known.get(&in_target).copied().filter(is_it);
        let ours = ours.or_else(|| self.process.ours(in_target))?;
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(in_target, ours);
        Some(ours)
    }
}

impl ProcessMemory {
    /// Prepares for reading, and reads one byte of the program to learn whether that is allowed.
    pub fn open(process: &Process) -> Result<Self, TargetError> {
        let pid = process.pid();
        let what = "its memory";
        let memory = Self {
            pid: Pid::from_raw(pid.cast_signed()),
            mem: OnceLock::new(),
            parent: Some(Parent {
                process: process.clone(),
                known: Mutex::default(),
            }),
        };
        let maps = super::proc_of(pid)?
            .maps()
            .map_err(|error| TargetError::proc(pid, "its memory map", error))?;
        let readable = maps
            .iter()
            .find(|map| map.perms.contains(procfs::process::MMPermissions::READ))
            .map(|map| map.address.0);
        let Some(address) = readable else {
            return Err(process.exited(what));
        };
        if memory.read(address, &mut [0]).is_ok() {
            return Ok(memory);
        }
        match File::open(format!("/proc/{pid}/mem")) {
            Err(error) => Err(TargetError::reading(pid, what, &error)),
            Ok(_) if process.still_same() => Err(TargetError::PermissionDenied {
                pid,
                what: what.to_owned(),
                capability: "CAP_SYS_PTRACE",
            }),
            Ok(_) => Err(process.exited(what)),
        }
    }

    /// How many of the first reads were made in full.
    fn read_batch(&self, batch: &mut [(u64, &mut [u8])]) -> usize {
        let remote: Vec<RemoteIoVec> = batch
            .iter()
            .map(|(address, into)| RemoteIoVec {
                base: *address as usize,
                len: into.len(),
            })
            .collect();
        let mut local: Vec<IoSliceMut<'_>> = batch
            .iter_mut()
            .map(|(_, into)| IoSliceMut::new(into))
            .collect();
        let mut left_bytes = process_vm_readv(self.pid, &mut local, &remote).unwrap_or(0);
        let mut done_count = 0;
        while let Some(rest) = remote
            .get(done_count)
            .and_then(|vector| left_bytes.checked_sub(vector.len))
        {
            left_bytes = rest;
            done_count += 1;
        }
        done_count
    }

    /// Reads through `/proc/PID/mem`.
    fn read_file(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let open = || File::open(format!("/proc/{}/mem", self.pid)).ok();
        let mem = self.mem.get_or_init(open).as_ref();
        let read = mem.and_then(|mem| mem.read_exact_at(into, address).ok());
        read.ok_or(Fault { address })
    }
}

impl Memory for ProcessMemory {
    fn of_child(&self, pid: u32) -> Option<Box<dyn Memory>> {
        let pid = self.parent.as_ref()?.child(pid)?.cast_signed();
        let stat = procfs::process::Process::new(pid).ok()?.stat().ok()?;
        // A number that has been given to somebody else names a process that is none of our business.
        (stat.ppid == self.pid.as_raw()).then(|| -> Box<dyn Memory> {
            Box::new(Self {
                pid: Pid::from_raw(pid),
                mem: OnceLock::new(),
                parent: None,
            })
        })
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), Fault>> {
        let mut outcomes = Vec::with_capacity(reads.len());
        while outcomes.len() < reads.len() {
            let rest = &mut reads[outcomes.len()..];
            let batch_len = rest.len().min(MAX_VECTORS);
            let batch = &mut rest[..batch_len];
            let done_count = self.read_batch(batch);
            outcomes.extend(std::iter::repeat_n(Ok(()), done_count));
            if done_count < batch_len {
                // The call stops at the first place that it cannot read: ask for that one alone, go on behind it.
                let (address, into) = &mut batch[done_count];
                outcomes.push(self.read(*address, into));
            }
        }
        outcomes
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let fault = Fault { address };
        if into.is_empty() {
            return Ok(());
        }
        if address < NULL_BYTES {
            return Err(fault);
        }
        let wanted_bytes = into.len();
        let remote = [RemoteIoVec {
            base: usize::try_from(address).map_err(|_| fault)?,
            len: wanted_bytes,
        }];
        match process_vm_readv(self.pid, &mut [IoSliceMut::new(into)], &remote) {
            Ok(read_bytes) if read_bytes == wanted_bytes => Ok(()),
            Err(Errno::EPERM | Errno::ENOSYS) => self.read_file(address, into),
            Ok(_) | Err(_) => Err(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_reading_agree() {
        let value = 0x1234_5678_9abc_def0_u64;
        let address = (&raw const value) as u64;
        let memory = ProcessMemory {
            pid: Pid::this(),
            mem: OnceLock::new(),
            parent: None,
        };
        let mut bytes = [0; 8];
        memory.read_file(address, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), value);
        assert_eq!(memory.read_u64(address), Ok(value));
        for nowhere in [8, u64::MAX, u64::MAX - 3] {
            assert_eq!(
                memory.read_file(nowhere, &mut bytes),
                Err(Fault { address: nowhere })
            );
            assert_eq!(
                memory.read(nowhere, &mut bytes),
                Err(Fault { address: nowhere })
            );
        }
    }
}
