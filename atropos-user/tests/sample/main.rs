//! The sample server, where no database is at hand: what `why` and `run` see and do there, and that a preset with a wrong
//! number sees nothing rather than something wrong.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[cfg(feature = "ebpf")]
#[path = "../mariadb/agent.rs"]
#[allow(dead_code, reason = "its other half is for the tests on MariaDB")]
mod agent;
#[cfg(feature = "ebpf")]
mod cache;
#[cfg(feature = "ebpf")]
mod check;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "ebpf")]
mod marks;
mod program;
#[cfg(feature = "ebpf")]
mod run;
mod scene;
mod shift;
#[cfg(feature = "ebpf")]
mod stop;
mod why;
