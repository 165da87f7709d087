//! Counters that stay exact: a program can be preempted by another task's program on the same CPU.

use atropos_common::limits::Loss;

use crate::maps::{HITS, LATENCY, LOST};

/// Adds to a map value in one instruction.
#[inline(always)]
pub(crate) fn add(to: *mut u64, amount: u64) {
    // SAFETY: the pointer comes from a map lookup in this program run and is 8-byte aligned; the add is atomic.
    unsafe {
        core::intrinsics::atomic_xadd::<u64, u64, { core::intrinsics::AtomicOrdering::Relaxed }>(
            to, amount,
        )
    };
}

/// The element of a map's one array value, if the index is in range.
macro_rules! element {
    ($map:ident, $index:expr) => {
        $map.get_ptr_mut(0).and_then(|array| {
            // SAFETY: the pointer comes from a map lookup in this program run; `get_mut` checks the index.
            unsafe { (*array).get_mut($index as usize) }
        })
    };
}

/// Something could not be kept.
#[inline(always)]
pub(crate) fn lost(cause: Loss) {
    if let Some(counter) = element!(LOST, cause) {
        add(counter, 1);
    }
}

/// A site was passed.
#[inline(always)]
pub(crate) fn hit(site: u32) {
    if let Some(counter) = element!(HITS, site) {
        add(counter, 1);
    }
}

/// A request of this latency completed.
#[inline(always)]
pub(crate) fn latency(bucket: usize) {
    if let Some(counter) = element!(LATENCY, bucket) {
        add(counter, 1);
    }
}
