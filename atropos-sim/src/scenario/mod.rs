//! A scenario as its file says it. `plan` turns it into what the world runs.

mod load;

use serde::{Deserialize, Serialize};

pub(crate) use load::{
    Class, Client, Fault, FaultKind, Pick, Progress, ReadPages, Send, Step, TakeLock,
};

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// Short name, as in the tables.
    pub(crate) name: String,
    /// Which incident it stands for, where it comes from, and what is left out.
    pub(crate) about: String,
    /// The family that tables group it by.
    pub(crate) family: Family,
    /// How long the load runs.
    pub(crate) duration: String,
    /// Measured from here on: the moment when the trouble begins.
    pub(crate) from: String,
    /// Who is to blame, and what to do about it.
    pub(crate) answer: Answer,
    /// The objective: p99 of requests.
    pub(crate) slo: String,
    /// Whether latencies of completed requests are always seen, or only once trouble is suspected.
    #[serde(default)]
    pub(crate) latency: Coverage,
    /// Cores.
    pub(crate) cores: f64,
    /// The disk, if requests use it.
    pub(crate) disk: Option<Disk>,
    /// A heap that collects its garbage, if the server has one.
    pub(crate) heap: Option<Heap>,
    /// Groups of locks.
    #[serde(default)]
    pub(crate) locks: Vec<Locks>,
    /// Pools of slots.
    #[serde(default)]
    pub(crate) pools: Vec<Pool>,
    /// Caches of pages.
    #[serde(default)]
    pub(crate) caches: Vec<Cache>,
    /// Classes of requests.
    pub(crate) classes: Vec<Class>,
    /// Who sends them.
    pub(crate) clients: Vec<Client>,
    /// What goes wrong outside of the requests.
    #[serde(default)]
    pub(crate) faults: Vec<Fault>,
}

/// Families of scenarios: the paper's four, the hard ones, and those without a culprit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Family {
    /// Locks.
    Synchronisation,
    /// Worker pools and tickets.
    Pool,
    /// Caches and heaps.
    Memory,
    /// Processor and disk.
    System,
    /// Incidents with a trap in them.
    Hard,
    /// Nobody to blame.
    Innocent,
}

/// The right answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// Classes that may be ended; ending any other is wrong.
    #[serde(default)]
    pub(crate) culprits: Vec<String>,
    /// What to do.
    pub(crate) action: RightAction,
}

/// What to do about an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum RightAction {
    /// End the statement.
    Stmt,
    /// End the session.
    Session,
    /// End the queued exclusive request.
    Waiter,
    /// Act on all requests of one principal.
    Group,
    /// Nothing.
    None,
    /// Tell, and change nothing.
    Alert,
}

/// When latencies of completed requests are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Coverage {
    /// At every tick.
    #[default]
    Always,
    /// While trouble is suspected.
    Suspect,
}

/// A disk.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Disk {
    /// Operations served at once.
    pub(crate) channels: usize,
    /// Time to read one page.
    pub(crate) page: String,
}

/// A heap.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Heap {
    /// Its size.
    pub(crate) mbytes: f64,
    /// Share of it in use from which collection costs processor time; at full heap it takes 95 % of it.
    pub(crate) pressure: f64,
}

/// A group of locks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Locks {
    /// Name.
    pub(crate) name: String,
    /// How many.
    #[serde(default = "one")]
    pub(crate) count: usize,
    /// The kernel half cannot see it.
    #[serde(default)]
    pub(crate) blind: bool,
}

fn one() -> usize {
    1
}

/// A pool.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// Name.
    pub(crate) name: String,
    /// Slots.
    pub(crate) slots: usize,
    /// How many may wait.
    #[serde(default = "unbounded")]
    pub(crate) queue: usize,
}

fn unbounded() -> usize {
    usize::MAX
}

/// A cache.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cache {
    /// Name.
    pub(crate) name: String,
    /// Pages that fit.
    pub(crate) pages: usize,
    /// Pages that exist.
    pub(crate) of: usize,
    /// These pages are in at the start.
    #[serde(default)]
    pub(crate) warm: u64,
}
