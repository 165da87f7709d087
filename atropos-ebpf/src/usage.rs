//! What sessions use of a store with limited room: units that they bring in, whose units they drive out for it, and what it
//! takes to bring those in again.
//!
//! That a session lost time to others is proved unit by unit: who brought it in is remembered, and who drove it out. Bringing it
//! in again is somebody's fault only if neither the session itself nor whoever had brought it in was the one to drive it out: what
//! a session takes for itself and gives up again was never there for the others. Without a name of the unit (0), or where it
//! has been forgotten, nothing is proved and nothing lost.

use atropos_common::limits::{Loss, Since};
use atropos_common::record::{UnitKey, UnitValue, UsageKey, UsageValue};
use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};

use crate::counters;
use crate::maps::{UNITS, USES};
use crate::ops::{Pass, since_ns};

/// A session brings units in: so many.
#[inline(always)]
pub(crate) fn brought_in(pass: &Pass) {
    if let Some(sums) = sums(pass) {
        // SAFETY: the pointer comes from a map lookup in this program run.
        counters::add(unsafe { &raw mut (*sums).used }, pass.value);
    }
}

/// A session drives a unit out.
#[inline(always)]
pub(crate) fn driven_out(pass: &Pass) {
    if pass.instance == 0 {
        return;
    }
    let key = unit_key(pass);
    let Some(unit) = UNITS.get_ptr(&key) else {
        return;
    };
    // SAFETY: the pointer comes from a map lookup in this program run.
    let unit = unsafe { *unit };
    if unit.at_ns < since_ns(Since::Units) || unit.evicted != 0 {
        return;
    }
    if is_by(&unit, pass) {
        let _ = UNITS.remove(&key);
        return;
    }
    remember(pass, &key, true);
    if let Some(sums) = sums(pass) {
        // SAFETY: the pointer comes from a map lookup in this program run.
        counters::add(unsafe { &raw mut (*sums).evicted }, 1);
    }
}

/// A session begins to bring a unit in. One thing at a time: what it began before and never ended it has given up.
#[inline(always)]
pub(crate) fn fetch_begin(pass: &Pass) {
    let Some(sums) = sums(pass) else { return };
    let mut again = false;
    if pass.instance != 0 {
        let key = unit_key(pass);
        if let Some(unit) = UNITS.get_ptr(&key) {
            // SAFETY: the pointer comes from a map lookup in this program run.
            let unit = unsafe { *unit };
            again =
                unit.evicted != 0 && unit.at_ns >= since_ns(Since::Units) && !is_by(&unit, pass);
        }
        remember(pass, &key, false);
    }
    // SAFETY: the pointer comes from a map lookup in this program run; a session brings in one unit at a time.
    unsafe {
        (*sums).fetch_ns = pass.at_ns;
        (*sums).fetch_again = u32::from(again);
    }
}

/// It is in, or given up.
#[inline(always)]
pub(crate) fn fetch_end(pass: &Pass) {
    let Some(sums) = sums(pass) else { return };
    // SAFETY: the pointer comes from a map lookup in this program run; a session brings in one unit at a time.
    let sums = unsafe { &mut *sums };
    let begin_ns = sums.fetch_ns;
    sums.fetch_ns = 0;
    let is_whole = begin_ns != 0 && begin_ns >= since_ns(Since::Units);
    if is_whole && sums.fetch_again != 0 {
        counters::add(&raw mut sums.lost_ns, pass.at_ns.saturating_sub(begin_ns));
    }
}

/// The session's sums; nothing if there is no room for them.
#[inline(always)]
fn sums(pass: &Pass) -> Option<*mut UsageValue> {
    let key = UsageKey {
        session: pass.session,
        pid: pass.pid,
        resource: pass.resource,
        reserved: 0,
    };
    if let Some(known) = USES.get_ptr_mut(&key) {
        return Some(known);
    }
    let first = UsageValue {
        used: 0,
        evicted: 0,
        lost_ns: 0,
        fetch_ns: 0,
        fetch_again: 0,
        tid: pass.tid,
    };
    // Another thread may have been first.
    let _ = USES.insert(&key, &first, u64::from(BPF_NOEXIST));
    let made = USES.get_ptr_mut(&key);
    if made.is_none() {
        counters::lost(Loss::Uses);
    }
    made
}

/// Remembers who brought the unit in, or drove it out. A full map makes room by itself: what it forgets is no longer proved.
#[inline(always)]
fn remember(pass: &Pass, key: &UnitKey, evicted: bool) {
    let value = UnitValue {
        session: pass.session,
        at_ns: pass.at_ns,
        pid: pass.pid,
        evicted: u32::from(evicted),
    };
    let _ = UNITS.insert(key, &value, u64::from(BPF_ANY));
}

#[inline(always)]
fn is_by(unit: &UnitValue, pass: &Pass) -> bool {
    unit.session == pass.session && unit.pid == pass.pid
}

#[inline(always)]
fn unit_key(pass: &Pass) -> UnitKey {
    UnitKey {
        unit: pass.instance,
        resource: pass.resource,
        reserved: [0; 3],
    }
}
