//! What a probe costs on this machine: a thread of our own passes a site over and over, without a probe and with one.
//!
//! It has a kernel half of its own, which goes when it is done. The time is the passing thread's CPU time, which other load does
//! not touch.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use atropos_common::op::Op;
use atropos_common::scope::Scope;
use atropos_common::site::{ArgSpec, Base, Cond, SiteSpec};

use super::loader::{Kernel, Spare};
use super::site::SiteAt;
use crate::governor::Costs;

/// Our own program.
const PROGRAM: &str = "/proc/self/exe";

/// Passings of one run. Of a site that costs 10 µs that takes 2 ms, of the others a tenth of a millisecond.
const PASSINGS: u32 = 200;

/// Runs of which the median counts.
const RUNS: usize = 5;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.atropos_sites, \"ax\", @progbits",
    ".p2align 6",
    ".hidden atropos_site_emulated",
    ".globl atropos_site_emulated",
    "atropos_site_emulated:",
    "push rbp",
    "pop rbp",
    "ret",
    ".p2align 6",
    ".hidden atropos_site_usdt",
    ".globl atropos_site_usdt",
    "atropos_site_usdt:",
    "nop",
    "ret",
    ".p2align 6",
    ".hidden atropos_site_stepped",
    ".globl atropos_site_stepped",
    "atropos_site_stepped:",
    "mov rax, rdi",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// Begins with an instruction that the kernel emulates.
    safe fn atropos_site_emulated(argument: u64);
    /// Begins with what a USDT site is made of.
    safe fn atropos_site_usdt(argument: u64);
    /// Begins with an instruction that the kernel single-steps.
    safe fn atropos_site_stepped(argument: u64);
}

/// A function to pass.
type Site = extern "C" fn(u64);

/// Measures. `cpu_ns` is the CPU time of the calling thread.
///
/// # Errors
/// When the kernel half cannot be attached, or the processor is none that probes are known for.
#[cfg(target_arch = "x86_64")]
pub fn calibrate(Spare(mut kernel): Spare, cpu_ns: fn() -> u64) -> Result<Costs> {
    let all = Scope {
        flags: 0,
        reserved: 0,
    };
    kernel.watch(std::process::id(), all)?;
    let mut fixture = Fixture { kernel, cpu_ns };
    let emulated_ns = fixture.cost(atropos_site_emulated, &NOTHING)?;
    let usdt_ns = fixture.cost(atropos_site_usdt, &NOTHING)?;
    let stepped_ns = fixture.cost(atropos_site_stepped, &NOTHING)?;
    let counted_ns = fixture.cost(atropos_site_emulated, &spec(Op::RequestBegin, 0))?;
    let sent_ns = fixture.cost(atropos_site_emulated, &spec(Op::WaitBegin, SiteSpec::EMIT))?;
    Ok(Costs {
        emulated_ns,
        usdt_ns,
        stepped_ns,
        counted_ns: (counted_ns - emulated_ns).max(0.0),
        sent_ns: (sent_ns - emulated_ns).max(0.0),
        calibrated: true,
    })
}

/// Measures nothing.
///
/// # Errors
/// Always: sites of other processors are not known.
#[cfg(not(target_arch = "x86_64"))]
pub fn calibrate(_: Spare, _cpu_ns: fn() -> u64) -> Result<Costs> {
    bail!("what a probe costs can be measured on x86-64 only")
}

/// A site whose guard never holds: the passing is counted, and that is all.
const NOTHING: SiteSpec = SiteSpec {
    guard: FIRST,
    guard_value: u64::MAX,
    cond: Cond::Equal as u8,
    ..spec(Op::RequestBegin, 0)
};

/// The first argument.
const FIRST: ArgSpec = ArgSpec {
    base: Base::Arg0 as u8,
    ..ArgSpec::NONE
};

const fn spec(op: Op, flags: u32) -> SiteSpec {
    SiteSpec {
        session: FIRST,
        instance: FIRST,
        value: ArgSpec::NONE,
        guard: ArgSpec::NONE,
        guard_value: 0,
        resource: 0,
        op: op as u8,
        cond: Cond::Always as u8,
        flags,
    }
}

struct Fixture {
    kernel: Kernel,
    cpu_ns: fn() -> u64,
}

impl Fixture {
    /// What the probe adds to one passing, nanoseconds.
    fn cost(&mut self, site: Site, spec: &SiteSpec) -> Result<f64> {
        const COOKIE: u16 = 1;
        let without_ns = self.passing_ns(site);
        let offset = file_offset(site as usize as u64)?;
        let link = self.kernel.attach_all(&[SiteAt {
            cookie: COOKIE,
            spec: *spec,
            file: Path::new(PROGRAM),
            offset,
            semaphore_offset: None,
        }])?;
        let with_ns = self.passing_ns(site);
        drop(link);
        Ok((with_ns - without_ns).max(0.0))
    }

    /// The median of several runs.
    fn passing_ns(&self, site: Site) -> f64 {
        let mut runs = [0.0; RUNS];
        for run in &mut runs {
            let begun_ns = (self.cpu_ns)();
            for _ in 0..PASSINGS {
                site(black_box(0));
            }
            let took_ns = (self.cpu_ns)().saturating_sub(begun_ns);
            *run = took_ns as f64 / f64::from(PASSINGS);
        }
        runs.sort_by(f64::total_cmp);
        runs[RUNS / 2]
    }
}

/// Where in our program's file an address of ours lies.
fn file_offset(address: u64) -> Result<u64> {
    const MAPS: &str = "/proc/self/maps";
    let maps = fs::read_to_string(MAPS).with_context(|| format!("cannot read {MAPS}"))?;
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (range, offset) = (fields.next(), fields.nth(1));
        let parsed = range
            .and_then(|range| range.split_once('-'))
            .zip(offset)
            .and_then(|((from, to), offset)| {
                let hex = |text| u64::from_str_radix(text, 16).ok();
                Some((hex(from)?, hex(to)?, hex(offset)?))
            });
        if let Some((from, to, offset)) = parsed
            && (from..to).contains(&address)
        {
            return Ok(address - from + offset);
        }
    }
    bail!("{MAPS} does not say where our own code at {address:#x} comes from")
}
