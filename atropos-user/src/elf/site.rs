//! What a probe at an address costs, and where nearby it costs less.
//!
//! The kernel emulates a few instructions under a uprobe and single-steps all others, which costs about 20 times as much
//! (rules: `arch/x86/kernel/uprobes.c`, `push_setup_insn` and `branch_setup_insn`). A site may move forward to an emulated
//! instruction when nothing that the probe wants to see can differ there: straight line, no branch lands in between, no
//! argument register and no memory written.

use std::fmt;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, Register,
};
use thiserror::Error;

use super::Image;

/// How many instructions ahead an emulated one is looked for.
const MAX_CROSSED: usize = 6;

/// What one hit costs, by how the kernel gets past the probed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// `push` or `nop`, emulated: about 0.5 µs. (`nop` of three and more bytes is emulated from Linux 6.18 on.)
    Cheap,
    /// Near jump or call, emulated: costs the same.
    Emulated,
    /// Single-stepped: about 10 µs.
    Expensive,
}

impl Cost {
    /// Whether the kernel emulates it: fit for a probe on a hot path.
    pub fn is_emulated(self) -> bool {
        self != Self::Expensive
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cheap => "cheap",
            Self::Emulated => "emulated",
            Self::Expensive => "expensive",
        })
    }
}

/// What the probe's arguments need to be as at the function's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Bit n: argument register n (`rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`).
    pub arguments: u8,
    /// The stack pointer: stack arguments and the return address.
    pub stack: bool,
}

impl Keep {
    /// All six argument registers, not the stack pointer.
    pub const ARGUMENTS: Self = Self {
        arguments: 0b11_1111,
        stack: false,
    };
    /// Argument registers and the stack pointer.
    pub const ALL: Self = Self {
        arguments: 0b11_1111,
        stack: true,
    };

    fn keeps(self, register: Register) -> bool {
        let argument = match register.full_register() {
            Register::RDI => 0,
            Register::RSI => 1,
            Register::RDX => 2,
            Register::RCX => 3,
            Register::R8 => 4,
            Register::R9 => 5,
            Register::RSP => return self.stack,
            _ => return false,
        };
        self.arguments & (1 << argument) != 0
    }
}

/// Where a probe sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Virtual address of the probe, before the load bias.
    pub vaddr: u64,
    /// Offset in the file: what the kernel attaches by.
    pub file_offset: u64,
    /// How many bytes behind the wanted address.
    pub moved: u8,
    /// What a hit costs there.
    pub cost: Cost,
    /// What was found and done, for people.
    pub why: String,
}

/// Why an address cannot carry a probe.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SiteError {
    /// The file is for another processor.
    #[error("cannot place a probe: only x86-64 code is understood")]
    OtherProcessor,
    /// No code of the file is there.
    #[error("cannot place a probe at {0:#x}: no code of the file is there")]
    NotCode(u64),
    /// The bytes there are no instruction, or one that the kernel does not let be probed.
    #[error("cannot place a probe at {vaddr:#x}: {why}")]
    Refused {
        /// The wanted address.
        vaddr: u64,
        /// What is there.
        why: String,
    },
}

