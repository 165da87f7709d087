//! One look, few system calls: what the look before read is fetched again, all at once, before the next one reads it.
//!
//! A look reads the same few fields of every session, and of whatever each session points at. Fields near each other are
//! fetched as one range, so that a look at an array of sessions costs about one range a page. The values are then of one
//! moment, or nearly: a better view than reading one by one, and far cheaper. A range that a look did not need is
//! forgotten.

use std::cell::{Cell, RefCell};

use crate::memory::{Fault, Memory};

/// Longest field that is fetched ahead, bytes. Longer reads are texts, which are read once and kept.
const FIELD_BYTES: usize = 8;
/// Fields this close to each other, bytes, are fetched as one range: copying what lies between them costs less than a
/// range of their own.
const GAP_BYTES: u64 = 1024;
/// A range ends with its page: the page behind it may not be there.
const PAGE_BYTES: u64 = 4096;
/// Reads that one look remembers at most.
const REMEMBERED: usize = 1 << 16;

/// What the next look will read, as far as it is known: ranges (address, length in bytes), in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    ranges: Vec<(u64, usize)>,
}

impl Fields {
    /// Memory for one look, with every known range fetched.
    pub fn fetch<'a>(&self, memory: &'a dyn Memory) -> Look<'a> {
        let mut fetched: Vec<Fetched> = self
            .ranges
            .iter()
            .map(|(start, length)| Fetched {
                start: *start,
                bytes: vec![0; *length],
                is_used: Cell::new(false),
            })
            .collect();
        let mut reads: Vec<(u64, &mut [u8])> = fetched
            .iter_mut()
            .map(|range| (range.start, range.bytes.as_mut_slice()))
            .collect();
        let mut outcomes = memory.read_many(&mut reads).into_iter();
        fetched.retain(|_| matches!(outcomes.next(), Some(Ok(()))));
        Look {
            memory,
            fetched,
            missed: RefCell::default(),
        }
    }

    /// What a look needed, as ranges.
    fn of(mut needed: Vec<(u64, usize)>) -> Self {
        needed.sort_unstable();
        let mut ranges: Vec<(u64, usize)> = Vec::new();
        for (start, length) in needed {
            let end = start.saturating_add(length as u64);
            if let Some((first, known)) = ranges.last_mut() {
                let known_end = first.saturating_add(*known as u64);
                let is_near = start <= known_end.saturating_add(GAP_BYTES)
                    && *first / PAGE_BYTES == end.saturating_sub(1) / PAGE_BYTES;
                if is_near || start == *first || end <= known_end {
                    *known = (end.max(known_end) - *first) as usize;
                    continue;
                }
            }
            ranges.push((start, length));
        }
        Self { ranges }
    }
}

/// A range that has been fetched.
struct Fetched {
    start: u64,
    bytes: Vec<u8>,
    is_used: Cell<bool>,
}

/// Memory for one look.
pub struct Look<'a> {
    memory: &'a dyn Memory,
    fetched: Vec<Fetched>,
    missed: RefCell<Vec<(u64, usize)>>,
}

impl Look<'_> {
    /// What this look has read: to be fetched for the next one.
    pub fn learned(self) -> Fields {
        let mut needed = self.missed.into_inner();
        let used = self.fetched.iter().filter(|range| range.is_used.get());
        needed.extend(used.map(|range| (range.start, range.bytes.len())));
        Fields::of(needed)
    }

    /// The bytes, if they have been fetched.
    fn known(&self, address: u64, length: usize) -> Option<&[u8]> {
        let behind = self.fetched.partition_point(|range| range.start <= address);
        let range = &self.fetched[behind.checked_sub(1)?];
        let from = usize::try_from(address - range.start).ok()?;
        let bytes = range.bytes.get(from..from.checked_add(length)?)?;
        range.is_used.set(true);
        Some(bytes)
    }
}

