//! What a process has used so far: CPU time to the nanosecond, threads that have ended included, and memory.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// CPU time of a process, user and system, nanoseconds. Probes run in the threads that hit them, so theirs is in it.
pub(super) fn cpu_ns(pid: u32) -> Result<u64> {
    let id = Pid::from_raw(i32::try_from(pid).context("a pid fits")?);
    let clock =
        ClockId::pid_cpu_clock_id(id).with_context(|| format!("process {pid} has no CPU clock"))?;
    let used = clock_gettime(clock)
        .with_context(|| format!("cannot read the CPU clock of process {pid}"))?;
    u64::try_from(Duration::from(used).as_nanos()).context("less than 584 years")
}

/// Resident memory of a process, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// At this moment.
    pub(super) rss_bytes: u64,
    /// At its highest.
    pub(super) peak_bytes: u64,
}

impl Memory {
    /// Of that process.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let file = format!("/proc/{pid}/status");
        let status = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        Self::parse(&status).with_context(|| format!("{file} does not tell the resident memory"))
    }

    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib * 1024)
        };
        Some(Self {
            rss_bytes: field("VmRSS:")?,
            peak_bytes: field("VmHWM:")?,
        })
    }
}

/// The process of that name which is `pid` or stands below it: an agent that was started through sudo is sudo's child.
pub(super) fn find_below(pid: u32, name: &str) -> Option<u32> {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    if comm.trim() == name {
        return Some(pid);
    }
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .find_map(|child| find_below(child, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tatropos\nVmHWM:\t   13000 kB\nVmRSS:\t   12000 kB\nThreads:\t2\n";
        let memory = Memory {
            rss_bytes: 12_288_000,
            peak_bytes: 13_312_000,
        };
        assert_eq!(Memory::parse(status), Some(memory));
        assert_eq!(Memory::parse("Name:\tkthread\n"), None);
    }

    #[test]
    fn the_clock_of_a_process_grows_with_its_work_and_keeps_that_of_ended_threads() {
        let before_ns = cpu_ns(std::process::id()).unwrap();
        let burn = || (0..3_000_000_u64).fold(0, |sum: u64, n| std::hint::black_box(sum ^ n));
        std::thread::spawn(burn).join().unwrap();
        let after_ns = cpu_ns(std::process::id()).unwrap();
        assert!(after_ns > before_ns + 100_000, "{before_ns} {after_ns}");
    }

    #[test]
    fn a_process_is_found_by_its_name_at_or_below_another() {
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(
            find_below(std::process::id(), own.trim()),
            Some(std::process::id())
        );
        assert_eq!(find_below(std::process::id(), "no such name"), None);
    }
}
