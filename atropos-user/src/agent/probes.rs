//! The probe sets of the two levels, attached to one process.
//!
//! Calm: probes that fire only when somebody already waits, and for a short time now and then those of the requests, to
//! learn what is normal. Suspect: all of them. Links that go are dropped on a thread of their own, since detaching waits
//! for the kernel.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use atropos_common::histogram::BUCKETS;
use atropos_common::limits::{Loss, MAX_SITES};
use atropos_common::op::Op;
use atropos_common::record::{OpenKey, OpenValue, SessionKey};
use atropos_common::scope::Scope;
use atropos_common::site::SiteSpec;

use super::kept::Kept;
use super::resolve::{PlacedSite, Resolved};
use crate::config::Sample;
use crate::engine::input::Activity;
use crate::engine::record::{Level, Task};
use crate::kernel::{Counters, Decoded, Kernel, Latencies, OrderSite, Orders, Ring, SiteLink};

/// How often waits that have ended without a word are looked for.
const SWEEP_EVERY_NS: u64 = 5_000_000_000;

/// A site that can be attached.
struct Planned {
    /// Its probe; a USDT probe may have several sites.
    name: String,
    cookie: u16,
    level: Level,
    sample: Option<Sample>,
    file: PathBuf,
    site: PlacedSite,
    /// Its passings are counted in the kernel and not sent.
    counted: bool,
}

/// Probes that are attached for a while.
struct Attached {
    links: Vec<SiteLink>,
    since_ns: u64,
    /// When a sample ends; nothing while the level is suspect.
    until_ns: Option<u64>,
}

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
}

/// The attached probes.
pub struct Probes {
    kernel: Kernel,
    ring: Ring,
    counters: Counters,
    planned: Vec<Planned>,
    _calm: Vec<SiteLink>,
    full: Option<Attached>,
    level: Level,
    next_sample_ns: u64,
    next_sweep_ns: u64,
    harvested_ns: u64,
    latency_before: Latencies,
    lost_before: u64,
    forks: bool,
    marks: bool,
}

impl Probes {
    /// Loads the kernel half and attaches the calm set to the process. All or nothing: on an error nothing stays.
    ///
    /// # Errors
    /// When the kernel refuses a program or a probe, or no probe of the calm set has a place.
    pub fn attach(resolved: &Resolved, now_ns: u64) -> Result<Self> {
        let planned = plan(resolved)?;
        let (mut kernel, ring, counters) = Kernel::load()?;
        watch(&mut kernel, resolved)?;
        let calm = attach_all(
            &mut kernel,
            planned
                .iter()
                .filter(|planned| planned.level == Level::Calm),
        )?;
        if calm.is_empty() {
            bail!(
                "no probe of the calm set can be attached; see `atropos check --pid {}`",
                resolved.process.pid()
            );
        }
        Ok(Self {
            kernel,
            ring,
            counters,
            planned,
            _calm: calm,
            full: None,
            level: Level::Calm,
            next_sample_ns: now_ns,
            next_sweep_ns: now_ns + SWEEP_EVERY_NS,
            harvested_ns: now_ns,
            latency_before: [0; BUCKETS],
            lost_before: 0,
            forks: resolved.preset.matching.forks,
            marks: resolved.preset.matching.marks,
        })
    }

    /// Changes the level.
    ///
    /// # Errors
    /// When the kernel refuses a probe of the fuller set; the calm set stays.
    pub fn set_level(&mut self, level: Level, now_ns: u64) -> Result<()> {
        self.level = level;
        match level {
            Level::Suspect => match self.full.take() {
                Some(mut attached) => {
                    // A sample has some of the probes attached already.
                    if attached.until_ns.take().is_some() {
                        let rest = |planned: &Planned| planned.sample.is_none();
                        attached.links.extend(self.attach_fuller(rest)?);
                    }
                    self.full = Some(attached);
                }
                None => self.full = Some(self.attach_full(now_ns, None, |_| true)?),
            },
            Level::Calm => self.detach_full(),
        }
        Ok(())
    }

