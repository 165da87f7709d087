//! A live, private `PostgreSQL`: what `why` sees in its memory, whom orders reach, and (with the kernel half, as root) what
//! `run` does.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::print_stdout,
    reason = "a bench reads the rates that tests print"
)]

#[cfg(feature = "ebpf")]
#[path = "../mariadb/agent.rs"]
#[allow(dead_code, reason = "what only the tests of MariaDB use")]
mod agent;
#[path = "../common/mod.rs"]
mod common;

mod at_work;
#[cfg(feature = "ebpf")]
mod buffers;
#[cfg(feature = "ebpf")]
mod check;
#[cfg(feature = "ebpf")]
mod churn;
mod classes;
#[cfg(feature = "ebpf")]
mod crowd;
#[cfg(feature = "ebpf")]
mod errors;
#[cfg(feature = "ebpf")]
mod exact;
#[cfg(feature = "ebpf")]
mod exact_run;
#[cfg(feature = "ebpf")]
mod hints;
mod inside;
#[cfg(feature = "ebpf")]
mod left_alone;
#[cfg(feature = "ebpf")]
mod limit;
#[cfg(feature = "ebpf")]
mod memory;
#[cfg(feature = "ebpf")]
mod on_cpu;
mod orders;
#[cfg(feature = "ebpf")]
mod probed;
mod progress;
mod reads;
#[cfg(feature = "ebpf")]
mod run;
mod scene;
mod shift;
mod version;
mod why;
