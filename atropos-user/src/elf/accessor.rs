//! Offsets of fields learned from the target's own accessors: a function such as `thd_query_id` is one load off its first
//! argument and a return, so its displacement *is* the offset in this build.
//!
//! Takes straight-line functions of a few instructions only. Whatever makes a displacement doubtful (a branch, a call, a
//! changed `rdi`) is refused with the reason: a wrong offset is worse than none.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use thiserror::Error;

use super::{Image, NotFound, SymbolPattern};

const MAX_INSTRUCTIONS: usize = 12;

/// Why no displacement could be learned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccessorError {
    /// No one function has this name.
    #[error("cannot read an offset out of `{name}`: {why}")]
    NoFunction {
        /// The pattern as written.
        name: String,
        /// What the symbol tables say.
        why: NotFound,
    },
    /// The function is not a plain accessor.
    #[error(
        "cannot read an offset out of `{name}`: {why}; give the offset as a number, or name another function"
    )]
    Refused {
        /// The pattern as written.
        name: String,
        /// What the disassembler saw.
        why: String,
    },
}

impl Image<'_> {
    /// The displacement of the `nth` (from 0) memory operand off the first argument of a small accessor function.
    pub fn accessor(&self, name: &str, nth: usize) -> Result<i64, AccessorError> {
        let symbol =
            self.find(&SymbolPattern::new(name))
                .map_err(|why| AccessorError::NoFunction {
                    name: name.to_owned(),
                    why,
                })?;
        let refused = |why: String| AccessorError::Refused {
            name: name.to_owned(),
            why,
        };
        if !self.x86_64 {
            return Err(refused("only x86-64 code can be disassembled".to_owned()));
        }
        let code = self
            .code_of_function(symbol.vaddr)
            .ok_or_else(|| refused("its code is not in the file".to_owned()))?;
        displacement(code, symbol.vaddr, nth).map_err(refused)
    }
}

fn displacement(code: &[u8], vaddr: u64, nth: usize) -> Result<i64, String> {
    let mut decoder = Decoder::with_ip(64, code, vaddr, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut seen_count = 0;
    let seen = |count: usize| {
        format!(
            "{count} operand{} off its first argument",
            if count == 1 { "" } else { "s" }
        )
    };
    for _ in 0..MAX_INSTRUCTIONS {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err("its code cannot be decoded".to_owned());
        }
        if let Some(displacement) = off_first_argument(&instruction)? {
            if seen_count == nth {
                return Ok(displacement);
            }
            seen_count += 1;
        }
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Return => {
                return Err(format!(
                    "it returns after {}, number {nth} (from 0) is wanted",
                    seen(seen_count)
                ));
            }
            _ => {
                return Err(format!(
                    "it branches or calls after {}, so what follows may not run",
                    seen(seen_count)
                ));
            }
        }
        let writes_rdi = info.info(&instruction).used_registers().iter().any(|used| {
            used.register().full_register() == Register::RDI
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
        });
        if writes_rdi {
            return Err(format!("it changes rdi after {}", seen(seen_count)));
        }
    }
    Err(format!(
        "it is longer than {MAX_INSTRUCTIONS} instructions with {}: no plain accessor",
        seen(seen_count)
    ))
}

