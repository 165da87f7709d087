//! The Atropos agent as a library: what the binary `atropos` is made of.
//!
//! [`config`] says what to watch, [`elf`] and [`target`] find it in a process, [`kernel`] watches it, [`engine`] decides,
//! [`cancel`] acts, [`journal`] remembers, [`ui`] shows. See `docs/design.md`.

pub mod agent;
pub mod cancel;
pub mod cli;
pub mod config;
pub mod elf;
pub mod governor;
pub mod journal;
#[cfg(feature = "ebpf")]
pub mod kernel;
pub mod memory;
pub mod target;
pub mod ui;
pub mod walk;

pub use atropos_engine as engine;
