//! Loads the kernel half and owns it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use atropos_common::limits::KNOWN_BLOCK;
use atropos_common::namespace::PidNamespace;
use atropos_common::record::{OpenKey, OpenValue, SessionKey, SessionValue, UsageKey, UsageValue};
use atropos_common::scope::Scope;
use atropos_common::site::SiteSpec;
use aya::maps::{Array, HashMap, MapData};

use super::counters::Counters;
use super::event::{self, Spot};
use super::half::{Half, ProgramStat};
use super::multi::{MultiProgram, MultiSite, Prepared};
use super::orders::Orders;
use super::ring::Ring;
use super::site::{SiteAt, SiteLink};
use super::sys::EventLink;
use super::tracepoint;
use super::wakes::Wakes;

/// The object that `build.rs` made of `atropos-ebpf`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/atropos-ebpf"));

/// The program that runs at sites.
const SITE: &str = "site";

/// The loaded kernel half.
pub struct Kernel {
    half: Half,
    /// Nothing on kernels that know no links of many sites.
    multi: Option<Arc<MultiProgram>>,
    sites: Array<MapData, SiteSpec>,
    scope: HashMap<MapData, u32, Scope>,
    known: Array<MapData, [u8; KNOWN_BLOCK as usize]>,
    namespace: Array<MapData, PidNamespace>,
    sessions: HashMap<MapData, SessionKey, SessionValue>,
    open: HashMap<MapData, OpenKey, OpenValue>,
    uses: HashMap<MapData, UsageKey, UsageValue>,
    /// What follows exits and forks.
    followers: Vec<EventLink>,
}

impl Kernel {
    /// Loads the programs and maps and starts to follow exits. Nothing of the target is touched.
    ///
    /// # Errors
    /// When the kernel refuses a program or a map; the message carries the end of the verifier's log.
    pub fn load() -> Result<(Self, Ring, Counters)> {
        let mut half = Half::new(OBJECT)?;
        let ring = Ring::new(half.take_map("EVENTS")?)?;
        let counters = Counters::new(|name| half.take_map(name))?;
        let mut kernel = Self::start(half)?;
        let program = kernel.half.program("task_exit")?;
        let exits = tracepoint::attach_raw(program, c"sched_process_exit")?;
        kernel.followers.push(exits);
        Ok((kernel, ring, counters))
    }

    /// Loads a second kernel half to which nobody listens and that follows no exits: nothing of a calibration shows in the books of
    /// the one that watches the target, and the pages of its ring are nobody's memory.
    pub(super) fn load_unheard() -> Result<Self> {
        Self::start(Half::new(OBJECT)?)
    }

    fn start(mut half: Half) -> Result<Self> {
        let sites = Array::try_from(half.take_map("SITES")?).context("map SITES")?;
        let scope = HashMap::try_from(half.take_map("SCOPE")?).context("map SCOPE")?;
        let known = Array::try_from(half.take_map("KNOWN")?).context("map KNOWN")?;
        let namespace = Array::try_from(half.take_map("NAMESPACE")?).context("map NAMESPACE")?;
        let sessions = HashMap::try_from(half.take_map("SESSIONS")?).context("map SESSIONS")?;
        let open = HashMap::try_from(half.take_map("OPEN")?).context("map OPEN")?;
        let uses = HashMap::try_from(half.take_map("USES")?).context("map USES")?;
        let multi = match half.program_for_many(SITE) {
            Ok(program) => Some(Arc::new(MultiProgram::new(program.try_clone_to_owned()?))),
            // What the kernel has against the program itself it says here.
            Err(_) => half.program(SITE).map(|_| None)?,
        };
        Ok(Self {
            half,
            multi,
            sites,
            scope,
            known,
            namespace,
            sessions,
            open,
            uses,
            followers: Vec::new(),
        })
    }

    /// Follows forks as well: children of processes in scope come into scope. Needs tracefs.
    pub fn follow_forks(&mut self) -> Result<()> {
        let program = self.half.program("task_new")?;
        #[cfg(feature = "bpf-log")]
        super::log::start(program)?;
        let forks = tracepoint::attach(program, "task", "task_newtask")?;
        self.followers.push(forks);
        Ok(())
    }

    /// Brings a process into scope.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn watch(&mut self, pid: u32, scope: Scope) -> Result<()> {
        self.scope
            .insert(pid, scope, 0)
            .with_context(|| format!("cannot bring process {pid} into scope"))
    }

    /// Says that the target counts its processes and threads in a namespace of its own. Before the first site is attached.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn count_in(&mut self, namespace: PidNamespace) -> Result<()> {
        self.namespace
            .set(0, namespace, 0)
            .context("cannot write map NAMESPACE")
    }

    /// Takes a process out of scope; one that is not in scope is no error.
    pub fn forget(&mut self, pid: u32) {
        let _ = self.scope.remove(&pid);
        // The others of the block are looked up again at their next passing.
        let _ = self
            .known
            .set(pid / KNOWN_BLOCK, [0; KNOWN_BLOCK as usize], 0);
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
        sites.iter().map(|site| self.attach(site)).collect()
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

    /// Says what a site means and attaches it; the kernel raises its semaphore, if it has one, for as long.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn attach(&mut self, site: &SiteAt<'_>) -> Result<SiteLink> {
        self.say(site.cookie, &site.spec)?;
        // For every process that maps the file: the kernel half checks the scope itself, so that forked children count at once.
        let spot = Spot {
            cookie: site.cookie,
            file: site.file,
            offset: site.offset,
            semaphore_offset: site.semaphore_offset,
            pid: None,
        };
        event::attach(self.half.program(SITE)?, &spot).map(SiteLink::from)
    }

    /// The desk where orders are put down for threads to find. There is one.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the desk was taken before.
    pub fn orders(&mut self) -> Result<Orders> {
        let map = self.half.take_map("ORDERS")?;
        let program = self.half.program("order")?;
        Orders::new(map, program.as_fd().try_clone_to_owned()?)
    }

    /// The program that does nothing, for links of many sites.
    ///
    /// # Errors
    /// On kernels that have no such links.
    pub(super) fn nothing(&mut self) -> Result<MultiProgram> {
        let program = self.half.program_for_many("nothing")?;
        Ok(MultiProgram::new(program.try_clone_to_owned()?))
    }

    /// The watch over who of the processes in scope wakes whom. There is one.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the watch was taken before.
    pub fn wakes(&mut self) -> Result<Wakes> {
        let map = self.half.take_map("WAKES")?;
        let program = self.half.program("waking")?;
        Wakes::new(map, program.as_fd().try_clone_to_owned()?)
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
        self.half.stats()
    }
}
