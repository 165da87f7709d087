//! Addresses of variables that no symbol names, learned from an exported function that begins by reading one: the load tells
//! by its distance to the code where the variable lies in this build.
//!
//! As with accessors, only what certainly runs is looked at, and whatever is doubtful is refused with the reason.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::{AccessorError, Image, NotFound, SymbolPattern};

const MAX_INSTRUCTIONS: usize = 12;

/// Bytes of a pointer.
const POINTER_BYTES: usize = 8;

impl Image<'_> {
    /// The virtual address of the `nth` (from 0) pointer that a function loads from a variable before it branches.
    pub fn global(&self, name: &str, nth: usize) -> Result<u64, AccessorError> {
        let no_function = |why: NotFound| AccessorError::NoFunction {
            name: name.to_owned(),
            why,
        };
        let symbol = self.find(&SymbolPattern::new(name)).map_err(no_function)?;
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
        variable(code, symbol.vaddr, nth).map_err(refused)
    }
}

fn variable(code: &[u8], vaddr: u64, nth: usize) -> Result<u64, String> {
    let mut decoder = Decoder::with_ip(64, code, vaddr, DecoderOptions::NONE);
    let mut seen_count = 0;
    for _ in 0..MAX_INSTRUCTIONS {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err("its code cannot be decoded".to_owned());
        }
        if loads_pointer(&instruction) {
            if seen_count == nth {
                return Ok(instruction.ip_rel_memory_address());
            }
            seen_count += 1;
        }
        if instruction.flow_control() != FlowControl::Next {
            return Err(format!(
                "it branches, calls or returns after {seen_count} loads of a variable, number {nth} (from 0) is wanted"
            ));
        }
    }
    Err(format!(
        "its first {MAX_INSTRUCTIONS} instructions have {seen_count} loads of a variable, number {nth} (from 0) is wanted"
    ))
}

/// A plain load of a pointer that lies at a distance to the code.
fn loads_pointer(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op1_kind() == OpKind::Memory
        && instruction.is_ip_rel_memory_operand()
        && instruction.memory_size().size() == POINTER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_load_by_distance_tells_where_the_variable_is() {
        // mov 0x10(%rip),%rax; test %rax,%rax; mov 0x20(%rip),%rcx; je
        let code = [
            0x48, 0x8b, 0x05, 0x10, 0, 0, 0, 0x48, 0x85, 0xc0, 0x48, 0x8b, 0x0d, 0x20, 0, 0, 0,
            0x74, 0x00,
        ];
        assert_eq!(variable(&code, 0x1000, 0), Ok(0x1017));
        assert_eq!(variable(&code, 0x1000, 1), Ok(0x1031));
        assert!(variable(&code, 0x1000, 2).unwrap_err().contains("branches"));
    }

    #[test]
    fn what_is_no_load_of_a_pointer_does_not_count() {
        for (code, what) in [
            (&[0x8b, 0x05, 0x10, 0, 0, 0, 0xc3][..], "four bytes"),
            (&[0x48, 0x89, 0x05, 0x10, 0, 0, 0, 0xc3], "a store"),
            (&[0x48, 0x8d, 0x05, 0x10, 0, 0, 0, 0xc3], "an address"),
            (&[0x48, 0x8b, 0x47, 0x10, 0xc3], "a member"),
        ] {
            assert!(
                variable(code, 0x1000, 0)
                    .unwrap_err()
                    .contains("after 0 loads"),
                "{what}"
            );
        }
        assert!(
            variable(&[0x90; 64], 0, 0)
                .unwrap_err()
                .contains("have 0 loads")
        );
        assert!(variable(&[0x06], 0, 0).unwrap_err().contains("decoded"));
    }
}
