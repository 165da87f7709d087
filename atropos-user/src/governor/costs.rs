//! What one passing of a site costs, by how the probe sits there and what the kernel half does then.

use serde::Serialize;

/// How the kernel gets from the site to the program and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A probe on an instruction that the kernel emulates.
    Emulated,
    /// A USDT site: a `nop`.
    Usdt,
    /// A probe on an instruction that is single-stepped.
    Stepped,
}

/// What the kernel half does at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Books that a request begins or ends.
    Counted,
    /// Keeps the books and sends a record.
    Sent,
}

/// Costs of one passing, nanoseconds of the passing thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// An emulated site whose passing does not count (its guard does not hold).
    pub emulated_ns: f64,
    /// A USDT site whose passing does not count.
    pub usdt_ns: f64,
    /// A single-stepped site whose passing does not count.
    pub stepped_ns: f64,
    /// What it takes more to book a request.
    pub counted_ns: f64,
    /// What it takes more to book and send.
    pub sent_ns: f64,
    /// Measured on this machine; else taken from another one.
    pub calibrated: bool,
    /// How long it took to measure, milliseconds, with the loading of a kernel half for it; 0 if it was not measured.
    pub took_ms: f64,
}

/// A fixture passes one site over and over, with everything that the kernel needs in the caches. A server does not:
/// two request sites were measured to take two to five times what the fixture's numbers make of them. 2: the least of it.
const COLD: f64 = 2.0;

impl Default for Costs {
    /// Measured on a virtual machine (AMD EPYC, Linux 6.18).
    fn default() -> Self {
        Self {
            emulated_ns: 530.0,
            usdt_ns: 500.0,
            stepped_ns: 10_000.0,
            counted_ns: 100.0,
            sent_ns: 150.0,
            calibrated: false,
            took_ms: 0.0,
        }
    }
}

impl Costs {
    /// What one passing costs the fixture, nanoseconds.
    #[must_use]
    pub fn of(&self, way: Way, work: Work) -> f64 {
        let way_ns = match way {
            Way::Emulated => self.emulated_ns,
            Way::Usdt => self.usdt_ns,
            Way::Stepped => self.stepped_ns,
        };
        let work_ns = match work {
            Work::Counted => self.counted_ns,
            Work::Sent => self.sent_ns,
        };
        way_ns + work_ns
    }

    /// What so many passings cost a server, nanoseconds.
    #[must_use]
    pub fn in_a_server(&self, way: Way, work: Work, passings: u64) -> u64 {
        (self.of(way, work) * COLD * passings as f64) as u64
    }
}
