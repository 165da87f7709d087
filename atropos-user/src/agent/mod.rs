//! The agent: looks, feeds the engine, carries out what it says.

pub mod carrier;
pub mod check;
pub mod clock;
pub mod declared;
#[cfg(feature = "ebpf")]
pub mod feed;
mod forest;
pub mod initiator;
pub mod kept;
#[cfg(feature = "ebpf")]
mod levels;
mod line;
mod locate;
pub mod on_cpu;
mod opened;
#[cfg(feature = "ebpf")]
pub mod probes;
pub mod processor;
mod register;
pub mod resolve;
#[cfg(feature = "ebpf")]
pub mod run;
pub mod screen;
pub mod statement;
pub mod tell;
pub mod told;
pub mod usage;
mod version;
#[cfg(feature = "ebpf")]
mod wakers;
pub mod watch;
mod watched;
pub mod why;