impl Memory for Look<'_> {
    fn of_child(&self, pid: u32) -> Option<Box<dyn Memory>> {
        self.memory.of_child(pid)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        // What lies behind a null pointer. Most sessions wait for nothing, and need no call to find that out.
        if address < PAGE_BYTES {
            return Err(Fault { address });
        }
        if let Some(bytes) = self.known(address, into.len()) {
            into.copy_from_slice(bytes);
            return Ok(());
        }
        self.memory.read(address, into)?;
        let mut missed = self.missed.borrow_mut();
        if into.len() <= FIELD_BYTES && missed.len() < REMEMBERED {
            missed.push((address, into.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory whose bytes are their own addresses, and which counts calls. The page at 0x5000 is not there.
    #[derive(Default)]
    struct Counted {
        calls: Cell<usize>,
        ranges: Cell<usize>,
    }

    impl Counted {
        fn fill(address: u64, into: &mut [u8]) -> Result<(), Fault> {
            for (at, byte) in into.iter_mut().enumerate() {
                let address = address + at as u64;
                if address / PAGE_BYTES == 5 {
                    return Err(Fault { address });
                }
                *byte = address as u8;
            }
            Ok(())
        }
    }

    impl Memory for Counted {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
            self.calls.set(self.calls.get() + 1);
            Self::fill(address, into)
        }

        fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), Fault>> {
            self.calls
                .set(self.calls.get() + usize::from(!reads.is_empty()));
            self.ranges.set(self.ranges.get() + reads.len());
            reads
                .iter_mut()
                .map(|(address, into)| Self::fill(*address, into))
                .collect()
        }
    }

    /// Reads the fields at 16 and at 200 of every session; gives the calls that it took.
    fn look(fields: &mut Fields, memory: &Counted, sessions: &[u64]) -> usize {
        let before = memory.calls.get();
        let look = fields.fetch(memory);
        for address in sessions.iter().flat_map(|at| [at + 16, at + 200]) {
            let value = look.read_u32(address).unwrap();
            assert_eq!(u64::from(value) & 0xff, address & 0xff);
        }
        *fields = look.learned();
        memory.calls.get() - before
    }

    #[test]
    fn the_second_look_is_one_call() {
        let (mut fields, memory) = (Fields::default(), Counted::default());
        let sessions = [0x1000, 0x2000, 0x2100, 0x9000];
        assert_eq!(look(&mut fields, &memory, &sessions), 8);
        assert_eq!(look(&mut fields, &memory, &sessions), 1);
        assert_eq!(memory.ranges.get(), 3, "neighbours are one range");
    }

    #[test]
    fn a_session_that_is_new_is_read_directly_and_fetched_from_then_on() {
        let (mut fields, memory) = (Fields::default(), Counted::default());
        look(&mut fields, &memory, &[0x1000, 0x2000]);
        assert_eq!(look(&mut fields, &memory, &[0x1000, 0x2000, 0x9000]), 3);
        assert_eq!(look(&mut fields, &memory, &[0x1000, 0x2000, 0x9000]), 1);
    }

    #[test]
    fn one_that_is_gone_is_forgotten() {
        let (mut fields, memory) = (Fields::default(), Counted::default());
        look(&mut fields, &memory, &[0x1000, 0x2000]);
        look(&mut fields, &memory, &[0x2000]);
        assert_eq!(fields, Fields::of(vec![(0x2010, 4), (0x20c8, 4)]));
    }

    #[test]
    fn a_range_that_has_become_unreadable_does_not_take_the_others_with_it() {
        let (mut fields, memory) = (
            Fields::of(vec![(0x1010, 192), (0x5010, 192)]),
            Counted::default(),
        );
        assert_eq!(look(&mut fields, &memory, &[0x1000]), 1);
        assert_eq!(fields, Fields::of(vec![(0x1010, 192)]));
        let look = Fields::of(vec![(0x5010, 8)]).fetch(&memory);
        assert!(look.read_u32(0x5010).is_err());
    }

    #[test]
    fn a_null_pointer_costs_no_call() {
        let memory = Counted::default();
        assert!(Fields::default().fetch(&memory).read_u64(14).is_err());
        assert_eq!(memory.calls.get(), 0);
    }

    #[test]
    fn a_range_ends_with_its_page_and_where_the_next_field_is_far() {
        let near = Fields::of(vec![(0x1f00, 8), (0x1ff8, 8), (0x2000, 8), (0x2800, 4)]);
        assert_eq!(near.ranges, [(0x1f00, 0x100), (0x2000, 8), (0x2800, 4)]);
        let over = Fields::of(vec![(0x1ffc, 8), (0x1ffc, 4), (0x2000, 4)]);
        assert_eq!(over.ranges, [(0x1ffc, 8)], "within a field across pages");
    }
}