    /// The desk where orders are put down for threads to find; nothing if the preset names no place that this process has.
    /// There is one.
    ///
    /// # Errors
    /// When the kernel refuses the program, or there are more sites than the kernel half has room for.
    pub fn desk(&mut self, resolved: &Resolved) -> Result<Option<Orders>> {
        let places = resolved.order_places.iter().flatten();
        let mut sites = Vec::new();
        for (place, site) in places.flat_map(|place| place.sites.iter().map(move |s| (place, s))) {
            let cookie = cookie(self.planned.len() + sites.len(), &place.symbol)?;
            self.kernel.say(cookie, &site.spec)?;
            sites.push(OrderSite {
                cookie,
                file: place.file.clone(),
                offset: site.site.file_offset,
                semaphore_offset: site.semaphore_offset,
            });
        }
        if sites.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.kernel.orders()?.at(sites)))
    }

    /// Takes what has come in, and starts or ends a sample when it is time.
    ///
    /// # Errors
    /// When a map cannot be read or a probe not be attached.
    pub fn harvest(&mut self, now_ns: u64) -> Result<Harvest> {
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
        for (pid, _) in gone.iter().filter(|(pid, tid)| self.forks && pid == tid) {
            self.kernel.forget(*pid);
        }
        let lost = self.counters.lost()?.iter().sum::<u64>() + self.ring.unreadable_count();
        harvest.lost = lost - self.lost_before;
        self.lost_before = lost;
        if let Some(attached) = &self.full {
            harvest.covered_ns = now_ns.saturating_sub(attached.since_ns.max(self.harvested_ns));
            harvest.latency = self.new_latencies()?;
        }
        self.harvested_ns = now_ns;
        self.close_ended(&harvest.events);
        harvest.kept = self.marks.then(|| self.kept());
        self.sample(now_ns)?;
        Ok(harvest)
    }

    /// Passings of each probe so far: name and count.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn hits(&self) -> Result<Vec<(String, u64)>> {
        let hits = self.counters.hits()?;
        let mut found: Vec<(String, u64)> = Vec::new();
        for planned in &self.planned {
            let hits = hits[usize::from(planned.cookie)];
            match found.last_mut() {
                Some((name, sum)) if *name == planned.name => *sum += hits,
                _ => found.push((planned.name.clone(), hits)),
            }
        }
        Ok(found)
    }

    /// Things that could not be kept so far, by cause.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn lost(&self) -> Result<[u64; Loss::COUNT]> {
        self.counters.lost()
    }

    /// A session that said that it is gone has let go of everything.
    fn close_ended(&mut self, events: &[Decoded]) {
        let ended: Vec<SessionKey> = events
            .iter()
            .filter(|decoded| decoded.op == Op::SessionEnd)
            .map(|decoded| SessionKey {
                session: decoded.record.session,
                pid: decoded.record.pid,
                reserved: 0,
            })
            .collect();
        if !ended.is_empty() {
            self.kernel.close_open(|(key, _)| {
                ended
                    .iter()
                    .any(|gone| (gone.session, gone.pid) == (key.session, key.pid))
            });
        }
    }

    /// Whether a session still runs the request, or still runs none, that it had when it was looked at.
    pub fn is_still(&self, task: &Task, pid: u32) -> bool {
        let key = SessionKey {
            session: task.session.0,
            pid,
            reserved: 0,
        };
        self.kernel.session(&key).is_some_and(|now| {
            u64::from(now.generation) == task.request
                && (now.begin_ns != 0) == (task.activity == Activity::Busy)
        })
    }

    /// Forgets waits that the kernel half has open although they have ended, now and then.
    pub fn forget_waits(&mut self, now_ns: u64, has_ended: impl Fn(&(OpenKey, OpenValue)) -> bool) {
        if now_ns >= self.next_sweep_ns {
            self.next_sweep_ns = now_ns + SWEEP_EVERY_NS;
            self.kernel.close_open(has_ended);
        }
    }

    /// What the kernel half keeps at this moment.
    pub fn kept(&self) -> Kept {
        Kept {
            processes: self.kernel.watched(),
            sessions: self.kernel.sessions(),
            open: self.kernel.open_intervals(),
        }
    }

    fn new_latencies(&mut self) -> Result<Vec<(u16, u64)>> {
        let latencies = self.counters.latencies()?;
        let grown = latencies.iter().zip(&self.latency_before).enumerate();
        let fresh = grown.filter(|(_, (after, before))| after > before);
        let fresh = fresh
            .map(|(bucket, (after, before))| (bucket as u16, after - before))
            .collect();
        self.latency_before = latencies;
        Ok(fresh)
    }

    /// Starts a sample in calm when it is time, and ends one.
    fn sample(&mut self, now_ns: u64) -> Result<()> {
        let ended = self
            .full
            .as_ref()
            .and_then(|attached| attached.until_ns)
            .is_some_and(|until| now_ns >= until);
        if ended {
            self.detach_full();
        }
        let sample = self.planned.iter().find_map(|planned| planned.sample);
        let Some(Sample { every, attached }) = sample.filter(|_| self.level == Level::Calm) else {
            return Ok(());
        };
        if self.full.is_none() && now_ns >= self.next_sample_ns {
            self.next_sample_ns = now_ns + ns(every);
            let until_ns = Some(now_ns + ns(attached));
            self.full =
                Some(self.attach_full(now_ns, until_ns, |planned| planned.sample.is_some())?);
        }
        Ok(())
    }

    fn attach_full(
        &mut self,
        now_ns: u64,
        until_ns: Option<u64>,
        wanted: impl Fn(&Planned) -> bool,
    ) -> Result<Attached> {
        self.counters.start_sample(now_ns)?;
        Ok(Attached {
            links: self.attach_fuller(wanted)?,
            since_ns: now_ns,
            until_ns,
        })
    }

    /// Attaches those of the fuller set that are wanted.
    fn attach_fuller(&mut self, wanted: impl Fn(&Planned) -> bool) -> Result<Vec<SiteLink>> {
        let fuller = self
            .planned
            .iter()
            .filter(|planned| planned.level == Level::Suspect && wanted(planned));
        attach_all(&mut self.kernel, fuller)
    }

    fn detach_full(&mut self) {
        if let Some(attached) = self.full.take() {
            std::thread::spawn(move || drop(attached.links));
        }
    }
}

