//! Why a process, or something of it, could not be looked at. A message says the next step where there is one.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use procfs::ProcError;
use thiserror::Error;

/// Why a process could not be looked at.
#[derive(Debug, Error)]
pub enum TargetError {
    /// No process has this id.
    #[error("no process {pid}{}", with_closest(.closest, "; ids like it: "))]
    NoSuchProcess {
        /// The wanted process id.
        pid: u32,
        /// Processes whose id differs by one digit, as `1234 (mariadbd)`.
        closest: Vec<String>,
    },
    /// The id is that of a thread.
    #[error("{tid} is a thread of process {pid} ({comm}): name the process, {pid}")]
    IsThread {
        /// The wanted id.
        tid: u32,
        /// The process that the thread belongs to.
        pid: u32,
        /// The thread's name.
        comm: String,
    },
    /// The id is that of a kernel thread, which has no program.
    #[error("process {pid} ({comm}) is a kernel thread: it runs no program that could be watched")]
    KernelThread {
        /// The wanted process id.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// The process ended while it was looked at, or its id belongs to another process by now.
    #[error(
        "process {pid} ended while reading {what}; if it was restarted, name its executable or service instead of its id"
    )]
    Exited {
        /// The process id.
        pid: u32,
        /// What was being read.
        what: String,
    },
    /// The kernel refused.
    #[error(
        "not allowed to read {what} of process {pid}: run as root, or with the capability {capability}"
    )]
    PermissionDenied {
        /// The process id.
        pid: u32,
        /// What was being read.
        what: String,
        /// The capability that lets it be read.
        capability: &'static str,
    },
    /// No running process answers to an executable or a service.
    #[error("no running process of {wanted}{}", with_closest(.closest, "; closest running: "))]
    NoneRunning {
        /// What was looked for, for people.
        wanted: String,
        /// Similar names that do run.
        closest: Vec<String>,
    },
    /// Several unrelated processes answer.
    #[error("{wanted} means {} processes: {}; name one by its id", .pids.len(), .pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    SeveralRunning {
        /// What was looked for, for people.
        wanted: String,
        /// The roots of their process trees.
        pids: Vec<u32>,
    },
    /// Any other failure to read.
    #[error("cannot read {what} of process {pid}: {why}")]
    Unreadable {
        /// The process id.
        pid: u32,
        /// What was being read.
        what: String,
        /// What the system said.
        why: String,
    },
}

fn with_closest(names: &[String], lead: &str) -> String {
    if names.is_empty() {
        String::new()
    } else {
        format!("{lead}{}", names.join(", "))
    }
}

impl TargetError {
    /// From a failed read of `what`, a file of `/proc/PID` or something that it leads to.
    pub(super) fn reading(pid: u32, what: &str, error: &io::Error) -> Self {
        let what = what.to_owned();
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EACCES | Errno::EPERM) => Self::PermissionDenied {
                pid,
                what,
                capability: "CAP_SYS_PTRACE",
            },
            Some(Errno::ENOENT | Errno::ESRCH)
                if !PathBuf::from(format!("/proc/{pid}")).exists() =>
            {
                Self::Exited { pid, what }
            }
            Some(Errno::ESRCH) => Self::Exited { pid, what },
            _ => Self::Unreadable {
                pid,
                what,
                why: error.to_string(),
            },
        }
    }

    /// From a failed read through the `procfs` crate.
    pub(super) fn proc(pid: u32, what: &str, error: ProcError) -> Self {
        let errno = match error {
            ProcError::PermissionDenied(_) => Errno::EACCES,
            ProcError::NotFound(_) => Errno::ENOENT,
            ProcError::Io(error, _) => return Self::reading(pid, what, &error),
            other => {
                return Self::Unreadable {
                    pid,
                    what: what.to_owned(),
                    why: other.to_string(),
                };
            }
        };
        Self::reading(pid, what, &io::Error::from(errno))
    }
}
