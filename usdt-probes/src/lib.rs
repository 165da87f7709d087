//! [`mark`]: probes that an application can put into itself; [`declare`]: what it says of itself once. Next to it, what goes with the sample server `atropos-sample`, for tests and for the demo: starting it, and talking to it.
//!
//! The server is a small threaded key-value store in which table locks go wrong as they do in databases; see
//! `presets/sample/README.md` for its commands and for what Atropos sees of it.

pub mod client;
pub mod declare;
pub mod mark;
pub mod server;
