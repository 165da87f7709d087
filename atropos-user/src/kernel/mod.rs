//! The only home of aya and of `unsafe`: loads the kernel half, attaches sites, reads the ring and the maps.
//!
//! Ownership is lifetime. A [`SiteLink`] detaches its site when it is dropped, and everything goes with [`Kernel`]: when
//! the agent dies, however it dies, the kernel closes the links with its descriptors and no probe is left.

mod calibration;
mod counters;
mod decode;
mod event;
mod half;
mod heap;
mod loader;
#[cfg(feature = "bpf-log")]
mod log;
mod multi;
mod orders;
mod ring;
mod site;
mod sys;
mod tracepoint;
mod wakes;

pub use calibration::{Passing, beside_nothing, calibrate};
pub use counters::{Counters, Latencies};
pub use decode::{Decoded, decode};
pub use half::ProgramStat;
pub use heap::give_back_heap;
pub use loader::Kernel;
pub use multi::Prepared;
pub use orders::{OrderSite, Orders};
pub use ring::Ring;
pub use site::{SiteAt, SiteLink};
pub use wakes::{Wake, Wakes};
