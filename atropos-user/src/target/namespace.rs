//! Process and thread ids of a target that counts its own, in a container.
//!
//! The target's memory, its commands and everything that the agent tells of its sessions go by the target's numbers; `/proc`,
//! signals and the kernel go by ours.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::fs::MetadataExt as _;

use atropos_common::namespace::PidNamespace;

use super::{Process, TargetError, proc_of};

/// Inode of the PID namespace in which the machine itself counts (the kernel's `PROC_PID_INIT_INO`).
const INITIAL: u64 = 0xefff_fffc;

/// The namespace of a process: a number, or `self`.
fn namespace_of(process: &str) -> std::io::Result<PidNamespace> {
    let metadata = fs::metadata(format!("/proc/{process}/ns/pid"))?;
    Ok(PidNamespace {
        device: metadata.st_dev(),
        inode: metadata.st_ino(),
    })
}

/// Whether our own process counts as the kernel does.
pub fn we_count_as_the_kernel() -> bool {
    namespace_of("self").is_ok_and(|ours| ours.inode == INITIAL)
}

impl Process {
    /// The namespace in which it counts, if that is not ours.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn pid_namespace(&self) -> Result<Option<PidNamespace>, TargetError> {
        if !self.in_other_pid_namespace() {
            return Ok(None);
        }
        namespace_of(&self.pid.to_string())
            .map(Some)
            .map_err(|error| TargetError::reading(self.pid, "its PID namespace", &error))
    }

    /// Our number of the thread or of the descendant that it calls so; `None` if there is none (any more).
    pub fn ours(&self, in_target: u32) -> Option<u32> {
        if !self.in_other_pid_namespace() {
            return Some(in_target);
        }
        let threads = self.thread_ids().unwrap_or_default();
        self.called(&threads, in_target)
            .or_else(|| self.called(&self.descendants(), in_target))
    }

    /// Our numbers of the process and the thread of a session's thread that it calls so. `forks`: a session is a process of its own.
    pub fn session_thread(&self, in_target: u32, forks: bool) -> Option<(u32, u32)> {
        let tid = self.ours(in_target)?;
        Some((if forks { tid } else { self.pid }, tid))
    }

    /// The same of all its threads at once (`forks`: of all its processes), by what it calls them: one look at the machine, where
    /// [`Self::session_thread`] takes one for each.
    pub fn session_threads(&self, forks: bool) -> BTreeMap<u32, (u32, u32)> {
        let ours = if forks {
            self.descendants()
        } else {
            self.thread_ids().unwrap_or_default()
        };
        let thread = |tid| Some((self.theirs(tid)?, (if forks { tid } else { self.pid }, tid)));
        ours.into_iter().filter_map(thread).collect()
    }

    /// The one of these (our numbers of its threads or descendants) that it calls so.
    pub(super) fn called(&self, ours: &[u32], in_target: u32) -> Option<u32> {
        let is_meant = |id: &u32| self.theirs(*id) == Some(in_target);
        ours.iter().copied().find(is_meant)
    }

    /// What it calls a thread or a descendant of its own that we call so; `None` if that is gone.
    pub fn theirs(&self, ours: u32) -> Option<u32> {
        if !self.in_other_pid_namespace() {
            return Some(ours);
        }
        // A descendant may count in a deeper namespace still.
        let ids = proc_of(ours).ok()?.status().ok()?.nspid?;
        ids.get(self.pid_namespaces - 1)
            .map(|id| id.cast_unsigned())
    }
}
