//! What a probe costs on this machine: a thread of our own passes a site over and over, without a probe and with one.
//!
//! It has a kernel half of its own, which goes when it is done. The time is the passing thread's CPU time, which other load does
//! not touch. All sites are attached by one link: to attach and to detach is what takes the time here, since it waits for the kernel.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use atropos_common::op::Op;
use atropos_common::scope::Scope;
use atropos_common::site::{ArgSpec, Base, Cond, SiteSpec};
use serde::Serialize;

use super::loader::Kernel;
use super::multi::MultiSite;
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
    ".irp kind, idle, counted, sent",
    ".p2align 6",
    ".hidden atropos_site_emulated_\\kind",
    ".globl atropos_site_emulated_\\kind",
    "atropos_site_emulated_\\kind:",
    "push rbp",
    "pop rbp",
    "ret",
    ".endr",
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
    safe fn atropos_site_emulated_idle(argument: u64);
    /// The same once more.
    safe fn atropos_site_emulated_counted(argument: u64);
    /// The same once more.
    safe fn atropos_site_emulated_sent(argument: u64);
    /// Begins with what a USDT site is made of.
    safe fn atropos_site_usdt(argument: u64);
    /// Begins with an instruction that the kernel single-steps.
    safe fn atropos_site_stepped(argument: u64);
}

/// A function to pass.
type Site = extern "C" fn(u64);

/// Of other processors no sites are known.
#[cfg(not(target_arch = "x86_64"))]
const SITES: [(&str, Site, SiteSpec); 5] = {
    extern "C" fn unknown(_argument: u64) {}
    [("", unknown as Site, NOTHING); 5]
};

/// The sites: what each is called, and what passing it means.
#[cfg(target_arch = "x86_64")]
const SITES: [(&str, Site, SiteSpec); 5] = [
    ("emulated", atropos_site_emulated_idle, NOTHING),
    ("usdt", atropos_site_usdt, NOTHING),
    ("stepped", atropos_site_stepped, NOTHING),
    (
        "emulated, request booked",
        atropos_site_emulated_counted,
        spec(Op::RequestBegin, 0),
    ),
    (
        "emulated, wait sent",
        atropos_site_emulated_sent,
        spec(Op::WaitBegin, SiteSpec::EMIT),
    ),
];

/// Measures. `cpu_ns` is the CPU time of the calling thread, `now_ns` a clock for how long all of it takes.
///
/// # Errors
/// When the kernel half cannot be loaded or attached, or the processor is none that probes are known for.
pub fn calibrate(cpu_ns: fn() -> u64, now_ns: fn() -> u64) -> Result<Costs> {
    let begun_ns = now_ns();
    let mut kernel = half()?;
    let [emulated_ns, usdt_ns, stepped_ns, counted_ns, sent_ns] = added(&mut kernel, cpu_ns)?;
    drop(kernel);
    Ok(Costs {
        emulated_ns,
        usdt_ns,
        stepped_ns,
        counted_ns: (counted_ns - emulated_ns).max(0.0),
        sent_ns: (sent_ns - emulated_ns).max(0.0),
        calibrated: true,
        took_ms: now_ns().saturating_sub(begun_ns) as f64 / 1e6,
    })
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

/// What one passing costs with an empty program at the site and with ours, nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Passing {
    /// How the probe sits there, and what ours does.
    pub kind: &'static str,
    /// With the empty program.
    pub empty_ns: f64,
    /// With ours.
    pub ours_ns: f64,
}

/// Measures our program against an empty one, at each site once.
///
/// # Errors
/// As [`calibrate`], and on kernels that have no links of many sites.
pub fn beside_nothing(cpu_ns: fn() -> u64) -> Result<Vec<Passing>> {
    let mut kernel = half()?;
    let nothing = kernel.nothing()?;
    let sites = places()?.map(|place| MultiSite {
        offset: place.offset,
        semaphore_offset: 0,
        cookie: 0,
    });
    let link = nothing.attach(Path::new(PROGRAM), &sites)?;
    let empty_ns = passings_ns(cpu_ns);
    drop(link);
    let links = kernel.attach_all(&places()?)?;
    let ours_ns = passings_ns(cpu_ns);
    drop(links);
    let both = empty_ns.into_iter().zip(ours_ns);
    let passing =
        |((kind, ..), (empty_ns, ours_ns)): (&(&'static str, Site, SiteSpec), _)| Passing {
            kind,
            empty_ns,
            ours_ns,
        };
    Ok(SITES.iter().zip(both).map(passing).collect())
}

/// A kernel half that watches us.
fn half() -> Result<Kernel> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "what a probe costs can be measured on x86-64 only"
    );
    let mut kernel = Kernel::load_unheard()?;
    kernel.watch(std::process::id(), Scope::ALONE)?;
    Ok(kernel)
}

/// What the probe adds to one passing of each site, nanoseconds.
fn added(kernel: &mut Kernel, cpu_ns: fn() -> u64) -> Result<[f64; SITES.len()]> {
    let without_ns = passings_ns(cpu_ns);
    let links = kernel.attach_all(&places()?)?;
    let mut added_ns = passings_ns(cpu_ns);
    drop(links);
    for (with_ns, without_ns) in added_ns.iter_mut().zip(without_ns) {
        *with_ns = (*with_ns - without_ns).max(0.0);
    }
    Ok(added_ns)
}

/// Where the sites lie.
fn places() -> Result<[SiteAt<'static>; SITES.len()]> {
    let mut places = Vec::new();
    for (cookie, (_, site, spec)) in (1..).zip(SITES) {
        places.push(SiteAt {
            cookie,
            spec,
            file: Path::new(PROGRAM),
            offset: file_offset(site as usize as u64)?,
            semaphore_offset: None,
        });
    }
    places
        .try_into()
        .map_err(|_| anyhow!("each site has one place"))
}

/// What one passing of each site costs, nanoseconds.
fn passings_ns(cpu_ns: fn() -> u64) -> [f64; SITES.len()] {
    SITES.map(|(_, site, _)| passing_ns(site, cpu_ns))
}

/// The median of several runs.
fn passing_ns(site: Site, cpu_ns: fn() -> u64) -> f64 {
    let mut runs = [0.0; RUNS];
    for run in &mut runs {
        let begun_ns = cpu_ns();
        for _ in 0..PASSINGS {
            site(black_box(0));
        }
        let took_ns = cpu_ns().saturating_sub(begun_ns);
        *run = took_ns as f64 / f64::from(PASSINGS);
    }
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
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
