//! What is told to the agent.

use atropos_common::limits::Loss;
use atropos_common::record::EventRecord;

use crate::counters;
use crate::maps::{EVENTS, NO_WAKEUP};

/// Sends a record, which is made in its place in the ring; one that does not fit is counted, never waited for.
#[inline(always)]
pub(crate) fn send(record: impl FnOnce() -> EventRecord) {
    let Some(mut entry) = EVENTS.reserve(0) else {
        counters::lost(Loss::Ring);
        return;
    };
    entry.write(record());
    entry.submit(NO_WAKEUP);
}
