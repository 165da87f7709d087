//! The probe config as meant: what is left once everything that can be checked without a process has been checked.
//!
//! Every name refers to something that exists, every expression is well formed and uses only what it may. What can still
//! go wrong is the process: a symbol that it does not export, a layout that is not its own. Values that depend on it keep
//! their place, so that such an error can point at the line.

mod sessions;
mod walk;

use std::time::Duration;

use atropos_common::op::Op;

use super::expr::Expr;
use super::source::Located;
use crate::engine::input::ResourceId;
use crate::engine::record::Level;
use crate::engine::settings::{Class, Kind, Rerun, Tuning};
use crate::governor::Budget;

pub use sessions::{Note, NoteEnd, SessionClock, Sessions, Step};
pub use walk::{Conflict, Label, List, Walk};

/// An expression and where it was written.
pub type Formula = Located<Expr>;

/// Everything there is to know about an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: Located<String>,
    /// What it covers, for people.
    pub title: String,
    /// What it cannot see, in sentences for people.
    pub unseen: Vec<String>,
    /// How the application is recognised.
    pub matching: Match,
    /// Numbers that depend on the build, each after those that it depends on.
    pub layout: Vec<LayoutEntry>,
    /// How to list every session.
    pub sessions: Option<Sessions>,
    /// Requests completed since the start of the server, as it counts them itself.
    pub completed: Option<Formula>,
    /// Resources; the index is the [`ResourceId`].
    pub resources: Vec<Resource>,
    /// Probes.
    pub probes: Vec<Probe>,
    /// Walks, at most one for each resource.
    pub walks: Vec<Walk>,
    /// Kinds of task; the index is the class of a session.
    pub classes: Vec<TaskClass>,
    /// How tasks are ended. Without it nothing can be cancelled, only reported.
    pub cancel: Option<Cancel>,
    /// What the probes may cost.
    pub budget: Budget,
    /// What a probe costs is measured at the start; else it is taken from another machine.
    pub calibrate: bool,
    /// Constants of the decision, the defaults but for what the operator wants otherwise.
    pub tuning: Tuning,
    /// When what was ended is to be run again. Its classes of background work are told by `classes`.
    pub rerun: Rerun,
}

/// How an application is recognised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match {
    /// File names of its program.
    pub programs: Vec<String>,
    /// Symbols, as exported, that its binary must have.
    pub symbols: Vec<Located<String>>,
    /// Each session is a process of its own, forked from the one that is watched.
    pub forks: bool,
    /// It tells of its sessions and resources by marks of its own; nothing is read out of its memory.
    pub marks: bool,
    /// Which versions of it the preset is right for.
    pub version: Option<Version>,
}

/// How an application tells its version, and which ones a preset is right for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// A file in the process's working directory: its first line is the version.
    pub file: String,
    /// The versions.
    pub known: Vec<String>,
}

/// A number that depends on the build.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutEntry {
    /// `@name` in expressions.
    pub name: String,
    /// Where it comes from.
    pub value: Located<LayoutValue>,
}

/// Where a layout number comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutValue {
    /// It is this number.
    Number(i64),
    /// The `nth` displacement (from 0) off the first argument in a tiny function.
    Accessor {
        /// Symbol of the function.
        function: String,
        /// Which displacement.
        nth: u32,
    },
    /// The address of the variable that the `nth` load (from 0) at the beginning of a function reads.
    Global {
        /// Symbol of the function.
        function: String,
        /// Which load.
        nth: u32,
    },
    /// Another entry plus a constant.
    After {
        /// The other entry.
        name: String,
        /// Bytes behind it.
        add: i64,
    },
}

/// A text in the target's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct TextAt {
    /// Address of its first byte.
    pub at: Formula,
    /// Length in bytes; without it the text ends at a zero byte.
    pub length: Option<Formula>,
    /// How many texts lie there, parted by zero bytes. 1 or more.
    pub parts: u32,
    /// Index into the names; one beyond them means the text at `at`.
    pub index: Option<Formula>,
    /// Names by index.
    pub names: Vec<String>,
}

/// A class of resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name.
    pub name: Located<String>,
    /// How contention and usage are measured.
    pub kind: Kind,
    /// What it is, for people.
    pub title: String,
    /// Names of the modes by index, at most 32; empty if there is only one.
    pub modes: Vec<String>,
}

