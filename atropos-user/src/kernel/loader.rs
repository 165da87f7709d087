//! Loads the kernel half and owns it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use atropos_common::namespace::PidNamespace;
use atropos_common::record::{OpenKey, OpenValue, SessionKey, SessionValue, UsageKey, UsageValue};
use atropos_common::scope::Scope;
use atropos_common::site::SiteSpec;
use aya::maps::{Array, HashMap, Map, MapData};
use aya::programs::{BtfTracePoint, TracePoint, UProbe};
use aya::{Btf, Ebpf, EbpfLoader};

use super::counters::Counters;
use super::event::{self, Spot};
use super::heap::apart;
use super::multi::{MultiProgram, MultiSite, Prepared};
use super::orders::Orders;
use super::ring::Ring;
use super::site::{self, SiteAt, SiteLink};
use super::wakes::Wakes;

/// The object that `build.rs` made of `atropos-ebpf`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/atropos-ebpf"));

/// The loaded kernel half.
pub struct Kernel {
    ebpf: Ebpf,
    /// Nothing on kernels that know no links of many sites.
    multi: Option<Arc<MultiProgram>>,
    sites: Array<MapData, SiteSpec>,
    scope: HashMap<MapData, u32, Scope>,
    namespace: Array<MapData, PidNamespace>,
    sessions: HashMap<MapData, SessionKey, SessionValue>,
    open: HashMap<MapData, OpenKey, OpenValue>,
    uses: HashMap<MapData, UsageKey, UsageValue>,
}

/// The kernel half, its ring, and its sums.
pub type Loaded = (Kernel, Ring, Counters);

/// A kernel half that watches nobody: its site program and its maps, so that nothing of a calibration shows in those of the
/// one that watches the target.
pub struct Spare(pub(super) Kernel);

/// Size of one program as the verifier counted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStat {
    /// Its name.
    pub name: String,
    /// Instructions that the verifier walked, over all paths.
    pub verified_instructions: u32,
}

impl Kernel {
    /// Loads the programs and maps and starts to follow exits. Nothing of the target is touched.
    ///
    /// # Errors
    /// When the kernel refuses a program or a map; the message carries the end of the verifier's log.
    pub fn load() -> Result<Loaded> {
        let (loaded, _) = apart(|| Self::load_here(false))?;
        Ok(loaded)
    }

    /// Loads as [`Self::load`] does, and a second kernel half on which to calibrate: the loader reads the kernel's types,
    /// some 25 MB, once for both.
    ///
    /// # Errors
    /// As [`Self::load`]. What speaks against the second one is no error yet.
    pub fn load_with_spare() -> Result<(Loaded, Result<Spare>)> {
        let (loaded, spare) = apart(|| Self::load_here(true))?;
        Ok((
            loaded,
            spare.context("no second kernel half was loaded").flatten(),
        ))
    }

    fn load_here(with_spare: bool) -> Result<(Loaded, Option<Result<Spare>>)> {
        let mut loader = EbpfLoader::new();
        // The loader begins with a copy of its own of the kernel's types, some 25 MB: let it go before ours is read.
        loader.btf(None);
        let btf = Btf::from_sys_fs().context(
            "cannot read the kernel's type information from /sys/kernel/btf/vmlinux; a kernel built with CONFIG_DEBUG_INFO_BTF is needed",
        )?;
        let loader = loader.btf(Some(&btf));
        let (mut kernel, ring, counters) = Self::open(loader)?;
        let exit: &mut BtfTracePoint = kernel.program("task_exit")?;
        exit.load("sched_process_exit", &btf)
            .map_err(|e| refused("task_exit", &e))?;
        exit.attach()
            .context("cannot attach to the tracepoint sched_process_exit")?;
        let spare = with_spare.then(|| Self::open(loader).map(|(kernel, ..)| Spare(kernel)));
        Ok(((kernel, ring, counters), spare))
    }

