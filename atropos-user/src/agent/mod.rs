//! The agent: looks, feeds the engine, carries out what it says.

pub mod clock;
pub mod initiator;
pub mod resolve;
pub mod statement;
pub mod watch;
pub mod why;