/// A logical probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Its name.
    pub name: Located<String>,
    /// When it is attached.
    pub level: Level,
    /// What passing it means.
    pub op: Op,
    /// The resource, for operations that have one.
    pub resource: Option<ResourceId>,
    /// The places where it can sit, best first. Never empty.
    pub alternatives: Vec<Alternative>,
    /// When it is attached for short times in calm, to learn what is normal.
    pub sample: Option<Sample>,
    /// It may sit on an instruction that must be single-stepped.
    pub allow_expensive: bool,
    /// It is passed by every request or more often: the first to be shed.
    pub hot: bool,
    /// How much it is worth when the cost is over budget: lower ones go first. 0 to 100.
    pub priority: u8,
}

/// One place where a probe can sit, with everything that holds there.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// Where.
    pub location: Located<Location>,
    /// File name of the library that has the symbol; the program itself without it.
    pub library: Option<String>,
    /// At the return of the function (a return probe) instead of its entry. Only if the config declares that no
    /// exception unwinds through the function.
    pub at_return: bool,
    /// Whose.
    pub session: Formula,
    /// Which instance of the resource.
    pub instance: Option<Formula>,
    /// Mode, amount or progress, by operation.
    pub value: Option<Formula>,
    /// It counts only if this holds.
    pub guard: Option<Guard>,
}

/// A place in a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A function by its exported, demangled or globbed name, and bytes behind its entry.
    Symbol {
        /// The name.
        pattern: String,
        /// Bytes behind it.
        offset: u64,
    },
    /// An address of one build.
    Address {
        /// Address as in the file's symbol tables.
        address: u64,
        /// Beginning of the build id, in hex, at least 8 digits.
        build_id: String,
    },
    /// Every site of a USDT probe.
    Usdt {
        /// `provider:name`, with `*` for any number of characters.
        pattern: String,
    },
}

/// A condition of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// What is compared, an expression over the probe's variables.
    pub subject: Formula,
    /// Whether it must equal the value or differ from it.
    pub equal: bool,
    /// What it is compared with (no variables).
    pub value: Formula,
}

/// How a probe is sampled in calm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Once in this time...
    pub every: Duration,
    /// ...for this time.
    pub attached: Duration,
}

/// A kind of task and how it is recognised.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskClass {
    /// What the engine knows of it.
    pub class: Class,
    /// Beginnings of its statements, in lower case, words parted by single blanks.
    pub statements: Vec<String>,
    /// User names.
    pub principals: Vec<String>,
    /// Those of whom nobody can tell who they belong to are of it as well.
    pub without_principal: bool,
    /// It lets go by itself of what others want once somebody has waited so long, nanoseconds.
    pub yields_ns: Option<u64>,
    /// Nobody waits for the answer: what was ended is to be run again after so long at the latest, nanoseconds.
    pub background_ns: Option<u64>,
}

/// How tasks are ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// Through what.
    pub initiator: Initiator,
    /// Where a session's own thread finds an order.
    pub exact: Option<Exact>,
    /// Ways, gentlest first. Never empty.
    pub rungs: Vec<Rung>,
}

/// Where a session's own thread finds an order, before the rung's command is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// Places, each with one alternative; its value is the request that the thread is at. Never empty.
    pub places: Vec<Probe>,
    /// How long an order waits to be found.
    pub within: Duration,
    /// A signal that does nothing to a process but wake it.
    pub nudge: Option<nix::sys::signal::Signal>,
}

/// Through what tasks are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// A connection that speaks the protocol of `MySQL`.
    Mysql,
    /// A connection that speaks the protocol of `PostgreSQL`.
    Postgres,
    /// A signal.
    Signal,
    /// A program.
    Exec,
}

/// One way to end a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// Its name.
    pub name: Located<String>,
    /// What is done.
    pub command: Command,
    /// Signal that does the same, for a thread that finds its order by itself.
    pub exact: Option<nix::sys::signal::Signal>,
    /// Works while the session runs a request.
    pub busy: bool,
    /// Works while the session is idle in a transaction or with explicit locks.
    pub idle: bool,
    /// How long the target may take to release.
    pub deadline: Duration,
}

/// What is done to end a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `KILL QUERY ID`: ends one statement by its number or nothing.
    KillQueryId,
    /// `KILL QUERY`: ends whatever statement the session runs.
    KillQuery,
    /// `KILL CONNECTION`: ends the session.
    KillConnection,
    /// `pg_cancel_backend`.
    PgCancel,
    /// `pg_terminate_backend`.
    PgTerminate,
    /// A signal.
    Signal {
        /// Which.
        signal: nix::sys::signal::Signal,
        /// To the thread alone instead of the process.
        to_thread: bool,
    },
    /// A program with arguments; `{id}`, `{thread}` and `{request}` stand for the task's numbers.
    Exec {
        /// Absolute path, then arguments.
        argv: Vec<String>,
    },
}
