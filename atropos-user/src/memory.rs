//! Reading the memory of a process from outside, as a trait: walks and futex decoding read a live process through it and
//! a byte table in tests.
//!
//! A read is all or nothing. A failed read says where, never why: to a walk every unreadable address means "no evidence".

use thiserror::Error;

/// A read that could not be made in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot read the target's memory at {address:#x}")]
pub struct Fault {
    /// First address of the read that failed.
    pub address: u64,
}

/// Memory that can be read by address.
pub trait Memory {
    /// Fills `into` from `address` on, or fails as a whole; after a fault the contents of `into` are unspecified.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Reads many places, in as few calls as possible where that is possible; each has its own outcome.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), Fault>> {
        reads
            .iter_mut()
            .map(|(address, into)| self.read(*address, into))
            .collect()
    }

    /// The memory of a process that this one has forked; nothing where that cannot be had, or where the process is none of
    /// its children.
    fn of_child(&self, pid: u32) -> Option<Box<dyn Memory>> {
        let _ = pid;
        None
    }

    /// Reads a little-endian `u16`.
    fn read_u16(&self, address: u64) -> Result<u16, Fault> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Reads a little-endian `u32`.
    fn read_u32(&self, address: u64) -> Result<u32, Fault> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads a little-endian `u64`.
    fn read_u64(&self, address: u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads a C string of at most `limit_bytes` bytes, without its terminating zero. A longer one is cut at the limit.
    ///
    /// Reads in pieces that end at 256-byte boundaries, so that a short string at the end of the last mapped page is read
    /// without touching the page behind it.
    fn read_c_string(&self, address: u64, limit_bytes: usize) -> Result<Vec<u8>, Fault> {
        const PIECE_BYTES: u64 = 256;
        let mut text = Vec::new();
        let mut piece = [0; PIECE_BYTES as usize];
        while text.len() < limit_bytes {
            let at = address
                .checked_add(text.len() as u64)
                .ok_or(Fault { address })?;
            let to_boundary = (PIECE_BYTES - at % PIECE_BYTES) as usize;
            let piece = &mut piece[..to_boundary.min(limit_bytes - text.len())];
            self.read(at, piece)?;
            if let Some(end) = piece.iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&piece[..end]);
                break;
            }
            text.extend_from_slice(piece);
        }
        Ok(text)
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        (**self).read(address, into)
    }

    fn of_child(&self, pid: u32) -> Option<Box<dyn Memory>> {
        (**self).of_child(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Page(&'static [u8]);

    impl Memory for Page {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
            let start = address.checked_sub(0x1000).ok_or(Fault { address })? as usize;
            let bytes = self
                .0
                .get(start..start + into.len())
                .ok_or(Fault { address })?;
            into.copy_from_slice(bytes);
            Ok(())
        }
    }

    #[test]
    fn numbers_are_little_endian() {
        let page = Page(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(page.read_u16(0x1000), Ok(0x0201));
        assert_eq!(page.read_u32(0x1001), Ok(0x0504_0302));
        assert_eq!(page.read_u64(0x1000), Ok(0x0807_0605_0403_0201));
        assert_eq!(page.read_u64(0x1001), Err(Fault { address: 0x1001 }));
    }

    #[test]
    fn c_strings_end_at_the_zero_or_at_the_limit() {
        let mut bytes = [b'x'; 512];
        bytes[400] = 0;
        let page = Page(Box::leak(Box::new(bytes)));
        assert_eq!(page.read_c_string(0x1000, 1000).unwrap(), [b'x'; 400]);
        assert_eq!(page.read_c_string(0x1000, 3).unwrap(), b"xxx");
        assert_eq!(page.read_c_string(0x1190, 10).unwrap(), b"");
        assert!(
            page.read_c_string(0x11a0, 400).is_err(),
            "no zero before the end of the mapping"
        );
    }

    #[test]
    fn a_c_string_at_the_end_of_a_mapping_is_read_without_the_next_page() {
        let mut bytes = [b'y'; 256];
        bytes[255] = 0;
        assert_eq!(
            Page(Box::leak(Box::new(bytes)))
                .read_c_string(0x10f0, 1000)
                .unwrap(),
            [b'y'; 15]
        );
    }
}
