//! Ring bytes to a record. Pure: every bit pattern gives a record or `None`.

use atropos_common::op::Op;
use atropos_common::record::EventRecord;

/// A record whose operation is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The operation.
    pub op: Op,
    /// The record.
    pub record: EventRecord,
}

/// Reads one record; `None` if it has the wrong length or an operation that this agent does not know.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Decoded> {
    let bytes: &[u8; size_of::<EventRecord>()] = bytes.try_into().ok()?;
    let u64_at = |at: usize| u64::from_ne_bytes(field(bytes, at));
    let u32_at = |at: usize| u32::from_ne_bytes(field(bytes, at));
    let u16_at = |at: usize| u16::from_ne_bytes(field(bytes, at));
    let record = EventRecord {
        at_ns: u64_at(0),
        session: u64_at(8),
        instance: u64_at(16),
        value: u64_at(24),
        generation: u32_at(32),
        pid: u32_at(36),
        tid: u32_at(40),
        site: u16_at(44),
        resource: u16_at(46),
        op: bytes[48],
        flags: bytes[49],
        reserved: field(bytes, 50),
    };
    Some(Decoded {
        op: Op::from_u8(record.op)?,
        record,
    })
}

/// `N` bytes at a constant offset.
fn field<const N: usize>(bytes: &[u8; size_of::<EventRecord>()], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_where_the_kernel_half_puts_them() {
        let mut bytes = [0_u8; 56];
        bytes[0] = 1;
        bytes[8] = 2;
        bytes[16] = 3;
        bytes[24] = 4;
        bytes[32] = 5;
        bytes[36] = 6;
        bytes[40] = 7;
        bytes[44] = 8;
        bytes[46] = 9;
        bytes[48] = Op::WaitBegin as u8;
        bytes[49] = EventRecord::ARG_UNKNOWN;
        let Decoded { op, record } = decode(&bytes).unwrap();
        assert_eq!(op, Op::WaitBegin);
        let expected = EventRecord {
            at_ns: 1,
            session: 2,
            instance: 3,
            value: 4,
            generation: 5,
            pid: 6,
            tid: 7,
            site: 8,
            resource: 9,
            op: Op::WaitBegin as u8,
            flags: EventRecord::ARG_UNKNOWN,
            reserved: [0; 6],
        };
        assert_eq!(record, expected);
    }

    #[test]
    fn a_record_of_another_length_or_operation_is_refused() {
        assert_eq!(decode(&[0; 55]), None);
        assert_eq!(decode(&[0; 56]), None);
        let mut bytes = [0_u8; 56];
        bytes[48] = 200;
        assert_eq!(decode(&bytes), None);
    }
}
