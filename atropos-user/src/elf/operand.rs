//! Operands of USDT probes: the compiler's text, such as `-4@12(%rbx)`, to a place and a size.
//!
//! Both syntaxes are read, AT&T's of x86-64 and that of aarch64; any text gives a list, and what cannot be used in it is an
//! operand with a reason. What the kernel half can evaluate is decided by [`Operand::start`], for x86-64 alone.

mod arm;
mod start;
#[cfg(test)]
mod tests;
mod x86;

use std::fmt;

pub use start::Start;

/// Whose syntax a text has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// AT&T syntax.
    X86_64,
    /// Syntax of aarch64.
    Aarch64,
}

/// A register, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// x86-64: `rax` 0, `rcx` 1, `rdx` 2, `rbx` 3, `rsp` 4, `rbp` 5, `rsi` 6, `rdi` 7, `r8` to `r15`, `rip` 16. aarch64: `x0` to
    /// `x30`, `sp` 31, `xzr` 32.
    pub number: u8,
    /// How many of its bytes are meant: 1, 2, 4 or 8.
    pub bytes: u8,
    /// The second byte instead of the lowest (`%ah`).
    pub high: bool,
}

/// Where a value lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// It is this number.
    Constant(i64),
    /// In a register.
    Register(Register),
    /// In memory, at `displacement + symbol + base + index * scale`.
    Memory {
        /// Number added to the rest.
        displacement: i64,
        /// Symbol whose address is added; relative to the code if `base` is `rip`.
        symbol: Option<String>,
        /// Register added.
        base: Option<Register>,
        /// Register added `scale` times.
        index: Option<Register>,
        /// 1, 2, 4 or 8.
        scale: u8,
    },
}

/// One argument of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// As it stands in the note.
    pub text: String,
    /// Bytes of the value: 1, 2, 4 or 8.
    pub bytes: u8,
    /// The value has a sign.
    pub signed: bool,
    /// Where it lies, or why that is not understood.
    pub location: Result<Location, String>,
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads the operands of one note, in order.
pub fn parse(text: &str, machine: Machine) -> Vec<Operand> {
    split(text)
        .into_iter()
        .map(|one| operand(one, machine))
        .collect()
}

/// The operands' texts: parted by blanks, but not within brackets (`8@[sp, 24]`).
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_u32, None);
    for (at, character) in text.char_indices() {
        if character.is_whitespace() && depth == 0 {
            if let Some(start) = start.take() {
                parts.push(&text[start..at]);
            }
            continue;
        }
        start.get_or_insert(at);
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    parts.extend(start.map(|start| &text[start..]));
    parts
}

/// One operand: `SIZE@PLACE`, the size negative for signed values and left out by old tools (8 bytes then).
fn operand(text: &str, machine: Machine) -> Operand {
    let (size, place) = match text.split_once('@') {
        Some((size, place)) if is_size(size) => (size, place),
        _ => ("8", text),
    };
    let signed = size.starts_with('-');
    let digits = size.trim_start_matches('-');
    let bytes = match digits {
        "1" | "2" | "4" | "8" => digits.as_bytes()[0] - b'0',
        _ => 0,
    };
    let location = if digits.ends_with('f') {
        Err("a floating-point value".to_owned())
    } else if bytes == 0 {
        Err(format!(
            "a value of `{digits}` bytes; 1, 2, 4 and 8 are understood"
        ))
    } else {
        match machine {
            Machine::X86_64 => x86::location(place),
            Machine::Aarch64 => arm::location(place),
        }
    };
    Operand {
        text: text.to_owned(),
        bytes: bytes.max(1),
        signed,
        location,
    }
}

/// Whether this is what stands before the `@`, and not the beginning of a versioned symbol.
fn is_size(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let digits = digits.strip_suffix('f').unwrap_or(digits);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number as assemblers write it: decimal, or hexadecimal with `0x`; beyond 63 bits it is the pattern of a negative one.
fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let magnitude = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok()?,
        None => digits.parse().ok()?,
    };
    let value = magnitude.cast_signed();
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}
