//! The probe sets of the two levels, attached to one process.
//!
//! Calm: probes that fire only when somebody already waits, and for a short time now and then those of the requests, to
//! learn what is normal. Suspect: all of them. How much of it, the [`Governor`] says: it is told once a tick what they cost.
//! Whoever attaches or detaches waits for the kernel; the agent does not (see `fitted`).

mod absent;
mod cpu;
mod fitted;
mod kept;
mod plan;
mod readings;
mod tally;
mod wakes;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use anyhow::{Result, bail};
use atropos_common::histogram::BUCKETS;
use atropos_common::limits::MAX_SITES;
use atropos_common::op::Op;
use atropos_common::record::EventRecord;
use atropos_common::scope::Scope;
use atropos_common::wake::WAKES_SITE;

use super::clock;
use super::kept::{Kept, Uses};
use super::resolve::Resolved;
use crate::engine::input::Blind;
use crate::engine::record::Level;
use crate::governor::{Change, Costs, Governor, Reading};
use crate::kernel::{
    Counters, Decoded, Kernel, Latencies, OrderSite, Orders, Ring, calibrate, give_back_heap,
};
use crate::target::{Process, we_count_as_the_kernel};
use cpu::CpuMeter;
use fitted::Fitted;
use kept::close_unseen;
use plan::{cookie, plan};
pub use readings::ProbeReading;
use tally::Tally;
pub use wakes::WakeLook;
use wakes::WakeUps;

/// Passings by site since the start.
type Hits = [u64; MAX_SITES as usize];

/// What came in since the harvest before.
#[derive(Debug, Default)]
pub struct Harvest {
    /// Records of the ring.
    pub events: Vec<Decoded>,
    /// Things that could not be kept, whatever the cause.
    pub lost: u64,
    /// For how long of the time request probes were attached.
    pub covered_ns: u64,
    /// Latencies of requests that completed, by bucket.
    pub latency: Vec<(u16, u64)>,
    /// What the kernel half keeps, of an application that tells by marks.
    pub kept: Option<Kept>,
    /// What sessions use of resources with limited room.
    pub uses: Uses,
    /// What the governor changed.
    pub changes: Vec<Change>,
    /// Resources whose probes are shed, or refused by the kernel.
    pub blind: Vec<Blind>,
    /// Why probes are not attached that should be, one sentence each.
    pub refused: Vec<String>,
    /// What a passing costs on this machine has just been measured, or could not be.
    pub calibrated: Option<Result<Costs, String>>,
}

/// The attached probes.
pub struct Probes {
    kernel: Kernel,
    ring: Ring,
    counters: Counters,
    units: Vec<Fitted>,
    /// Of each unit and, behind them, of the looks at wake-ups.
    governor: Governor,
    wakes: WakeUps,
    costs: Costs,
    calibrates: bool,
    calibration: Option<Receiver<Result<Costs, String>>>,
    cpu: CpuMeter,
    hits_before: Box<Hits>,
    fired_ns: Vec<Option<u64>>,
    unreadable: Vec<u64>,
    tally: Tally,
    harvested_ns: u64,
    latency_before: Box<Latencies>,
    lost_before: u64,
    process: Process,
    forks: bool,
    marks: bool,
    resources: Vec<String>,
}