impl Image<'_> {
    /// The best site for a probe at `vaddr` whose arguments are in registers.
    pub fn site(&self, vaddr: u64) -> Result<Site, SiteError> {
        self.site_keeping(vaddr, Keep::ARGUMENTS)
    }

    /// The best site for a probe at `vaddr` that needs `keep` as it is there.
    pub fn site_keeping(&self, vaddr: u64, keep: Keep) -> Result<Site, SiteError> {
        if !self.x86_64 {
            return Err(SiteError::OtherProcessor);
        }
        let not_code = SiteError::NotCode(vaddr);
        if !self
            .layout
            .segment_of_vaddr(vaddr)
            .is_some_and(|segment| segment.executable)
        {
            return Err(not_code);
        }
        // Branches into the stretch may come from before it, when the site is not the function's entry.
        let start = self.function_start(vaddr).unwrap_or(vaddr);
        let code = self
            .code_of_function(start)
            .filter(|code| (vaddr - start) < code.len() as u64)
            .ok_or(not_code)?;
        let choice =
            choose(code, start, vaddr, keep).map_err(|why| SiteError::Refused { vaddr, why })?;
        let Choice { moved, cost, why } = choice;
        let at = vaddr + u64::from(moved);
        let file_offset = self.layout.file_offset(at).ok_or(SiteError::NotCode(at))?;
        Ok(Site {
            vaddr: at,
            file_offset,
            moved,
            cost,
            why,
        })
    }

    fn function_start(&self, vaddr: u64) -> Option<u64> {
        let at = self
            .functions
            .partition_point(|&(start, _)| start <= vaddr)
            .checked_sub(1)?;
        let (start, size) = self.functions[at];
        (size == 0 || vaddr - start < size).then_some(start)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Choice {
    moved: u8,
    cost: Cost,
    why: String,
}

/// Chooses for the function `code` that begins at `start`.
fn choose(code: &[u8], start: u64, vaddr: u64, keep: Keep) -> Result<Choice, String> {
    let ahead = &code[(vaddr - start) as usize..];
    let mut decoder = Decoder::with_ip(64, ahead, vaddr, DecoderOptions::NONE);
    let first = decoder.decode();
    let first_cost = cost(&first, ahead)?;
    let name = name(&first);
    if first_cost.is_emulated() {
        return Ok(Choice {
            moved: 0,
            cost: first_cost,
            why: format!("`{name}`, emulated"),
        });
    }
    let stay = |reason: String| Choice {
        moved: 0,
        cost: Cost::Expensive,
        why: format!("`{name}`, single-stepped; {reason}"),
    };
    let landings = Landings::of(code, start);
    let mut info = InstructionInfoFactory::new();
    let mut crossed = first;
    for _ in 0..MAX_CROSSED {
        if let Some(reason) = forbids_crossing(&crossed, keep, &mut info) {
            return Ok(stay(format!("cannot move: {reason}")));
        }
        let offset = decoder.position();
        let next = decoder.decode();
        if landings.within(vaddr + 1, next.ip()) {
            return Ok(stay(
                "cannot move: a branch of the function lands behind it".to_owned(),
            ));
        }
        let Ok(next_cost) = cost(&next, &ahead[offset..]) else {
            return Ok(stay(
                "cannot move: what follows cannot be probed".to_owned(),
            ));
        };
        // A jump table may land anywhere, but on a `push` it would grow the stack with every round. An emulated call
        // pushes its return address on the stack alone: not where a shadow stack would compare it.
        let pushes = next.mnemonic() == Mnemonic::Push;
        let certain = pushes || (!landings.uncertain && next.flow_control() != FlowControl::Call);
        if next_cost.is_emulated() && certain {
            let moved = u8::try_from(offset).expect("six instructions of at most 15 bytes");
            let why = format!(
                "`{name}` would be single-stepped; moved {moved} bytes to `{}`, emulated",
                self::name(&next)
            );
            return Ok(Choice {
                moved,
                cost: next_cost,
                why,
            });
        }
        crossed = next;
    }
    Ok(stay(format!(
        "none of the next {MAX_CROSSED} instructions will do"
    )))
}

/// What keeps a probe from moving past this instruction.
fn forbids_crossing(
    crossed: &Instruction,
    keep: Keep,
    info: &mut InstructionInfoFactory,
) -> Option<String> {
    let name = name(crossed);
    if crossed.flow_control() != FlowControl::Next {
        return Some(format!("`{name}` branches"));
    }
    let used = info.info(crossed);
    let writes = |access: OpAccess| {
        !matches!(
            access,
            OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead
        )
    };
    if used
        .used_memory()
        .iter()
        .any(|memory| writes(memory.access()))
    {
        return Some(format!("`{name}` writes memory"));
    }
    let lost = used
        .used_registers()
        .iter()
        .find(|used| writes(used.access()) && keep.keeps(used.register()));
    lost.map(|lost| {
        format!(
            "`{name}` writes {}",
            format!("{:?}", lost.register().full_register()).to_lowercase()
        )
    })
}

pub(super) fn name(instruction: &Instruction) -> String {
    format!("{:?}", instruction.mnemonic()).to_lowercase()
}

/// Cost class of the instruction that begins `bytes`, or why the kernel refuses a probe on it.
pub(super) fn cost(instruction: &Instruction, bytes: &[u8]) -> Result<Cost, String> {
    if instruction.is_invalid() {
        return Err("the bytes there are no instruction".to_owned());
    }
    let bytes = &bytes[..instruction.len()];
    let privileged_or_trap = matches!(
        instruction.mnemonic(),
        Mnemonic::Int
            | Mnemonic::Int1
            | Mnemonic::Int3
            | Mnemonic::In
            | Mnemonic::Out
            | Mnemonic::Hlt
            | Mnemonic::Cli
            | Mnemonic::Sti
            | Mnemonic::Iret
            | Mnemonic::Iretq
            | Mnemonic::Iretd
    );
    // The kernel refuses these prefixes whatever follows (`is_prefix_bad`).
    let prefixes = bytes.iter().take_while(|byte| {
        matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    });
    let bad_prefix = prefixes
        .into_iter()
        .any(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0));
    if privileged_or_trap || bad_prefix {
        return Err(format!(
            "the kernel does not allow probes on this `{}`",
            name(instruction)
        ));
    }
    // `xchg %r8,%rax` is a `nop` with a REX prefix that the kernel overlooks (seen on 6.18): under a probe the exchange does
    // not happen, and the program goes on with the wrong values.
    if matches!(
        instruction.code(),
        Code::Xchg_r16_AX | Code::Xchg_r32_EAX | Code::Xchg_r64_RAX
    ) && bytes.ends_with(&[0x90])
    {
        return Err(
            "the kernel would skip this `xchg` under a probe and so change what the program does"
                .to_owned(),
        );
    }
    Ok(match bytes {
        [0x50..=0x57 | 0x90] | [0x41, 0x50..=0x57] | [0x66 | 0xf3, 0x90] => Cost::Cheap,
        [0x0f, 0x1f, modrm, ..] | [0x66, 0x0f, 0x1f, modrm, ..] if modrm & 0x38 == 0 => Cost::Cheap,
        [0xe8 | 0xe9, _, _, _, _] | [0xeb | 0x70..=0x7f, _] | [0x0f, 0x80..=0x8f, _, _, _, _] => {
            Cost::Emulated
        }
        _ => Cost::Expensive,
    })
}

