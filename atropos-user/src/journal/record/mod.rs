//! A recording: the settings and every input of an engine, in the order in which it was given them.
//!
//! The format is described byte by byte in `docs/recording.md`. Whatever is read, nothing here panics or allocates more
//! than the limits below, and every error names the byte at which it was found.

mod error;
mod reader;
mod writer;

pub use error::RecordError;
pub use reader::RecordReader;
pub use writer::RecordWriter;

/// The first eight bytes of a recording.
pub const MAGIC: [u8; 8] = *b"ATROPOSR";
/// Version of the format. Any change of a type that a recording holds, however small, is another version: the encoding
/// carries no names.
pub const VERSION: u16 = 1;
/// Magic, version, flags, checksum.
pub const HEADER_BYTES: usize = 16;
/// Kind, sequence number, length of the payload.
pub const FRAME_HEADER_BYTES: usize = 9;
/// The checksum behind the payload.
pub const CHECKSUM_BYTES: usize = 4;
/// A longer payload is taken for damage.
pub const MAX_PAYLOAD_BYTES: u32 = 16 << 20;
/// More than this in one frame, decompressed, is taken for damage.
pub const MAX_RAW_BYTES: u32 = 64 << 20;

/// Frame kinds.
const SETTINGS: u8 = 1;
const INPUTS: u8 = 2;
const END: u8 = 3;

/// Checksum of a frame: over its header and its payload.
fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}