impl Probes {
    /// Loads the kernel half and attaches the calm set to the process. All or nothing: on an error nothing stays.
    ///
    /// # Errors
    /// When the kernel refuses a program or a probe, or no probe of the calm set has a place.
    pub fn attach(resolved: &Resolved, now_ns: u64) -> Result<Self> {
        let planned = plan(resolved)?;
        if !planned.iter().any(|unit| unit.unit.level == Level::Calm) {
            bail!(
                "no probe of the calm set can be attached; see `atropos check --pid {}`",
                resolved.process.pid()
            );
        }
        let (mut kernel, ring, counters) = Kernel::load()?;
        watch(&mut kernel, resolved)?;
        let preset = &resolved.preset;
        let unit_count = planned.len();
        let units = planned.iter().map(|planned| planned.unit.clone());
        let units = units.chain([wakes::unit()]).collect();
        let fitted = planned.into_iter().map(Fitted::new);
        let resources = preset.resources.iter();
        let mut probes = Self {
            kernel,
            ring,
            counters,
            units: fitted.collect(),
            governor: Governor::new(preset.budget, units, now_ns),
            wakes: WakeUps::new(),
            costs: Costs::default(),
            calibrates: preset.calibrate,
            calibration: None,
            cpu: CpuMeter::new(&resolved.process, preset.matching.forks),
            hits_before: Box::new([0; MAX_SITES as usize]),
            fired_ns: vec![None; MAX_SITES as usize],
            unreadable: vec![0; MAX_SITES as usize],
            tally: Tally::new(unit_count),
            harvested_ns: now_ns,
            latency_before: Box::new([0; BUCKETS]),
            lost_before: 0,
            process: resolved.process.clone(),
            forks: preset.matching.forks,
            marks: preset.matching.marks,
            resources: resources
                .map(|resource| resource.name.value.clone())
                .collect(),
        };
        for unit in &mut probes.units {
            if unit.planned.unit.level == Level::Calm {
                unit.attach(&mut probes.kernel)?;
            }
        }
        Ok(probes)
    }

    /// Measures in the background what a passing costs on this machine, if the preset wants that; until then, and where it
    /// cannot be measured, numbers of another one stand in.
    pub fn calibrate(&mut self) {
        if !self.calibrates {
            return;
        }
        let (send, receive) = channel();
        std::thread::spawn(move || {
            let measured = calibrate(clock::thread_cpu_ns, clock::monotonic_ns)
                .map_err(|error| format!("{error:#}"));
            // Nobody waits for it any more if the run is over.
            let _ = send.send(measured);
            give_back_heap();
        });
        self.calibration = Some(receive);
    }

    /// Whether it is still being measured what a passing costs.
    pub fn is_calibrating(&self) -> bool {
        self.calibration.is_some()
    }

    /// What a passing costs, as far as it is known.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Changes the level. The fuller set is on its way when this returns; [`Self::harvest`] sees it through, and tells of
    /// probes that the kernel refuses: all others stay.
    ///
    /// # Errors
    /// When a map of the kernel half cannot be read.
    pub fn set_level(&mut self, level: Level, now_ns: u64) -> Result<()> {
        self.governor.enter(level, now_ns);
        self.fit(now_ns)
    }