/// Brings the process into scope and, where sessions are processes, those that it has forked and will fork.
fn watch(kernel: &mut Kernel, resolved: &Resolved) -> Result<()> {
    let forks = resolved.preset.matching.forks;
    let scope = Scope {
        flags: if forks { Scope::FOLLOW_FORKS } else { 0 },
        reserved: 0,
    };
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

/// Every probe that has a place, with a cookie of its own. One of the calm set without a place is an error: the preset
/// counts on it. (A USDT probe with several sites has a cookie for each.)
fn plan(resolved: &Resolved) -> Result<Vec<Planned>> {
    let mut planned = Vec::new();
    for resolved_probe in &resolved.probes {
        let probe = &resolved.preset.probes[resolved_probe.probe];
        let name = probe.name.value.clone();
        match &resolved_probe.place {
            Ok(place) => planned.extend(place.sites.iter().map(|site| Planned {
                name: name.clone(),
                cookie: 0,
                level: probe.level,
                sample: probe.sample,
                file: place.file.clone(),
                site: site.clone(),
                counted: is_counted(probe.op, resolved.preset.matching.marks),
            })),
            Err(tried) if probe.level == Level::Calm => {
                return Err(anyhow!(
                    "cannot attach probe `{name}`: {}",
                    tried.join("; ")
                ));
            }
            Err(_) => {}
        }
    }
    for (index, planned) in planned.iter_mut().enumerate() {
        planned.cookie = cookie(index, &planned.name)?;
    }
    Ok(planned)
}

/// Cookie of the site with this index.
fn cookie(index: usize, name: &str) -> Result<u16> {
    u16::try_from(index + 1)
        .ok()
        .filter(|cookie| u32::from(*cookie) < MAX_SITES)
        .with_context(|| {
            format!(
                "cannot attach probe `{name}`: the preset has more sites than the {MAX_SITES} of the kernel half"
            )
        })
}

/// Requests are counted in the kernel; everything else is rare and sent, but for the holds that an application tells by marks,
/// which are read out of the kernel's map.
fn is_counted(op: Op, marks: bool) -> bool {
    match op {
        Op::RequestBegin | Op::RequestEnd => true,
        Op::Acquire | Op::Release => marks,
        _ => false,
    }
}

fn attach_all<'a>(
    kernel: &mut Kernel,
    planned: impl Iterator<Item = &'a Planned>,
) -> Result<Vec<SiteLink>> {
    planned
        .map(|planned| {
            let PlacedSite {
                site,
                semaphore_offset,
                spec,
            } = &planned.site;
            let spec = SiteSpec {
                flags: if planned.counted { 0 } else { SiteSpec::EMIT },
                ..*spec
            };
            let (cookie, file) = (planned.cookie, &planned.file);
            match semaphore_offset {
                None => kernel.attach(cookie, &spec, file, site.file_offset),
                Some(semaphore) => {
                    kernel.attach_usdt(cookie, &spec, file, site.file_offset, *semaphore)
                }
            }
            .with_context(|| format!("cannot attach probe `{}`", planned.name))
        })
        .collect()
}

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
