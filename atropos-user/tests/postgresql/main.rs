//! A live, private `PostgreSQL`: what `why` sees in its memory, whom orders reach, and (with the kernel half, as root) what
//! `run` does.
#![allow(clippy::unwrap_used, reason = "tests")]

#[cfg(feature = "ebpf")]
#[path = "../mariadb/agent.rs"]
#[allow(dead_code, reason = "what only the tests of MariaDB use")]
mod agent;
#[path = "../common/mod.rs"]
mod common;

mod classes;
#[cfg(feature = "ebpf")]
mod exact;
#[cfg(feature = "ebpf")]
mod exact_run;
mod inside;
mod orders;
mod reads;
#[cfg(feature = "ebpf")]
mod run;
mod scene;
mod shift;
mod why;