    /// Makes the maps and loads the site program.
    fn open(loader: &mut EbpfLoader<'_>) -> Result<Loaded> {
        let mut ebpf = loader.load(OBJECT).context("cannot load the kernel half")?;
        #[cfg(feature = "bpf-log")]
        super::log::start(&mut ebpf)?;
        let multi = MultiProgram::load(OBJECT, &ebpf).ok().map(Arc::new);
        let mut take = |name: &'static str| -> Result<Map> {
            ebpf.take_map(name)
                .ok_or_else(|| anyhow!("the kernel half has no map {name}"))
        };
        let ring = Ring::new(take("EVENTS")?)?;
        let sites = Array::try_from(take("SITES")?).context("map SITES")?;
        let scope = HashMap::try_from(take("SCOPE")?).context("map SCOPE")?;
        let namespace = Array::try_from(take("NAMESPACE")?).context("map NAMESPACE")?;
        let sessions = HashMap::try_from(take("SESSIONS")?).context("map SESSIONS")?;
        let open = HashMap::try_from(take("OPEN")?).context("map OPEN")?;
        let uses = HashMap::try_from(take("USES")?).context("map USES")?;
        let counters = Counters::new(take)?;
        let mut kernel = Self {
            ebpf,
            multi,
            sites,
            scope,
            namespace,
            sessions,
            open,
            uses,
        };
        kernel
            .site_program()?
            .load()
            .map_err(|e| refused("site", &e))?;
        Ok((kernel, ring, counters))
    }

    /// Follows forks as well: children of processes in scope come into scope. Needs tracefs.
    pub fn follow_forks(&mut self) -> Result<()> {
        let program: &mut TracePoint = self.program("task_new")?;
        program.load().map_err(|e| refused("task_new", &e))?;
        program.attach("task", "task_newtask").context(
            "cannot attach to the tracepoint task:task_newtask; is tracefs mounted? (mount -t tracefs tracefs /sys/kernel/tracing)",
        )?;
        Ok(())
    }

    /// Brings a process into scope.
    pub fn watch(&mut self, pid: u32, scope: Scope) -> Result<()> {
        self.scope
            .insert(pid, scope, 0)
            .with_context(|| format!("cannot bring process {pid} into scope"))
    }

    /// Says that the target counts its processes and threads in a namespace of its own. Before the first site is attached.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn count_in(&mut self, device: u64, inode: u64) -> Result<()> {
        let namespace = PidNamespace { device, inode };
        self.namespace
            .set(0, namespace, 0)
            .context("cannot write map NAMESPACE")
    }

    /// Takes a process out of scope; one that is not in scope is no error.
    pub fn forget(&mut self, pid: u32) {
        let _ = self.scope.remove(&pid);
    }

    /// Processes in scope.
    pub fn watched(&self) -> Vec<u32> {
        self.scope.keys().filter_map(Result::ok).collect()
    }

    /// Says what sites mean and attaches them: those of one file by one link, where the kernel can.
    ///
    /// # Errors
    /// When the kernel refuses one of them; then none of them stays.
    pub fn attach_all(&mut self, sites: &[SiteAt<'_>]) -> Result<Vec<SiteLink>> {
        // What the kernel refuses as a whole is tried site by site, which tells what it refuses.
        if let Some(prepared) = self.prepare(sites)?
            && let Ok(links) = prepared.attach()
        {
            return Ok(links);
        }
        let one = |site: &SiteAt<'_>| match site.semaphore_offset {
            None => self.attach(site.cookie, &site.spec, site.file, site.offset),
            Some(semaphore) => {
                self.attach_usdt(site.cookie, &site.spec, site.file, site.offset, semaphore)
            }
        };
        sites.iter().map(one).collect()
    }

    /// Says what sites mean, to be attached on another thread; nothing where the kernel knows no links of many sites.
    ///
    /// # Errors
    /// When the map of sites cannot be written.
    pub fn prepare(&mut self, sites: &[SiteAt<'_>]) -> Result<Option<Prepared>> {
        let Some(program) = self.multi.clone() else {
            return Ok(None);
        };
        let mut files: BTreeMap<&Path, Vec<MultiSite>> = BTreeMap::new();
        for site in sites {
            self.say(site.cookie, &site.spec)?;
            files.entry(site.file).or_default().push(MultiSite {
                offset: site.offset,
                semaphore_offset: site.semaphore_offset.unwrap_or(0),
                cookie: u64::from(site.cookie),
            });
        }
        let files = files
            .into_iter()
            .map(|(file, sites)| (file.to_owned(), sites));
        Ok(Some(Prepared {
            program,
            files: files.collect(),
        }))
    }

    /// Says what a site means and attaches it.
    pub fn attach(
        &mut self,
        cookie: u16,
        spec: &SiteSpec,
        file: &Path,
        offset: u64,
    ) -> Result<SiteLink> {
        self.say(cookie, spec)?;
        site::attach(self.site_program()?, cookie, file, offset)
    }

    /// Says what a USDT site means and attaches it; the kernel raises its semaphore for as long.
    pub fn attach_usdt(
        &mut self,
        cookie: u16,
        spec: &SiteSpec,
        file: &Path,
        offset: u64,
        semaphore_offset: u64,
    ) -> Result<SiteLink> {
        self.say(cookie, spec)?;
        let program = self
            .site_program()?
            .fd()
            .context("program site is not loaded")?;
        let spot = Spot {
            cookie,
            file,
            offset,
            semaphore_offset: Some(semaphore_offset),
            pid: None,
        };
        event::attach(program.as_fd(), &spot).map(SiteLink::from)
    }

    /// The desk where orders are put down for threads to find. There is one.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the desk was taken before.
    pub fn orders(&mut self) -> Result<Orders> {
        let map = self
            .ebpf
            .take_map("ORDERS")
            .ok_or_else(|| anyhow!("the map ORDERS was taken before"))?;
        let program: &mut UProbe = self.program("order")?;
        program.load().map_err(|e| refused("order", &e))?;
        let program = program.fd().context("program order is not loaded")?;
        Orders::new(map, program.as_fd().try_clone_to_owned()?)
    }

    /// Watches who of the processes in scope wakes whom, until the watch is dropped. There is one. Every wake-up of the machine
    /// runs a program meanwhile, so it is for short looks.
    ///
    /// # Errors
    /// When the kernel refuses the program or has no such tracepoint, or the watch was taken before.
    pub fn wakes(&mut self) -> Result<Wakes> {
        let map = self
            .ebpf
            .take_map("WAKES")
            .ok_or_else(|| anyhow!("the map WAKES was taken before"))?;
        let program: &mut TracePoint = self.program("waking")?;
        program.load().map_err(|e| refused("waking", &e))?;
        let id = program.attach("sched", "sched_waking").context(
            "cannot attach to the tracepoint sched:sched_waking; is tracefs mounted? (mount -t tracefs tracefs /sys/kernel/tracing)",
        )?;
        let link = program
            .take_link(id)
            .context("the kernel half lost a link it had just made")?;
        Wakes::new(map, link)
    }

    /// Says what a site means, before it is attached.
    pub fn say(&mut self, cookie: u16, spec: &SiteSpec) -> Result<()> {
        let active = SiteSpec {
            flags: spec.flags | SiteSpec::ACTIVE,
            ..*spec
        };
        self.sites
            .set(u32::from(cookie), active, 0)
            .context("cannot write map SITES")
    }

    /// Closes what the kernel half still has open of threads that are gone, given by process and thread. However many they
    /// are, each map is walked once.
    pub fn close_exited(&mut self, gone: &BTreeSet<(u32, u32)>) {
        if gone.is_empty() {
            return;
        }
        for (key, value) in self.sessions() {
            if gone.contains(&(key.pid, value.tid)) {
                let _ = self.sessions.remove(&key);
            }
        }
        self.close_open(|(key, value)| gone.contains(&(key.pid, value.tid)));
        self.close_uses(|(key, value)| gone.contains(&(key.pid, value.tid)));
    }

    /// Forgets what sessions that are gone used.
    pub fn close_uses(&mut self, is_gone: impl Fn(&(UsageKey, UsageValue)) -> bool) {
        for (key, _) in self.uses().iter().filter(|used| is_gone(used)) {
            let _ = self.uses.remove(key);
        }
    }

    /// What sessions use of resources with limited room: running sums.
    pub fn uses(&self) -> Vec<(UsageKey, UsageValue)> {
        self.uses.iter().filter_map(Result::ok).collect()
    }

    /// Closes waits and holds of which it turned out that they have ended. One that ends and begins again in between is lost: its
    /// end then counts as one without a begin.
    pub fn close_open(&mut self, has_ended: impl Fn(&(OpenKey, OpenValue)) -> bool) {
        for open in self.open_intervals().iter().filter(|open| has_ended(open)) {
            let _ = self.open.remove(&open.0);
        }
    }

    /// Waits and holds open at this moment.
    pub fn open_intervals(&self) -> Vec<(OpenKey, OpenValue)> {
        self.open.iter().filter_map(Result::ok).collect()
    }

    /// Sessions that the kernel half knows, with their requests.
    pub fn sessions(&self) -> Vec<(SessionKey, SessionValue)> {
        self.sessions.iter().filter_map(Result::ok).collect()
    }

    /// Forgets every session, since what became of them was not seen.
    pub fn forget_sessions(&mut self) {
        for (key, _) in self.sessions() {
            let _ = self.sessions.remove(&key);
        }
    }

    /// One session's request.
    pub fn session(&self, key: &SessionKey) -> Option<SessionValue> {
        self.sessions.get(key, 0).ok()
    }

    /// How many sessions the kernel half knows.
    pub fn session_count(&self) -> usize {
        self.sessions.keys().filter_map(Result::ok).count()
    }

    /// Sizes of the programs that are loaded, by name.
    pub fn program_stats(&self) -> Vec<ProgramStat> {
        let mut stats: Vec<_> = self
            .ebpf
            .programs()
            .filter_map(|(name, program)| {
                let verified_instructions = program.info().ok()?.verified_instruction_count()?;
                Some(ProgramStat {
                    name: name.to_owned(),
                    verified_instructions,
                })
            })
            .collect();
        stats.sort_by(|a, b| a.name.cmp(&b.name));
        stats
    }

    fn site_program(&mut self) -> Result<&mut UProbe> {
        self.program("site")
    }

    fn program<'a, P>(&'a mut self, name: &str) -> Result<&'a mut P>
    where
        &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = aya::programs::ProgramError>,
    {
        let program = self
            .ebpf
            .program_mut(name)
            .ok_or_else(|| anyhow!("the kernel half has no program {name}"))?;
        program
            .try_into()
            .with_context(|| format!("program {name} is of another type than the agent thinks"))
    }
}

/// The error of a refused program: the cause, and the last lines of the verifier's log.
fn refused(name: &str, error: &aya::programs::ProgramError) -> anyhow::Error {
    const LOG_LINES: usize = 20;
    if let aya::programs::ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    {
        let log = verifier_log.to_string();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        return anyhow!("the kernel refused program {name}: {io_error}\n{tail}");
    }
    anyhow!("the kernel refused program {name}: {error}")
}
