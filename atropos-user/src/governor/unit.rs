//! What the governor deals in: budgets, units of probes, and how much of the time a unit is attached.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

use crate::config::Sample;
use crate::engine::input::ResourceId;
use crate::engine::record::Level;

/// Most halvings: 1/64 of the time. Below it a sample is so rare that it says nothing of what happens.
const MAX_HALVINGS: u8 = 6;

/// What the probes may cost at each level, as shares of the target's CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// While nothing looks wrong. 0.005: far below what a load test can tell from noise.
    pub calm: f64,
    /// While something looks wrong. 0.03: the server is in trouble already, and this does not last.
    pub suspect: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            calm: 0.005,
            suspect: 0.03,
        }
    }
}

impl Budget {
    /// The budget of a level.
    #[must_use]
    pub fn of(self, level: Level) -> f64 {
        match level {
            Level::Calm => self.calm,
            Level::Suspect => self.suspect,
        }
    }
}

/// Probes that mean something only together: the begin and the end of requests, of waits for a resource, and so on.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Names of its probes.
    pub probes: Vec<String>,
    /// When it is attached.
    pub level: Level,
    /// The resource that cannot be seen without it.
    pub resource: Option<ResourceId>,
    /// How much it is worth beside others, 0 to 100.
    pub value: u8,
    /// Every request passes it: goes before all that are not, whatever they are worth.
    pub hot: bool,
    /// When it is attached for short times in calm.
    pub sample: Option<Sample>,
    /// A part of what passes still tells the truth (latencies). Of waits and holds each one counts.
    pub divisible: bool,
}

/// How much of the time a unit may be attached, of what its level and sample give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// All of it.
    Whole,
    /// Half of it, a quarter of it, and so on.
    Halved(u8),
    /// Nothing, but for a moment now and then to see what it would cost.
    Shed,
}

impl Standing {
    /// The share of the time, 0 to 1.
    #[must_use]
    pub fn duty(self) -> f64 {
        match self {
            Self::Whole => 1.0,
            Self::Halved(times) => 0.5_f64.powi(i32::from(times)),
            Self::Shed => 0.0,
        }
    }

    /// The most of a unit's time that costs no more than `left`, where all of it costs `whole`.
    pub(super) fn fitting(whole: f64, left: f64, divisible: bool) -> Self {
        if whole <= left {
            return Self::Whole;
        }
        let halved = (1..=MAX_HALVINGS)
            .map(Self::Halved)
            .find(|standing| whole * standing.duty() <= left);
        halved.filter(|_| divisible).unwrap_or(Self::Shed)
    }
}

impl PartialOrd for Standing {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.duty().partial_cmp(&other.duty())
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("as the preset says"),
            Self::Halved(times) => write!(f, "1/{} as often", 1_u32 << times),
            Self::Shed => f.write_str("shed"),
        }
    }
}
