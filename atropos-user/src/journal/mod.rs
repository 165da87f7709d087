//! The remembering half: what was decided and done, and what it was decided from.
//!
//! [`audit`] writes one JSON object a line for people and programs (`docs/audit.md`); [`record`] writes every input of
//! the engine in a compact form (`docs/recording.md`), from which [`replay`] makes the same decisions again. None of them
//! can stop the agent: what cannot be written is counted and said.

pub mod audit;
pub mod record;
pub mod recorder;
pub mod replay;
mod wall;

pub use audit::{Audit, AuditClock, Intent, Run};
pub use record::{RecordError, RecordReader, RecordWriter};
pub use recorder::Recorder;
pub use replay::{Decider, Replayed, each_input, replay};
