//! One look, few system calls: what was read of each session before is read of all of them at once.
//!
//! A look reads the same few fields of every session. The cache learns their offsets from the reads that miss it, and at
//! the next look fetches all of them with vectored reads. The values are then of one moment, or nearly: a better view than
//! reading one by one, and far cheaper.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::memory::{Fault, Memory};

/// Fields further than this behind a session's key do not belong to it.
const REACH_BYTES: u64 = 1 << 16;
/// Fields that are kept at most; a preset names a third of that.
const FIELDS: usize = 64;
/// Longest field that is kept, bytes.
const FIELD_BYTES: usize = 8;

/// What is known of sessions' memory between looks.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// Offset behind the key, and length, of each field that was read.
    learned: BTreeSet<(u64, usize)>,
    /// Sessions of the look before.
    keys: BTreeSet<u64>,
}

impl Fields {
    /// Memory for one look: every known field of every known session has been fetched.
    pub fn fetch<'a>(&self, memory: &'a dyn Memory) -> Look<'a> {
        let places: Vec<(u64, usize)> = self
            .keys
            .iter()
            .flat_map(|key| {
                self.learned
                    .iter()
                    .map(|(offset, length)| (key.wrapping_add(*offset), *length))
            })
            .collect();
        let mut bytes = vec![[0; FIELD_BYTES]; places.len()];
        let mut reads: Vec<(u64, &mut [u8])> = places
            .iter()
            .zip(&mut bytes)
            .map(|((address, length), into)| (*address, &mut into[..*length]))
            .collect();
        let outcomes = memory.read_many(&mut reads);
        let fetched = places
            .into_iter()
            .zip(bytes)
            .zip(outcomes)
            .filter(|(_, outcome)| outcome.is_ok());
        let values = fetched.map(|((place, bytes), _)| (place, bytes)).collect();
        Look {
            memory,
            values,
            missed: RefCell::default(),
        }
    }

    /// Takes over what a look read beyond what was fetched, and which sessions there are by now. A field is one that was
    /// read of two sessions at the same offset: what is merely allocated near one of them is not.
    pub fn learn(&mut self, missed: &[(u64, usize)], keys: impl IntoIterator<Item = u64>) {
        self.keys = keys.into_iter().collect();
        let mut seen: BTreeMap<(u64, usize), u64> = BTreeMap::new();
        for (address, length) in missed {
            let Some(key) = self.keys.range(..=*address).next_back() else {
                continue;
            };
            let field = (address - key, *length);
            let first = *seen.entry(field).or_insert(*key);
            if field.0 < REACH_BYTES && first != *key && self.learned.len() < FIELDS {
                self.learned.insert(field);
            }
        }
    }
}

/// Memory for one look.
pub struct Look<'a> {
    memory: &'a dyn Memory,
    values: HashMap<(u64, usize), [u8; FIELD_BYTES]>,
    missed: RefCell<Vec<(u64, usize)>>,
}

impl Look<'_> {
    /// Places that were read and had not been fetched.
    pub fn missed(self) -> Vec<(u64, usize)> {
        self.missed.into_inner()
    }
}

impl Memory for Look<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        if let Some(value) = self.values.get(&(address, into.len())) {
            into.copy_from_slice(&value[..into.len()]);
            return Ok(());
        }
        self.memory.read(address, into)?;
        if into.len() <= FIELD_BYTES {
            self.missed.borrow_mut().push((address, into.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Memory whose bytes are their own addresses, and which counts reads.
    #[derive(Default)]
    struct Counted {
        reads: Cell<usize>,
    }

    impl Memory for Counted {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
            self.reads.set(self.reads.get() + 1);
            for (at, byte) in into.iter_mut().enumerate() {
                *byte = (address + at as u64) as u8;
            }
            Ok(())
        }
    }

    /// Reads the field at 16 of every session; gives the reads that were made one by one.
    fn look(fields: &mut Fields, memory: &Counted, keys: &[u64]) -> usize {
        let look = fields.fetch(memory);
        let fetched = memory.reads.get();
        for key in keys {
            assert_eq!(
                u64::from(look.read_u32(key + 16).unwrap()) & 0xff,
                (key + 16) & 0xff
            );
        }
        let direct = memory.reads.get() - fetched;
        fields.learn(&look.missed(), keys.iter().copied());
        direct
    }

    #[test]
    fn the_second_look_reads_nothing_one_by_one() {
        let (mut fields, memory) = (Fields::default(), Counted::default());
        assert_eq!(look(&mut fields, &memory, &[0x1000, 0x2000]), 2);
        assert_eq!(look(&mut fields, &memory, &[0x1000, 0x2000]), 0);
    }

    #[test]
    fn a_session_that_is_new_is_read_directly_and_fetched_from_then_on() {
        let (mut fields, memory) = (Fields::default(), Counted::default());
        look(&mut fields, &memory, &[0x1000, 0x2000]);
        assert_eq!(look(&mut fields, &memory, &[0x1000, 0x2000, 0x9000]), 1);
        assert_eq!(look(&mut fields, &memory, &[0x1000, 0x2000, 0x9000]), 0);
    }

    #[test]
    fn what_lies_near_one_session_only_or_far_from_all_is_not_learned() {
        let mut fields = Fields::default();
        let far = REACH_BYTES + 8;
        let missed = [
            (0x10, 8),
            (0x1008, 8),
            (0x20_0008, 8),
            (0x1010, 8),
            (0x1000 + far, 8),
            (0x20_0000 + far, 8),
        ];
        fields.learn(&missed, [0x1000, 0x20_0000]);
        assert_eq!(fields.learned.into_iter().collect::<Vec<_>>(), [(8, 8)]);
    }
}
