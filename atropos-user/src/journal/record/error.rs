//! What can be wrong with a recording.

use std::io;

use super::VERSION;

/// Why a recording cannot be read, or not any further. Every one names the byte offset.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("cannot read the recording at byte {offset}: {source}")]
    Io {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// It does not begin like a recording.
    #[error(
        "this is not a recording: byte 0 does not begin with `ATROPOSR`; give a file written by `atropos run --record`"
    )]
    NotARecording,
    /// It was written by another version.
    #[error(
        "the recording has format version {found} (byte 8), this atropos reads version {VERSION}; replay it with the atropos that wrote it"
    )]
    Version {
        /// What it says.
        found: u16,
    },
    /// It stops in the middle, or without its end marker: the agent was killed or the disk was full. Everything
    /// before it is whole and has been given.
    #[error(
        "the recording ends at byte {offset} {inside}: the agent was killed or the disk was full; all {inputs} inputs before it are whole"
    )]
    Truncated {
        /// Where.
        offset: u64,
        /// "inside a frame", "without its end marker".
        inside: &'static str,
        /// Inputs given so far.
        inputs: u64,
    },
    /// A checksum does not match.
    #[error(
        "the recording is damaged: the checksum of the {what} at byte {offset} does not match; {inputs} inputs before it are whole"
    )]
    Checksum {
        /// Where the damaged part begins.
        offset: u64,
        /// "header", "frame".
        what: &'static str,
        /// Inputs given so far.
        inputs: u64,
    },
    /// A part does not fit into the whole.
    #[error(
        "the recording is damaged: the frame at byte {offset} {why}; {inputs} inputs before it are whole"
    )]
    Frame {
        /// Where the frame begins.
        offset: u64,
        /// What is wrong with it.
        why: String,
        /// Inputs given so far.
        inputs: u64,
    },
    /// A payload is intact and yet not understood.
    #[error(
        "the frame at byte {offset} holds something that this atropos does not know ({what}: {why}); it was written by another version"
    )]
    Decode {
        /// Where the frame begins.
        offset: u64,
        /// "settings", "input 3".
        what: String,
        /// What the decoder said.
        why: String,
    },
}

impl RecordError {
    /// The recording is merely not finished; what was read can be trusted.
    pub fn is_truncation(&self) -> bool {
        matches!(self, Self::Truncated { .. })
    }
}
