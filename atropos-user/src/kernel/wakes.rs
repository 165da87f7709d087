//! Who woke whom, as long as somebody asks: a hint at who kept whom waiting, never a proof.

use anyhow::{Context as _, Result};
use atropos_common::wake::{WakeKey, WakeValue};
use aya::maps::{HashMap, Map, MapData};
use aya::programs::trace_point::TracePointLink;

/// A thread that woke another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Who woke; a thread of a process in scope.
    pub waker: u32,
    /// Who was woken, in whatever process.
    pub woken: u32,
    /// How often since the watch began, while the pair was remembered.
    pub count: u64,
    /// The last time, `CLOCK_MONOTONIC` nanoseconds.
    pub last_ns: u64,
}

/// The watch over wake-ups; dropping it ends it.
pub struct Wakes {
    wakes: HashMap<MapData, WakeKey, WakeValue>,
    _link: TracePointLink,
}

impl Wakes {
    pub(super) fn new(map: Map, link: TracePointLink) -> Result<Self> {
        Ok(Self {
            wakes: HashMap::try_from(map).context("map WAKES")?,
            _link: link,
        })
    }

    /// Everybody who woke somebody.
    pub fn seen(&self) -> Vec<Wake> {
        let entries = self.wakes.iter().filter_map(Result::ok);
        entries
            .map(|(key, value)| Wake {
                waker: key.waker,
                woken: key.woken,
                count: value.count,
                last_ns: value.last_ns,
            })
            .collect()
    }
}
