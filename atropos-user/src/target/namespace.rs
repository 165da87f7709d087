//! Process and thread ids of a target that counts its own, in a container.
//!
//! The target's memory, its commands and everything that the agent tells of its sessions go by the target's numbers; `/proc`,
//! signals and the kernel go by ours.

use std::fs;
use std::os::linux::fs::MetadataExt as _;

use super::{Process, TargetError, proc_of};

/// Inode of the PID namespace in which the machine itself counts (the kernel's `PROC_PID_INIT_INO`).
const INITIAL: u64 = 0xefff_fffc;

/// A PID namespace, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

impl PidNamespace {
    /// That of a process: a number, or `self`.
    fn of(process: &str) -> std::io::Result<Self> {
        let metadata = fs::metadata(format!("/proc/{process}/ns/pid"))?;
        Ok(Self {
            device: metadata.st_dev(),
            inode: metadata.st_ino(),
        })
    }
}

/// Whether our own process counts as the kernel does.
pub fn we_count_as_the_kernel() -> bool {
    PidNamespace::of("self").is_ok_and(|ours| ours.inode == INITIAL)
}

impl Process {
    /// The namespace in which it counts, if that is not ours.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn pid_namespace(&self) -> Result<Option<PidNamespace>, TargetError> {
        if !self.other_pid_namespace {
            return Ok(None);
        }
        PidNamespace::of(&self.pid.to_string())
            .map(Some)
            .map_err(|error| TargetError::reading(self.pid, "its PID namespace", &error))
    }

    /// Our number of the thread or of the descendant that it calls so; `None` if there is none (any more).
    pub fn ours(&self, in_target: u32) -> Option<u32> {
        if !self.other_pid_namespace {
            return Some(in_target);
        }
        let threads = self.thread_ids().unwrap_or_default();
        let is_meant = |id: u32| self.in_target(id) == Some(in_target);
        threads
            .into_iter()
            .find(|tid| self.tid_in_target(*tid) == Some(in_target))
            .or_else(|| self.descendants().into_iter().find(|pid| is_meant(*pid)))
    }

    /// What it calls a thread or a descendant of its own that we call so; `None` if that is gone.
    pub fn theirs(&self, ours: u32) -> Option<u32> {
        if self.other_pid_namespace {
            self.in_target(ours)
        } else {
            Some(ours)
        }
    }

    /// What it calls one of its descendants.
    pub(super) fn in_target(&self, pid: u32) -> Option<u32> {
        let ids = |pid: u32| proc_of(pid).ok()?.status().ok()?.nspid;
        // A descendant may count in a deeper namespace still.
        let depth = ids(self.pid)?.len().checked_sub(1)?;
        ids(pid)?.get(depth).map(|id| id.cast_unsigned())
    }
}
