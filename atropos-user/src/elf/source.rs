//! Where the bytes of a file come from: all of them in memory, or fetched in the parts that are asked for.
//!
//! A server's program has tens of megabytes, of which its symbols and a few functions are wanted. A [`Parts`] keeps what it
//! has fetched, and is dropped with it. (A mapping of the file would do as well, but reading it ends the agent when
//! somebody cuts the file short.)

use std::fs::File;
use std::ops::Range;

use object::{ReadCache, ReadRef};

/// A file that is read in the parts that are asked for.
pub type Parts = ReadCache<File>;

/// The bytes of a file.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// All of them.
    Whole(&'a [u8]),
    /// Those that are asked for.
    Parts(&'a Parts),
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Whole(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Source<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Whole(bytes)
    }
}

impl<'a> From<&'a Parts> for Source<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self::Parts(parts)
    }
}

impl<'a> ReadRef<'a> for Source<'a> {
    fn len(self) -> Result<u64, ()> {
        match self {
            Self::Whole(bytes) => ReadRef::len(bytes),
            Self::Parts(parts) => parts.len(),
        }
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        match self {
            Self::Whole(bytes) => bytes.read_bytes_at(offset, size),
            Self::Parts(parts) => parts.read_bytes_at(offset, size),
        }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        match self {
            Self::Whole(bytes) => bytes.read_bytes_at_until(range, delimiter),
            Self::Parts(parts) => parts.read_bytes_at_until(range, delimiter),
        }
    }
}
