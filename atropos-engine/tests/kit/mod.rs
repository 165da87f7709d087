//! A small server with locks, in steps of one millisecond, that tells an engine what a real target would.
//!
//! Locks have two modes, shared (0) and exclusive (1), and a queue in which an exclusive request goes before every later
//! one. Victims run a short request over and over; everything else is scripted by the test.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its part of the kit"
)]

mod answers;
mod cases;
mod locks;
mod world;

use atropos_engine::input::Activity;
use atropos_engine::settings::{
    Class, Kind, Mode, Rerun, Resource, Rung, Settings, Slo, SloLimit, Tuning,
};

pub use cases::{OTHER, T, alter, breach_to_decision_ns, c1, m01, sleeper};
pub use world::World;

pub const MS: u64 = 1_000_000;
pub const SHARED: u32 = 0;
pub const EXCLUSIVE: u32 = 1;

/// Everything that a session can be doing.
pub const ACTIVITIES: [Activity; 3] = [
    Activity::Busy,
    Activity::IdleInTransaction,
    Activity::IdleWithLocks,
];

/// How the engine learns of waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sense {
    /// A complete walk before each tick, and wait events in between.
    Walk,
    /// Waits, acquisitions and releases as events alone.
    Events,
}

/// What the target does with an order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Obey {
    /// It accepts at once and lets go after so many milliseconds.
    After(u64),
    /// It ends the statement after so many milliseconds, and the session keeps its locks; ending the connection works.
    Statement(u64),
    /// It refuses.
    Refuse,
    /// The task had ended.
    Miss,
    /// It accepts and nothing happens.
    Ignore,
    /// The agent does not send it.
    NotSent,
    /// Nothing comes back, and it lets go after so many milliseconds.
    Silent(u64),
    /// There is no way to it.
    Unsent,
}

/// Settings such as a database's preset has them, with an objective of p99 = 20 ms.
pub fn settings() -> Settings {
    let class = |name: &str, protected, undo| Class {
        name: name.to_owned(),
        protected,
        protected_queued: false,
        undo,
    };
    let rung = |name: &str, idle, deadline_ms| Rung {
        name: name.to_owned(),
        busy: true,
        idle,
        deadline_ns: deadline_ms * MS,
    };
    Settings {
        preset: "mariadb".to_owned(),
        resources: vec![Resource {
            name: "metadata_lock".to_owned(),
            kind: Kind::Lock,
            modes: vec!["S".to_owned(), "X".to_owned()],
        }],
        classes: vec![
            class("replication", true, 0.0),
            class("backup", true, 0.0),
            class("ddl", true, 0.0),
            class("write", false, 1.0),
        ],
        ladder: vec![
            rung("KILL QUERY ID", false, 1000),
            rung("KILL QUERY", false, 1000),
            rung("KILL CONNECTION", true, 5000),
        ],
        slo: Slo {
            percentile: 99.0,
            limit: SloLimit::Absolute { ns: 20 * MS },
        },
        protected_principals: vec!["root".to_owned()],
        mode: Mode::Enforce,
        tuning: Tuning::default(),
        rerun: Rerun::default(),
    }
}

/// A target with a resource of every kind that nobody waits for, behind its locks.
pub fn all_kinds() -> Settings {
    let mut all = settings();
    for (name, kind) in [
        ("processor", Kind::Cpu),
        ("pages", Kind::Memory),
        ("disk", Kind::Io),
    ] {
        all.resources.push(Resource {
            name: name.to_owned(),
            kind,
            modes: Vec::new(),
        });
    }
    all
}

pub const REPLICATION: u16 = 0;
pub const BACKUP: u16 = 1;
pub const DDL: u16 = 2;
pub const WRITE: u16 = 3;
