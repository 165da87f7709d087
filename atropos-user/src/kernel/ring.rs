//! The event ring. It is drained once a tick: the ring holds several ticks of the highest rate, and what does not fit is
//! counted by the kernel half, so nothing is gained by waking up for every record.

use anyhow::{Context as _, Result};
use aya::maps::{Map, MapData, RingBuf};

use super::decode::{Decoded, decode};

/// The event ring.
pub struct Ring {
    ring: RingBuf<MapData>,
    unreadable: u64,
}

impl Ring {
    pub(super) fn new(map: Map) -> Result<Self> {
        let ring = RingBuf::try_from(map).context("cannot map the event ring")?;
        Ok(Self {
            ring,
            unreadable: 0,
        })
    }

    /// Hands every waiting record to `take`, oldest first on each CPU.
    pub fn drain(&mut self, mut take: impl FnMut(Decoded)) {
        while let Some(item) = self.ring.next() {
            match decode(&item) {
                Some(decoded) => take(decoded),
                None => self.unreadable += 1,
            }
        }
    }

    /// Records that could not be read; more than none means that the two halves do not belong together.
    pub fn unreadable_count(&self) -> u64 {
        self.unreadable
    }
}