    /// The desk where orders are put down for threads to find; nothing if the preset names no place that this process has.
    /// There is one.
    ///
    /// # Errors
    /// When the kernel refuses the program, or there are more sites than the kernel half has room for.
    pub fn desk(&mut self, resolved: &Resolved) -> Result<Option<Orders>> {
        let taken: usize = self.units.iter().map(|unit| unit.planned.sites.len()).sum();
        let places = resolved.order_places.iter().flatten();
        let mut sites = Vec::new();
        for (place, site) in places.flat_map(|place| place.sites.iter().map(move |s| (place, s))) {
            let cookie = cookie(taken + sites.len(), &place.symbol)?;
            self.kernel.say(cookie, &site.spec)?;
            sites.push(OrderSite {
                cookie,
                file: resolved.held.path(&place.file),
                offset: site.site.file_offset,
                semaphore_offset: site.semaphore_offset,
            });
        }
        if sites.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.kernel.orders()?.at(sites)))
    }

    /// Waits until everything is attached that is on its way, or refused.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn wait(&mut self) -> Result<()> {
        for index in 0..self.units.len() {
            if let Some(since_ns) = self.units[index].wait(&mut self.kernel) {
                self.came(index, since_ns)?;
            }
        }
        Ok(())
    }

    /// Takes what has come in, and starts or ends a sample when it is time.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn harvest(&mut self, now_ns: u64) -> Result<Harvest> {
        self.settle()?;
        let mut harvest = Harvest::default();
        self.ring.drain(|decoded| harvest.events.push(decoded));
        let exits = harvest
            .events
            .iter()
            .filter(|decoded| decoded.op == Op::Exit);
        let gone: BTreeSet<(u32, u32)> = exits
            .map(|decoded| (decoded.record.pid, decoded.record.tid))
            .collect();
        self.kernel.close_exited(&gone);
        for decoded in harvest.events.iter().filter(|decoded| {
            self.forks && decoded.op == Op::Exit && decoded.record.flags & EventRecord::PROCESS != 0
        }) {
            self.kernel.forget(decoded.record.pid);
        }
        for decoded in &harvest.events {
            let unreadable = self.unreadable.get_mut(usize::from(decoded.record.site));
            if let Some(unreadable) = unreadable
                && decoded.record.flags & EventRecord::ARG_UNKNOWN != 0
            {
                *unreadable += 1;
            }
        }
        harvest.lost = self.watch_headless(&harvest.events)?;
        let lost = self.counters.lost()?.iter().sum::<u64>() + self.ring.unreadable_count();
        harvest.lost += lost - self.lost_before;
        self.lost_before = lost;
        if harvest.lost > 0 {
            self.doubt_open();
        }
        if let Some(since_ns) = self.requests_since_ns() {
            harvest.covered_ns = now_ns.saturating_sub(since_ns.max(self.harvested_ns));
            harvest.latency = self.new_latencies()?;
        }
        harvest.calibrated = self.calibrated();
        harvest.changes = self.govern(now_ns)?;
        harvest.blind = self.blind();
        harvest.refused = self.refused().map(|(_, why)| why.to_owned()).collect();
        self.harvested_ns = now_ns;
        harvest.uses = self.uses(now_ns);
        self.close_ended(&harvest.events);
        if self.marks && self.requests_since_ns().is_none() {
            self.kernel.forget_sessions();
        }
        harvest.kept = self.marks.then(|| self.kept());
        self.fit(now_ns)?;
        Ok(harvest)
    }

    /// Brings the target back into scope if its main thread has left the other threads alone, which looks like its end. What they
    /// did since nobody knows: it counts as one loss, and what was kept until then is forgotten.
    fn watch_headless(&mut self, events: &[Decoded]) -> Result<u64> {
        let pid = self.process.pid();
        let is_end = |decoded: &Decoded| {
            decoded.op == Op::Exit
                && decoded.record.flags & EventRecord::PROCESS != 0
                && decoded.record.pid == pid
        };
        if !events.iter().any(is_end) || !self.process.is_headless() {
            return Ok(0);
        }
        self.kernel.close_uses(|_| true);
        self.kernel.forget_sessions();
        self.kernel.watch(pid, scope(self.forks))?;
        Ok(1)
    }

    /// Whether requests pass probes at present.
    pub fn times_requests(&self) -> bool {
        self.requests_since_ns().is_some()
    }

    /// Since when the request probes have been attached, if they are.
    fn requests_since_ns(&self) -> Option<u64> {
        let mut requests = self.units.iter().filter(|unit| unit.planned.times_requests);
        requests.find_map(Fitted::since_ns)
    }

    fn new_latencies(&mut self) -> Result<Vec<(u16, u64)>> {
        let latencies = self.counters.latencies()?;
        let grown = latencies.iter().zip(self.latency_before.iter()).enumerate();
        let fresh = grown.filter(|(_, (after, before))| after > before);
        let fresh = fresh
            .map(|(bucket, (after, before))| (bucket as u16, after - before))
            .collect();
        *self.latency_before = latencies;
        Ok(fresh)
    }

    /// The measured costs, in the moment in which they come in.
    fn calibrated(&mut self) -> Option<Result<Costs, String>> {
        let measured = match self.calibration.as_ref()?.try_recv() {
            Ok(measured) => measured,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err("the thread that measured is gone".to_owned()),
        };
        self.calibration = None;
        if let Ok(costs) = measured {
            self.costs = costs;
        }
        Some(measured)
    }

    /// Tells the governor what was seen since the harvest before.
    fn govern(&mut self, now_ns: u64) -> Result<Vec<Change>> {
        let hits = self.counters.hits()?;
        let from_ns = self.harvested_ns;
        let mut costs_ns = Vec::with_capacity(self.units.len());
        for (index, unit) in self.units.iter().enumerate() {
            let tick = (from_ns, now_ns);
            let whole = unit
                .since_ns()
                .is_some_and(|since_ns| self.tally.tick(index, since_ns, tick));
            let mut cost_ns = 0;
            for site in &unit.planned.sites {
                let at = usize::from(site.cookie);
                let passings = hits[at].saturating_sub(self.hits_before[at]);
                if passings > 0 {
                    self.fired_ns[at] = Some(now_ns);
                }
                if whole {
                    self.tally.passed(site.cookie, passings);
                }
                cost_ns += self.costs.in_a_server(site.way(), site.work, passings);
            }
            costs_ns.push(whole.then_some(cost_ns));
        }
        let at = usize::from(WAKES_SITE);
        let wake_ups = hits[at].saturating_sub(self.hits_before[at]);
        let looked = self
            .wakes
            .since_ns()
            .filter(|since_ns| *since_ns <= from_ns);
        costs_ns.push(looked.map(|_| wakes::cost_ns(&self.costs, wake_ups)));
        *self.hits_before = hits;
        let cpu_ns = self.cpu.used_ns(now_ns);
        Ok(self.governor.read(&Reading {
            at_ns: now_ns,
            cpu_ns,
            costs_ns: &costs_ns,
        }))
    }

    /// Attaches what the governor wants attached, and detaches the rest.
    fn fit(&mut self, now_ns: u64) -> Result<()> {
        for (index, unit) in self.units.iter_mut().enumerate() {
            let wanted = self.governor.wants(index, now_ns);
            if wanted && unit.is_off(now_ns) {
                if unit.planned.times_requests {
                    self.counters.start_sample(now_ns)?;
                }
                if let Some(keeps) = unit.planned.keeps {
                    close_unseen(&mut self.kernel, keeps);
                }
                unit.begin(&mut self.kernel);
            } else if !wanted {
                unit.detach();
            }
        }
        Ok(())
    }

    /// Takes over what the kernel has attached since.
    fn settle(&mut self) -> Result<()> {
        for index in 0..self.units.len() {
            if let Some(since_ns) = self.units[index].settle(&mut self.kernel) {
                self.came(index, since_ns)?;
            }
        }
        Ok(())
    }

    /// All probes of a unit are there.
    fn came(&mut self, index: usize, since_ns: u64) -> Result<()> {
        self.governor.attached(index, since_ns);
        if self.units[index].planned.sums_use {
            // Who drove out what while some of them were away nobody saw.
            self.counters.forget_units(since_ns)?;
        }
        Ok(())
    }
}

/// What a process in scope brings into it.
fn scope(forks: bool) -> Scope {
    Scope {
        flags: if forks { Scope::FOLLOW_FORKS } else { 0 },
        reserved: 0,
    }
}

/// Brings the process into scope and, where sessions are processes, those that it has forked and will fork.
fn watch(kernel: &mut Kernel, resolved: &Resolved) -> Result<()> {
    let forks = resolved.preset.matching.forks;
    let scope = scope(forks);
    if !we_count_as_the_kernel() {
        bail!(
            "the kernel tells of processes by the machine's numbers, and the agent runs where they mean others (a container with a PID \
             namespace of its own); start it in the machine's: `docker run --pid=host`, `nsenter --target 1 --pid`"
        );
    }
    if let Some(namespace) = resolved.process.pid_namespace()? {
        kernel.count_in(namespace)?;
    }
    if forks {
        kernel.follow_forks()?;
    }
    kernel.watch(resolved.process.pid(), scope)?;
    if forks {
        // After the parent: whoever is forked in between comes into scope by itself.
        for child in resolved.process.children() {
            kernel.watch(child, scope)?;
        }
    }
    Ok(())
}
