//! The process that is watched, as the kernel's `/proc` shows it: who it is, which files it maps where, its threads and what
//! they block on, its memory, the sockets that it listens on. Reads only; never stops, traces or signals the target.

mod end;
mod error;
mod find;
pub mod glibc;
mod held;
mod kin;
mod maps;
mod memory;
mod namespace;
pub mod sched;
mod sockets;
mod threads;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use procfs::WithCurrentSystemInfo as _;
use procfs::process::Stat;

pub use end::EndWatch;
pub use error::TargetError;
pub use find::{find_by_exe, find_by_service};
pub use held::{HeldFiles, HeldPath};
pub use maps::{MappedFile, MappedSegment};
pub use memory::ProcessMemory;
pub use namespace::we_count_as_the_kernel;
pub use sockets::{Listening, UnixListener};
pub use threads::{BlockingLock, FutexWait, Thread, title_of};

const PF_KTHREAD: u32 = 0x0020_0000;

/// A process, identified so that a reused id is noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    /// In clock ticks after boot: with the process id, this names one process for ever.
    start_time_ticks: u64,
    comm: String,
    exe: PathBuf,
    other_mount_namespace: bool,
    /// In how many it has a number: its own is the last of them.
    pid_namespaces: usize,
}

impl Process {
    /// Processes that it has forked and that still run; empty if the kernel does not say.
    pub fn children(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid);
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    }

    /// First line of a file in the directory that it works in, without white space around it and cut to 64 bytes; nothing if
    /// there is no such file.
    pub fn first_line(&self, file: &str) -> Option<String> {
        let file = fs::File::open(format!("/proc/{}/cwd/{file}", self.pid)).ok()?;
        let mut bytes = Vec::new();
        file.take(64).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.lines().next()?.trim().to_owned())
    }

    /// Looks at a running process. Needs to be its user or root.
    pub fn open(pid: u32) -> Result<Self, TargetError> {
        let stat = stat(pid).map_err(|error| match error {
            TargetError::Exited { .. } => TargetError::NoSuchProcess {
                pid,
                closest: find::ids_like(pid),
            },
            other => other,
        })?;
        let status = proc_of(pid)?
            .status()
            .map_err(|error| TargetError::proc(pid, "its status", error))?;
        let comm = stat.comm.clone();
        if let Ok(tgid) = u32::try_from(status.tgid)
            && tgid != pid
        {
            return Err(TargetError::IsThread {
                tid: pid,
                pid: tgid,
                comm,
            });
        }
        if stat.flags & PF_KTHREAD != 0 {
            return Err(TargetError::KernelThread { pid, comm });
        }
        if has_ended(&stat) {
            return Err(TargetError::Exited {
                pid,
                what: "its state".to_owned(),
            });
        }
        let exe = read_link(pid, "exe")?;
        let process = Self {
            pid,
            start_time_ticks: stat.starttime,
            comm,
            exe: maps::without_deleted(&exe).0,
            other_mount_namespace: other_namespace(pid, "mnt")?,
            pid_namespaces: status.nspid.map_or(1, |ids| ids.len()),
        };
        if process.still_same() {
            Ok(process)
        } else {
            Err(TargetError::Exited {
                pid,
                what: "its identity".to_owned(),
            })
        }
    }

    /// Process id, in our PID namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Name of its main thread, at most 15 bytes.
    pub fn comm(&self) -> &str {
        &self.comm
    }

    /// Path of its program as the target sees it. After a start through `ld.so` this is the loader.
    pub fn exe(&self) -> &Path {
        &self.exe
    }

    /// Whether its paths mean other files than ours (a container, a chroot by mount namespace).
    pub fn in_other_mount_namespace(&self) -> bool {
        self.other_mount_namespace
    }

    /// Whether it sees other process and thread ids than we do.
    pub fn in_other_pid_namespace(&self) -> bool {
        self.pid_namespaces > 1
    }

    /// Its root directory, as a path for us.
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid))
    }

    /// A path of the target as a path for us.
    pub fn path_for_us(&self, in_target: &Path) -> PathBuf {
        self.root()
            .join(in_target.strip_prefix("/").unwrap_or(in_target))
    }

    /// Whether the id still belongs to this process, alive.
    pub fn still_same(&self) -> bool {
        stat(self.pid)
            .is_ok_and(|stat| stat.starttime == self.start_time_ticks && !has_ended(&stat))
    }

    /// CPU time that its threads have used, in user and kernel mode. Rises in steps of a clock tick (usually 10 ms).
    pub fn cpu_time_ns(&self) -> Result<u64, TargetError> {
        let stat = self.stat()?;
        let tick_ns = 1_000_000_000 / procfs::ticks_per_second();
        Ok((stat.utime + stat.stime) * tick_ns)
    }

    /// Memory that is resident.
    pub fn rss_bytes(&self) -> Result<u64, TargetError> {
        Ok(self.stat()?.rss_bytes().get())
    }

    /// All processes that descend from it, nearest first. Those whose parents ended in between are missed.
    pub fn descendants(&self) -> Vec<u32> {
        find::descendants(self.pid, &find::parents())
    }

    fn stat(&self) -> Result<Stat, TargetError> {
        let stat = stat(self.pid)?;
        if stat.starttime == self.start_time_ticks {
            Ok(stat)
        } else {
            Err(self.exited("its state"))
        }
    }

    fn exited(&self, what: &str) -> TargetError {
        TargetError::Exited {
            pid: self.pid,
            what: what.to_owned(),
        }
    }
}

/// A zombie keeps its id and nothing else.
fn has_ended(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X' | 'x')
}

fn proc_of(pid: u32) -> Result<procfs::process::Process, TargetError> {
    let gone = || TargetError::Exited {
        pid,
        what: "its directory in /proc".to_owned(),
    };
    let id = i32::try_from(pid).map_err(|_| gone())?;
    procfs::process::Process::new(id)
        .map_err(|error| TargetError::proc(pid, "its directory in /proc", error))
}

fn stat(pid: u32) -> Result<Stat, TargetError> {
    proc_of(pid)?
        .stat()
        .map_err(|error| TargetError::proc(pid, "its state", error))
}

fn read_link(pid: u32, name: &str) -> Result<PathBuf, TargetError> {
    let link = format!("/proc/{pid}/{name}");
    fs::read_link(&link).map_err(|error| TargetError::reading(pid, &link, &error))
}

fn other_namespace(pid: u32, kind: &str) -> Result<bool, TargetError> {
    let theirs = read_link(pid, &format!("ns/{kind}"))?;
    let ours = fs::read_link(format!("/proc/self/ns/{kind}")).map_err(|error: io::Error| {
        TargetError::reading(std::process::id(), "its own namespaces", &error)
    })?;
    Ok(theirs != ours)
}
