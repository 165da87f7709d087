//! What the scheduler did to threads: time on a processor, time in the queue for one, time blocked on a disk.
//!
//! The kernel counts the first two for every thread anyway (`/proc/PID/task/TID/schedstat`), so that reading them costs the
//! target nothing. It books them when a thread is put on a processor or taken off it, or at its tick: what a thread has waited
//! so far shows once it runs, which can be a second later. So of a thread for which nothing was booked, and of which is not known
//! that it sleeps, the state is read as well: one that is ready has waited all the time. The third is there only where `kernel.task_delayacct` is 1.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

/// Most threads that are followed at once: each takes one or two descriptors.
pub const MAX_FOLLOWED: usize = 512;

/// Where the kernel says whether it counts the time that threads are blocked on a disk.
const DELAY_ACCOUNTING: &str = "/proc/sys/kernel/task_delayacct";

/// Field of `stat` with the time blocked on a disk in clock ticks, counted from the field behind the program's name.
const IO_FIELD: usize = 42 - 3;

/// Longest line that is read.
const LINE_BYTES: usize = 1024;

/// Times of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// On a processor.
    pub on_cpu_ns: u64,
    /// Ready to run and in the queue for a processor.
    pub run_delay_ns: u64,
    /// Blocked on a disk, in steps of a clock tick; nothing where the kernel does not count it.
    pub io_ns: Option<u64>,
}

/// Times of a thread between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadUsage {
    /// The thread.
    pub tid: u32,
    /// Time between the looks.
    pub covered_ns: u64,
    /// What it did in that time.
    pub times: ThreadTimes,
}

/// Follows threads from look to look.
#[derive(Debug)]
pub struct Scheduler {
    followed: BTreeMap<u32, Followed>,
    counts_io: bool,
}

/// A thread with its files, which stay open: to open one costs several times what it costs to read.
#[derive(Debug)]
struct Followed {
    schedstat: File,
    /// Kept open where it is read at every look.
    stat: Option<File>,
    /// Its process and its own number.
    ids: (u32, u32),
    times: ThreadTimes,
    at_ns: u64,
    /// Time in the queue for a processor that was told and that the kernel has not booked yet.
    ahead_ns: u64,
}

impl Scheduler {
    /// Follows nobody yet.
    pub fn new() -> Self {
        let counts_io = fs::read_to_string(DELAY_ACCOUNTING).is_ok_and(|text| text.trim() == "1");
        Self {
            followed: BTreeMap::new(),
            counts_io,
        }
    }

    /// Whether the kernel counts time blocked on a disk.
    pub fn counts_io(&self) -> bool {
        self.counts_io
    }

    /// Looks at these threads, given by process and thread: what each did since the look before. One that is new gives
    /// nothing yet, one that is gone nothing more, and one that is not named is followed no longer. Of more than
    /// [`MAX_FOLLOWED`] the rest is left out. `asleep` are those that are known to wait for something else than a processor.
    pub fn look(
        &mut self,
        threads: &[(u32, u32)],
        asleep: &BTreeSet<u32>,
        now_ns: u64,
    ) -> Vec<ThreadUsage> {
        let mut before = std::mem::take(&mut self.followed);
        let mut usages = Vec::new();
        for (pid, tid) in threads.iter().take(MAX_FOLLOWED) {
            let Some(mut followed) = before
                .remove(tid)
                .or_else(|| Followed::open(*pid, *tid, self.counts_io, now_ns))
            else {
                continue;
            };
            let Some(times) = followed.read() else {
                continue;
            };
            let covered_ns = now_ns.saturating_sub(followed.at_ns);
            if covered_ns > 0 {
                usages.push(ThreadUsage {
                    tid: *tid,
                    covered_ns,
                    times: followed.told(times, covered_ns, asleep.contains(tid)),
                });
            }
            (followed.times, followed.at_ns) = (times, now_ns);
            self.followed.insert(*tid, followed);
        }
        usages
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new()
    }
}

impl Followed {
    fn open(pid: u32, tid: u32, counts_io: bool, now_ns: u64) -> Option<Self> {
        let open = |name: &str| File::open(format!("/proc/{pid}/task/{tid}/{name}")).ok();
        let mut followed = Self {
            schedstat: open("schedstat")?,
            stat: if counts_io { Some(open("stat")?) } else { None },
            ids: (pid, tid),
            times: ThreadTimes::default(),
            at_ns: now_ns,
            ahead_ns: 0,
        };
        followed.times = followed.read()?;
        Some(followed)
    }

    /// Times since the thread's start; nothing if it is gone.
    fn read(&self) -> Option<ThreadTimes> {
        let (on_cpu_ns, run_delay_ns) = schedstat(&line(&self.schedstat)?)?;
        let io_ns = match &self.stat {
            None => None,
            Some(stat) => Some(io_ticks(&line(stat)?)? * tick_ns()),
        };
        Some(ThreadTimes {
            on_cpu_ns,
            run_delay_ns,
            io_ns,
        })
    }