/// Displacement of a memory operand based on `rdi` alone.
fn off_first_argument(instruction: &Instruction) -> Result<Option<i64>, String> {
    let has_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    if !has_memory || instruction.mnemonic() == Mnemonic::Nop {
        return Ok(None);
    }
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    if index.full_register() == Register::RDI || (base == Register::RDI && index != Register::None)
    {
        return Err("it indexes an array with its first argument".to_owned());
    }
    if base != Register::RDI || instruction.segment_prefix() != Register::None {
        return Ok(None);
    }
    Ok(Some(instruction.memory_displacement64().cast_signed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(code: &[u8], nth: usize) -> Result<i64, String> {
        displacement(code, 0x1000, nth)
    }

    #[test]
    fn one_load_and_a_return_tell_the_offset() {
        assert_eq!(
            learn(&[0x48, 0x8b, 0x87, 0x18, 0x3f, 0, 0, 0xc3], 0),
            Ok(0x3f18),
            "mov 0x3f18(%rdi),%rax"
        );
        assert_eq!(
            learn(&[0x48, 0x8d, 0x87, 0x60, 0x01, 0, 0, 0xc3], 0),
            Ok(0x160),
            "lea 0x160(%rdi),%rax"
        );
        assert_eq!(
            learn(&[0x0f, 0xb6, 0x87, 0x99, 0x40, 0, 0, 0xc3], 0),
            Ok(0x4099),
            "movzbl 0x4099(%rdi),%eax"
        );
        assert_eq!(
            learn(&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8b, 0x07, 0xc3], 0),
            Ok(0),
            "endbr64; mov (%rdi),%rax"
        );
        assert_eq!(
            learn(&[0x48, 0x8b, 0x47, 0xf8, 0xc3], 0),
            Ok(-8),
            "mov -8(%rdi),%rax"
        );
    }

    #[test]
    fn later_operands_are_counted_from_zero() {
        // imul $1000000,0x27e8(%rdi),%rax; add 0x27f0(%rdi),%rax; ret
        let code = [
            0x48, 0x69, 0x87, 0xe8, 0x27, 0, 0, 0x40, 0x42, 0x0f, 0, 0x48, 0x03, 0x87, 0xf0, 0x27,
            0, 0, 0xc3,
        ];
        assert_eq!(learn(&code, 0), Ok(0x27e8));
        assert_eq!(learn(&code, 1), Ok(0x27f0));
        assert!(learn(&code, 2).unwrap_err().contains("after 2 operands"));
    }

    #[test]
    fn nothing_is_read_behind_a_branch_or_a_call() {
        let branch = [0x85, 0xf6, 0x74, 0x04, 0x48, 0x8b, 0x47, 0x10, 0xc3];
        assert!(
            learn(&branch, 0).unwrap_err().contains("branches"),
            "test; je; mov 0x10(%rdi)"
        );
        let tail = [0xe9, 0, 0, 0, 0, 0x48, 0x8b, 0x47, 0x10, 0xc3];
        assert!(
            learn(&tail, 0).unwrap_err().contains("branches"),
            "jmp elsewhere"
        );
        let call = [0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x47, 0x10, 0xc3];
        assert!(learn(&call, 0).unwrap_err().contains("calls"));
    }

    #[test]
    fn nothing_is_read_off_a_changed_first_argument() {
        let moved = [0x48, 0x8b, 0x7f, 0x08, 0x48, 0x8b, 0x47, 0x10, 0xc3];
        assert_eq!(
            learn(&moved, 0),
            Ok(8),
            "mov 8(%rdi),%rdi reads before it writes"
        );
        assert!(learn(&moved, 1).unwrap_err().contains("changes rdi"));
        assert!(
            learn(&[0x31, 0xff, 0x48, 0x8b, 0x47, 0x10, 0xc3], 0)
                .unwrap_err()
                .contains("changes rdi"),
            "xor %edi,%edi"
        );
    }

    #[test]
    fn arrays_nops_and_long_functions_are_no_accessors() {
        assert!(
            learn(&[0x48, 0x8b, 0x44, 0xf7, 0x10, 0xc3], 0)
                .unwrap_err()
                .contains("array"),
            "mov 0x10(%rdi,%rsi,8)"
        );
        assert!(
            learn(&[0x0f, 0x1f, 0x47, 0x10, 0xc3], 0)
                .unwrap_err()
                .contains("0 operands"),
            "nopl 0x10(%rdi)"
        );
        assert!(learn(&[0x90; 64], 0).unwrap_err().contains("longer"));
        assert!(learn(&[0x06], 0).unwrap_err().contains("decoded"));
        assert!(learn(&[], 0).unwrap_err().contains("decoded"));
    }
}
