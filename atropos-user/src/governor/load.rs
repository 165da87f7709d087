//! What a unit costs while it is attached, as a share of the target's CPU time.

use std::collections::VecDeque;

/// Attached time that the share is taken over. 2 s: a stampede of waiters at the end of a stall is over by then, and what
/// lasts is seen soon enough.
const WINDOW_NS: u64 = 2_000_000_000;

/// The target counts as using at least this share of one core. 0.4: a stalled server uses nothing, and the waits that it
/// announces in that moment are what the probes are there for. Times window and calm budget that is 4 ms, some thousands of waits.
const FLOOR: f64 = 0.4;

/// Costs of the latest attached time.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// A burst counts as if so much time had been like it and its silence. Whatever is sampled needs no such mercy: less of it
    /// is still the truth.
    mercy_ns: u64,
    slices: VecDeque<Slice>,
    sum: Slice,
    /// The share that was last known; what was let go keeps it.
    known: f64,
}

/// One stretch of time.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_field_names,
    reason = "a number says its unit by its name"
)]
struct Slice {
    cost_ns: u64,
    cpu_ns: u64,
    elapsed_ns: u64,
}

impl Load {
    /// Of a unit that is sampled when it costs too much, or of one that is let go.
    pub(super) fn new(divisible: bool) -> Self {
        Self {
            mercy_ns: if divisible { 0 } else { WINDOW_NS },
            ..Self::default()
        }
    }

    /// So much was the cost while the target used so much CPU time.
    pub(super) fn add(&mut self, cost_ns: u64, cpu_ns: u64, elapsed_ns: u64) {
        let slice = Slice {
            cost_ns,
            cpu_ns,
            elapsed_ns,
        };
        self.slices.push_back(slice);
        self.sum.cost_ns += cost_ns;
        self.sum.cpu_ns += cpu_ns;
        self.sum.elapsed_ns += elapsed_ns;
        while self.slices.len() > 1
            && self.sum.elapsed_ns - self.slices.front().map_or(0, |first| first.elapsed_ns)
                >= WINDOW_NS
        {
            let Some(first) = self.slices.pop_front() else {
                break;
            };
            self.sum.cost_ns -= first.cost_ns;
            self.sum.cpu_ns -= first.cpu_ns;
            self.sum.elapsed_ns -= first.elapsed_ns;
        }
        self.known = self.over(self.sum.elapsed_ns.max(self.mercy_ns));
    }

    /// The share of the target's CPU time.
    pub(super) fn share(&self) -> f64 {
        self.known
    }

    /// Forgets the stretches, so that the next ones speak for themselves. The share stays until then.
    pub(super) fn begin(&mut self) {
        self.slices.clear();
        self.sum = Slice::default();
    }

    /// The share over what was seen, in the window and since [`Self::begin`], and for how long that was; takes it for the one
    /// that is known.
    pub(super) fn judge(&mut self) -> (f64, u64) {
        if self.sum.elapsed_ns > 0 {
            self.known = self.over(self.sum.elapsed_ns);
        }
        (self.known, self.sum.elapsed_ns)
    }

    fn over(&self, floor_over_ns: u64) -> f64 {
        let cpu_ns = (self.sum.cpu_ns as f64).max(FLOOR * floor_over_ns as f64);
        if cpu_ns > 0.0 {
            (self.sum.cost_ns as f64 / cpu_ns).min(1.0)
        } else {
            0.0
        }
    }
}