    /// What it did since the look before, given its times at this one.
    fn told(&mut self, times: ThreadTimes, covered_ns: u64, asleep: bool) -> ThreadTimes {
        let mut told = times.since(self.times);
        if (told.on_cpu_ns, told.run_delay_ns) != (0, 0) {
            told.run_delay_ns = told.run_delay_ns.saturating_sub(self.ahead_ns);
            self.ahead_ns = 0;
        } else if !asleep && self.is_ready() {
            told.run_delay_ns = covered_ns;
            self.ahead_ns = self.ahead_ns.saturating_add(covered_ns);
        }
        told
    }

    /// It runs or is in the queue for a processor. Asked of few, so that no descriptor is kept for it.
    fn is_ready(&self) -> bool {
        let line = if let Some(stat) = &self.stat {
            line(stat)
        } else {
            let (pid, tid) = self.ids;
            fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()
        };
        line.is_some_and(|line| is_ready(&line))
    }
}

impl ThreadTimes {
    fn since(self, before: Self) -> Self {
        Self {
            on_cpu_ns: self.on_cpu_ns.saturating_sub(before.on_cpu_ns),
            run_delay_ns: self.run_delay_ns.saturating_sub(before.run_delay_ns),
            io_ns: self
                .io_ns
                .zip(before.io_ns)
                .map(|(after, before)| after.saturating_sub(before)),
        }
    }
}

fn tick_ns() -> u64 {
    1_000_000_000 / procfs::ticks_per_second()
}

fn line(file: &File) -> Option<String> {
    let mut bytes = [0; LINE_BYTES];
    let count = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// Nanoseconds on a processor and in the queue.
fn schedstat(line: &str) -> Option<(u64, u64)> {
    let mut numbers = line.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The thread runs or is in the queue for a processor.
fn is_ready(line: &str) -> bool {
    line.rsplit_once(')')
        .is_some_and(|(_, behind)| behind.trim_start().starts_with('R'))
}

/// Clock ticks blocked on a disk. The name in the second field may hold spaces and parentheses.
fn io_ticks(line: &str) -> Option<u64> {
    let behind_name = line.rsplit_once(')')?.1;
    behind_name.split_whitespace().nth(IO_FIELD)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read_and_others_refused() {
        assert_eq!(schedstat("105738 1090437 2\n"), Some((105_738, 1_090_437)));
        assert_eq!(schedstat(""), None);
        assert_eq!(schedstat("105738 x 2"), None);
        let numbers: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("77 (a ) b) {}", numbers.join(" "));
        assert_eq!(io_ticks(&stat), Some(42));
        assert_eq!(io_ticks("77 (a) S 1 2"), None);
        assert!(is_ready("77 (S ) b) R 1 2") && !is_ready("77 (R ) R) S 1 2") && !is_ready(""));
    }

    #[test]
    fn a_delay_is_told_while_it_lasts_and_not_again_when_it_is_booked() {
        // This thread is ready all the time, and its state says so.
        let pid = std::process::id();
        let tid = nix::unistd::gettid().as_raw().cast_unsigned();
        let mut followed = Followed::open(pid, tid, false, 0).unwrap();
        let before = followed.times;
        for _ in 0..2 {
            assert_eq!(followed.told(before, 50, false).run_delay_ns, 50);
        }
        let booked = ThreadTimes {
            run_delay_ns: before.run_delay_ns + 130,
            ..before
        };
        assert_eq!(followed.told(booked, 50, false).run_delay_ns, 30);
        followed.times = booked;
        assert_eq!(followed.told(booked, 50, true).run_delay_ns, 0);
        assert_eq!(followed.told(booked, 50, false).run_delay_ns, 50);
    }

    #[test]
    fn a_thread_is_told_of_from_the_second_look_on_while_it_is_named_and_lives() {
        let pid = std::process::id();
        let mut scheduler = Scheduler::new();
        let mut look = |threads: &[_], now_ns| scheduler.look(threads, &BTreeSet::new(), now_ns);
        assert!(look(&[(pid, pid), (pid, u32::MAX)], 10).is_empty());
        let usages = look(&[(pid, pid)], 15);
        let told: Vec<_> = usages.iter().map(|u| (u.tid, u.covered_ns)).collect();
        assert_eq!(told, [(pid, 5)]);
        assert!(look(&[], 20).is_empty());
        assert!(look(&[(pid, pid)], 25).is_empty(), "it is new");
        assert_eq!(usages[0].times.io_ns.is_some(), scheduler.counts_io());
    }
}
