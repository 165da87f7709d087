//! Ring bytes to a record. Pure: every bit pattern gives a record or `None`.

use atropos_common::op::Op;
use atropos_common::record::EventRecord;
use bytes::Buf as _;

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
pub fn decode(mut bytes: &[u8]) -> Option<Decoded> {
    if bytes.len() != size_of::<EventRecord>() {
        return None;
    }
    // In the order of the fields; the two halves run on one machine, so bytes are in native order.
    let record = EventRecord {
        at_ns: bytes.get_u64_ne(),
        session: bytes.get_u64_ne(),
        instance: bytes.get_u64_ne(),
        value: bytes.get_u64_ne(),
        generation: bytes.get_u32_ne(),
        pid: bytes.get_u32_ne(),
        tid: bytes.get_u32_ne(),
        site: bytes.get_u16_ne(),
        resource: bytes.get_u16_ne(),
        op: bytes.get_u8(),
        flags: bytes.get_u8(),
        reserved: [0; 6],
    };
    Some(Decoded {
        op: Op::from_u8(record.op)?,
        record,
    })
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
