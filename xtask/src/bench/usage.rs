//! What a process has used so far: CPU time to the nanosecond, threads that have ended included, and memory.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// The unit of times in `/proc/PID/stat`: `USER_HZ` is 100 on every Linux that Atropos runs on.
const TICK_NS: u64 = 10_000_000;
/// How often a sum that is not of one moment is taken again,
const ATTEMPTS: u32 = 200;
/// and after how long.
const RETRY: Duration = Duration::from_millis(5);

/// CPU time of a process, user and system, nanoseconds. Probes run in the threads that hit them, so theirs is in it.
pub(super) fn cpu_ns(pid: u32) -> Result<u64> {
    let id = Pid::from_raw(i32::try_from(pid).context("a pid fits")?);
    let clock =
        ClockId::pid_cpu_clock_id(id).with_context(|| format!("process {pid} has no CPU clock"))?;
    let used = clock_gettime(clock)
        .with_context(|| format!("cannot read the CPU clock of process {pid}"))?;
    u64::try_from(Duration::from(used).as_nanos()).context("less than 584 years")
}

/// CPU time of a process and of all that it has forked, those that have ended included, nanoseconds. Of processes that run it
/// is exact, of those that have ended exact to a tick of the kernel (10 ms over all of them).
pub(super) fn tree_cpu_ns(pid: u32) -> Result<u64> {
    for _ in 0..ATTEMPTS {
        let before = (ended_ns(pid)?, children(pid));
        // A child that ends in between shows below.
        let running: Option<u64> = before.1.iter().map(|child| cpu_ns(*child).ok()).sum();
        let own_ns = cpu_ns(pid)?;
        let after = (ended_ns(pid)?, children(pid));
        if let Some(running_ns) = running.filter(|_| before == after) {
            return Ok(own_ns + running_ns + before.0);
        }
        std::thread::sleep(RETRY);
    }
    bail!("children of process {pid} come and go too fast to sum up their CPU time")
}

/// CPU time of the children of a process that have ended, nanoseconds.
fn ended_ns(pid: u32) -> Result<u64> {
    let file = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    parse_ended_ticks(&stat)
        .map(|ticks| ticks * TICK_NS)
        .with_context(|| format!("{file} does not tell the CPU time of children"))
}

/// Fields 16 and 17 (proc(5): `cutime`, `cstime`), counted behind the program's name, which may hold anything.
fn parse_ended_ticks(stat: &str) -> Option<u64> {
    let behind = &stat[stat.rfind(')')? + 1..];
    let mut fields = behind.split_whitespace().skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The processes that a process has forked and that have not been waited for.
fn children(pid: u32) -> Vec<u32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
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
    children(pid)
        .into_iter()
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
    fn the_time_of_ended_children_is_read_behind_a_name_that_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 11 12 250 50 20 0 1 0 100 0 0";
        assert_eq!(parse_ended_ticks(stat), Some(300));
        assert_eq!(parse_ended_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn the_time_of_a_tree_keeps_that_of_children_that_have_ended() {
        let own = std::process::id();
        let before_ns = tree_cpu_ns(own).unwrap();
        let mut busy = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
            .spawn()
            .unwrap();
        assert!(busy.wait().unwrap().success());
        let after_ns = tree_cpu_ns(own).unwrap();
        assert!(after_ns >= before_ns + 20_000_000, "{before_ns} {after_ns}");
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
