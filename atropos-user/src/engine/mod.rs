//! The deciding half: a state machine without clock, file, socket or thread. Inputs in, effects out.
//!
//! The same inputs give the same effects, byte for byte, on any machine: time comes from the inputs alone
//! (`CLOCK_MONOTONIC` nanoseconds of the machine that was watched), and no iteration order depends on a hash seed.

pub mod input;
pub mod record;
pub mod settings;

pub use settings::Settings;
