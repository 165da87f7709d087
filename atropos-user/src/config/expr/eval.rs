//! A bound expression to a value.

use super::bind::Part;
use super::{Op, Width};
use crate::memory::{Fault, Memory};

/// The value of a part.
pub(super) fn eval(part: &Part, variables: &[u64], memory: &dyn Memory) -> Result<u64, Fault> {
    match part {
        Part::Constant(value) => Ok(*value),
        Part::Variable { slot, .. } => variables.get(*slot).copied().ok_or(Fault { address: 0 }),
        Part::Load(width, address) => load(*width, eval(address, variables, memory)?, memory),
        Part::Binary(op, left, right) => {
            let left = eval(left, variables, memory)?;
            // The right side may be readable only if the left one allows it: `ticket != 0 && *(ticket + 8) == x`.
            match op {
                Op::And if left == 0 => Ok(0),
                Op::Or if left != 0 => Ok(1),
                _ => Ok(apply(*op, left, eval(right, variables, memory)?)),
            }
        }
    }
}

/// One operator over two values.
pub(super) fn apply(op: Op, left: u64, right: u64) -> u64 {
    match op {
        Op::Multiply => left.wrapping_mul(right),
        Op::Add => left.wrapping_add(right),
        Op::Subtract => left.wrapping_sub(right),
        Op::BitAnd => left & right,
        Op::Equal => u64::from(left == right),
        Op::NotEqual => u64::from(left != right),
        Op::Less => u64::from(left < right),
        Op::LessEqual => u64::from(left <= right),
        Op::Greater => u64::from(left > right),
        Op::GreaterEqual => u64::from(left >= right),
        Op::And => u64::from(left != 0 && right != 0),
        Op::Or => u64::from(left != 0 || right != 0),
    }
}

/// Reads little-endian bytes and widens them.
fn load(width: Width, address: u64, memory: &dyn Memory) -> Result<u64, Fault> {
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes[..width.bytes()])?;
    let value = u64::from_le_bytes(bytes);
    Ok(match width {
        Width::I32 => i64::from((value as u32).cast_signed()).cast_unsigned(),
        // What is below zero, or no number at all, is 0; what is too large is the largest.
        Width::F64 => f64::from_bits(value) as u64,
        _ => value,
    })
}
