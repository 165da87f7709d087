//! The one place where the agent reads a clock.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

const NS_IN_S: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of the kernel half's records.
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// The CPU clock of a process: to be asked for once, since it takes a system call.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(ClockId);

impl CpuClock {
    /// Of this process; nothing if it is gone.
    pub fn of(pid: u32) -> Option<Self> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).ok()?);
        nix::time::clock_getcpuclockid(pid).ok().map(Self)
    }

    /// CPU time of the process in nanoseconds, its ended threads included; nothing if it is gone.
    pub fn used_ns(self) -> Option<u64> {
        clock_gettime(self.0).ok().map(time_ns)
    }
}

/// The wall clock in nanoseconds since 1970.
pub fn epoch_ns() -> u64 {
    read_ns(ClockId::CLOCK_REALTIME)
}

/// The wall clock less the monotonic clock, nanoseconds; off by half of what passes between two readings at most.
pub fn epoch_minus_monotonic_ns() -> i64 {
    let reading = |_| {
        let (before_ns, epoch_ns, after_ns) = (monotonic_ns(), epoch_ns(), monotonic_ns());
        let width_ns = after_ns.saturating_sub(before_ns);
        let between_ns = before_ns + width_ns / 2;
        (width_ns, epoch_ns.cast_signed() - between_ns.cast_signed())
    };
    // Whoever is put off the processor between two of them reads again.
    let (_, difference_ns) = (0..3).map(reading).min().unwrap_or_default();
    difference_ns
}

/// The clock that counts on while the machine sleeps less the monotonic clock, nanoseconds.
pub fn boot_minus_monotonic_ns() -> u64 {
    let monotonic_ns = monotonic_ns();
    read_ns(ClockId::CLOCK_BOOTTIME).saturating_sub(monotonic_ns)
}

fn read_ns(clock: ClockId) -> u64 {
    time_ns(clock_gettime(clock).expect("Linux has these clocks"))
}

fn time_ns(time: TimeSpec) -> u64 {
    u64::try_from(time.tv_sec()).unwrap_or(0) * NS_IN_S + u64::try_from(time.tv_nsec()).unwrap_or(0)
}
