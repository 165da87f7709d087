//! A cache with limited room in front of a slow store: values by number, of which the one that was not used for longest makes room.
//!
//! Its mutex is held for a few steps; to load a value takes time outside of it, on the session's own thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use usdt_probes::mark;

use crate::marks::{sample_evict, sample_fetch_begin, sample_fetch_end, sample_use};
use crate::sessions::{lock as locked, number};
use crate::stop::Stop;
use crate::visible::Session;

/// The number that the marks give the cache.
const CACHE: u64 = 1;

usdt_probes::resource!(1, MEMORY, "cache");

/// Values that there is room for, and how long it takes to load one, unless the command line says otherwise.
pub(crate) const ROOM: usize = 256;
pub(crate) const LOAD: Duration = Duration::from_millis(1);

static THE_CACHE: OnceLock<Cache> = OnceLock::new();

/// The cache.
#[derive(Debug)]
struct Cache {
    room: usize,
    load: Duration,
    kept: Mutex<Kept>,
}

/// What is in it.
#[derive(Debug, Default)]
struct Kept {
    /// When each value was last used, by a clock that counts uses.
    used: HashMap<u64, u64>,
    /// Values by that time.
    oldest: BTreeMap<u64, u64>,
    clock: u64,
}

/// Says how large the cache is and how slow the store. Only the first time counts.
pub(crate) fn set_up(room: usize, load: Duration) {
    THE_CACHE.get_or_init(|| Cache::new(room, load));
}

/// Reads a value; `pass` lets the time pass that it takes to load one, unless the session has to stop.
pub(crate) fn read(
    session: &'static Session,
    value: u64,
    pass: impl FnOnce(Duration) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let cache = THE_CACHE.get_or_init(|| Cache::new(ROOM, LOAD));
    if locked(&cache.kept).hit(value) {
        return Ok(());
    }
    // No unit has the name 0.
    let unit = value + 1;
    sample_fetch_begin(session, unit);
    mark::wait_begin(number(session), CACHE, unit, 0);
    let loaded = pass(cache.load);
    if loaded.is_ok() {
        for gone in locked(&cache.kept).put(value, cache.room) {
            sample_evict(session, gone + 1);
            mark::evict(number(session), CACHE, gone + 1, 1);
        }
        sample_use(session, unit);
        mark::use_units(number(session), CACHE, unit, 1);
    }
    mark::wait_end(number(session), CACHE, unit);
    sample_fetch_end(session, unit);
    loaded
}

impl Cache {
    fn new(room: usize, load: Duration) -> Self {
        Self {
            room: room.max(1),
            load,
            kept: Mutex::default(),
        }
    }
}

impl Kept {
    /// Whether a value is there; it is the last to go then.
    fn hit(&mut self, value: u64) -> bool {
        let there = self.used.contains_key(&value);
        if there {
            self.touch(value);
        }
        there
    }

    /// Puts a value in; those that had to make room for it.
    fn put(&mut self, value: u64, room: usize) -> Vec<u64> {
        self.touch(value);
        let mut gone = Vec::new();
        while self.used.len() > room
            && let Some((_, oldest)) = self.oldest.pop_first()
        {
            self.used.remove(&oldest);
            gone.push(oldest);
        }
        gone
    }

    fn touch(&mut self, value: u64) {
        self.clock += 1;
        if let Some(before) = self.used.insert(value, self.clock) {
            self.oldest.remove(&before);
        }
        self.oldest.insert(self.clock, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_was_not_used_for_longest_makes_room() {
        let mut kept = Kept::default();
        assert!(kept.put(1, 2).is_empty());
        assert!(kept.put(2, 2).is_empty());
        assert!(kept.hit(1));
        assert_eq!(kept.put(3, 2), [2]);
        assert!(kept.hit(1) && kept.hit(3) && !kept.hit(2));
        assert_eq!(kept.put(3, 2), [], "it is there already");
        assert_eq!(kept.used.len(), kept.oldest.len());
    }
}