/// Where branches inside a function land.
struct Landings {
    addresses: Vec<u64>,
    /// A jump table, or bytes that are no instruction: there may be landings that were not seen.
    uncertain: bool,
}

impl Landings {
    fn of(code: &[u8], start: u64) -> Self {
        let mut landings = Self {
            addresses: Vec::new(),
            uncertain: false,
        };
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        // An indirect jump is a tail call unless some table is indexed by pointers or by distances.
        let (mut jumps, mut indexes) = (false, false);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                | FlowControl::XbeginXabortXend => {
                    landings.addresses.push(instruction.near_branch_target());
                }
                // `call next; pop` is how position-independent code once found itself.
                FlowControl::Call if instruction.code() == Code::Call_rel32_64 => {
                    landings.addresses.push(instruction.near_branch_target());
                }
                FlowControl::IndirectBranch => jumps = true,
                _ => landings.uncertain |= instruction.is_invalid(),
            }
            indexes |= instruction.memory_index() != Register::None
                && instruction.memory_index_scale() >= 4;
        }
        landings.uncertain |= jumps && indexes;
        landings
    }

    fn within(&self, first: u64, last: u64) -> bool {
        self.addresses
            .iter()
            .any(|address| (first..=last).contains(address))
    }
}

#[cfg(test)]
mod tests;
