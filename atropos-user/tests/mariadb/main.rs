//! The whole loop on a live, private MariaDB: what `why`, `check` and `run` see and do there.
//! Needs root, the kernel half, and mariadbd.
#![cfg(feature = "ebpf")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests may panic and keep time"
)]

#[path = "../common/mod.rs"]
mod common;

mod agent;
mod clocks;
mod late;
mod replica;
mod safety;
mod scene;
mod stall;
mod who;
