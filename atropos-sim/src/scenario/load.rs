//! The load of a scenario: classes of requests, what they do, who sends them, and what else goes wrong.

use serde::Deserialize;

/// A class of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property that a file names"
)]
pub(crate) struct Class {
    /// Name; also the statement's fingerprint.
    pub(crate) name: String,
    /// Whose requests they are.
    #[serde(default = "app")]
    pub(crate) principal: String,
    /// The preset calls the class so, and protects it.
    #[serde(default)]
    pub(crate) protected: bool,
    /// The preset protects it even while it is only queued.
    #[serde(default)]
    pub(crate) protected_queued: bool,
    /// The preset knows it as a class that is not protected (`write`, `ddl`).
    #[serde(default)]
    pub(crate) named: bool,
    /// Seconds of undo for each second of work.
    #[serde(default)]
    pub(crate) undo: f64,
    /// Nobody waits for the answer: cancelled, it is run again after so long at the latest.
    pub(crate) background: Option<String>,
    /// From the server's acceptance of a command to the task's notice.
    #[serde(default = "notice")]
    pub(crate) notice: String,
    /// It never notices.
    #[serde(default)]
    pub(crate) deaf: bool,
    /// What the server tells of its progress.
    #[serde(default)]
    pub(crate) progress: Progress,
    /// What it does.
    pub(crate) steps: Vec<Step>,
}

fn app() -> String {
    "app".to_owned()
}

fn notice() -> String {
    "~10ms".to_owned()
}

/// What a server tells of a request's progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Progress {
    /// Nothing.
    #[default]
    #[serde(rename = "missing")]
    Missing,
    /// The truth.
    #[serde(rename = "right")]
    Right,
    /// A tenth of it.
    #[serde(rename = "x0.1")]
    Tenth,
    /// Ten times it.
    #[serde(rename = "x10")]
    Tenfold,
    /// Always 5 %.
    #[serde(rename = "stuck")]
    Stuck,
}

/// What a request does.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Step {
    /// Computes.
    Cpu(String),
    /// Computes on several threads at once.
    Spread(Spread),
    /// Begins to keep old versions of rows alive, until it ends.
    Snapshot,
    /// Walks old versions: so much work for each second of age of the oldest snapshot.
    Versions(String),
    /// Waits for something outside.
    Sleep(String),
    /// Is idle with its transaction open.
    Idle(String),
    /// Uses the disk directly, for a log write or the like.
    Disk(String),
    /// Takes a lock.
    Lock(TakeLock),
    /// Lets all locks of a group go.
    Unlock(String),
    /// Reads pages.
    Read(ReadPages),
    /// Takes a slot.
    Enter(String),
    /// Gives the slot back.
    Leave(String),
    /// Takes heap, until it ends, mbytes.
    Alloc(f64),
    /// Does something again and again.
    Repeat(Repeat),
}

/// Which lock to take.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TakeLock {
    /// The group.
    pub(crate) of: String,
    /// Which one.
    #[serde(default)]
    pub(crate) pick: Pick,
    /// Alone, or with others.
    #[serde(default)]
    pub(crate) shared: bool,
}

/// Which lock of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pick {
    /// A random one.
    #[default]
    Any,
    /// Every one, in order.
    All,
    /// This one.
    Number(usize),
}

/// Which pages to read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadPages {
    /// The cache.
    pub(crate) of: String,
    /// How many.
    pub(crate) pages: u32,
    /// Out of these: the first.
    #[serde(default)]
    pub(crate) from: u64,
    /// ... and the one behind the last.
    pub(crate) to: u64,
    /// One after the other from the first, rather than at random.
    #[serde(default)]
    pub(crate) scan: bool,
    /// How many are asked of the disk at once.
    #[serde(default = "super::one")]
    pub(crate) ahead: usize,
    /// A page that is not there is computed for so long, rather than read from disk.
    pub(crate) miss: Option<String>,
}

/// Parallel work.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spread {
    /// Work of all threads together.
    pub(crate) cpu: String,
    /// Threads.
    pub(crate) threads: u32,
}

/// Steps again and again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repeat {
    /// How often.
    pub(crate) times: usize,
    /// What.
    pub(crate) steps: Vec<Step>,
}

/// A source of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client {
    /// Class of its requests.
    pub(crate) class: String,
    /// When they come.
    pub(crate) send: Send,
    /// From when on.
    #[serde(default = "zero")]
    pub(crate) from: String,
    /// Until when.
    pub(crate) to: Option<String>,
    /// It is the trouble: the reference run is without it.
    #[serde(default)]
    pub(crate) injected: bool,
    /// Changes of its rate.
    #[serde(default)]
    pub(crate) shape: Vec<Bend>,
    /// Gives up on an answer after this long; the server does not know.
    pub(crate) patience: Option<String>,
    /// Attempts after the first.
    #[serde(default)]
    pub(crate) retries: u32,
    /// Pause before the first retry; doubles with each.
    #[serde(default = "backoff")]
    pub(crate) backoff: String,
}

fn zero() -> String {
    "0s".to_owned()
}

fn backoff() -> String {
    "100ms".to_owned()
}

/// When requests come.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Send {
    /// At random, so many a second.
    Poisson(f64),
    /// Evenly, so many a second.
    Even(f64),
    /// Each of so many sends the next one after a pause.
    Closed {
        /// How many.
        clients: usize,
        /// The pause.
        think: String,
    },
    /// At these moments.
    At(Vec<String>),
}

/// From a moment on, the rate is so many times what it says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bend {
    /// From when on.
    pub(crate) at: String,
    /// How many times.
    pub(crate) factor: f64,
}

/// Something goes wrong outside of the requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// What.
    pub(crate) kind: FaultKind,
    /// From when on.
    pub(crate) at: String,
    /// For how long.
    pub(crate) lasts: String,
    /// Again after so long, until the end.
    pub(crate) every: Option<String>,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum FaultKind {
    /// The disk is so many times slower.
    SlowDisk(f64),
    /// Nobody runs.
    Pause,
}
