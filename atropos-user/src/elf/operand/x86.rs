//! AT&T syntax: `$5`, `%r8d`, `-136(%rbp)`, `8(%rax,%rbx,4)`, `40+Stats(%rip)`.

use super::{Location, Register, number};

/// The general registers in the processor's numbering: 8, 4, 2 and 1 bytes of each.
const REGISTERS: [[&str; 4]; 16] = [
    ["rax", "eax", "ax", "al"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rsp", "esp", "sp", "spl"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["r8", "r8d", "r8w", "r8b"],
    ["r9", "r9d", "r9w", "r9b"],
    ["r10", "r10d", "r10w", "r10b"],
    ["r11", "r11d", "r11w", "r11b"],
    ["r12", "r12d", "r12w", "r12b"],
    ["r13", "r13d", "r13w", "r13b"],
    ["r14", "r14d", "r14w", "r14b"],
    ["r15", "r15d", "r15w", "r15b"],
];

/// Number of `rip`.
pub(super) const RIP: u8 = 16;

/// Reads a place.
pub(super) fn location(text: &str) -> Result<Location, String> {
    if let Some(constant) = text.strip_prefix('$') {
        return number(constant)
            .map(Location::Constant)
            .ok_or_else(|| format!("the constant `{constant}` is no number"));
    }
    if text.starts_with('%') && !text.contains(':') {
        return register(text).map(Location::Register);
    }
    if text.starts_with('%') {
        return Err("relative to a segment register (thread-local)".to_owned());
    }
    let (offset, inside) = match text.split_once('(') {
        Some((offset, rest)) => {
            let inside = rest
                .strip_suffix(')')
                .ok_or_else(|| format!("`{text}` is not closed"))?;
            (offset, Some(inside))
        }
        None => (text, None),
    };
    let (displacement, symbol) = displacement(offset)?;
    if inside.is_none() && offset.is_empty() {
        return Err("nothing".to_owned());
    }
    let mut parts = inside.into_iter().flat_map(|inside| inside.split(','));
    let mut part = || parts.next().map(str::trim).filter(|part| !part.is_empty());
    let base = part().map(register).transpose()?;
    let index = part().map(register).transpose()?;
    let scale = part().map_or(Ok(1), |scale| match scale {
        "1" | "2" | "4" | "8" => Ok(scale.as_bytes()[0] - b'0'),
        _ => Err(format!("the scale `{scale}` is none of 1, 2, 4, 8")),
    })?;
    if parts.next().is_some() {
        return Err(format!("`{text}` has too many parts"));
    }
    if index.is_some_and(|index| index.number == RIP || index.number == 4) {
        return Err(format!(
            "`{text}` has an index that no instruction can have"
        ));
    }
    Ok(Location::Memory {
        displacement,
        symbol,
        base,
        index,
        scale,
    })
}

/// What stands before the brackets: a number, a symbol, or a sum of both.
fn displacement(text: &str) -> Result<(i64, Option<String>), String> {
    let unknown = || format!("`{text}` is no displacement");
    let mut sum = 0_i64;
    let mut symbol = None;
    let mut rest = text;
    while !rest.is_empty() {
        let signed = rest.starts_with(['+', '-']);
        let end = rest[usize::from(signed)..]
            .find(['+', '-'])
            .map_or(rest.len(), |end| end + usize::from(signed));
        let (term, tail) = rest.split_at(end);
        if let Some(value) = number(term) {
            sum = sum.checked_add(value).ok_or_else(unknown)?;
        } else {
            let name = term.strip_prefix('+').unwrap_or(term);
            let fine = |c: char| c.is_ascii_alphanumeric() || "_.$@".contains(c);
            if name.is_empty() || !name.chars().all(fine) || symbol.is_some() {
                return Err(unknown());
            }
            if let Some((_, relocation)) = name.split_once('@') {
                return Err(format!("a symbol through `@{relocation}`"));
            }
            symbol = Some(name.to_owned());
        }
        rest = tail;
    }
    Ok((sum, symbol))
}

/// Reads a register with its `%`.
fn register(text: &str) -> Result<Register, String> {
    let name = text
        .strip_prefix('%')
        .ok_or_else(|| format!("`{text}` is no register"))?;
    if name == "rip" {
        return Ok(Register {
            number: RIP,
            bytes: 8,
            high: false,
        });
    }
    if let Some(number) = ["ah", "ch", "dh", "bh"]
        .iter()
        .position(|high| *high == name)
    {
        return Ok(Register {
            number: number as u8,
            bytes: 1,
            high: true,
        });
    }
    for (number, names) in REGISTERS.iter().enumerate() {
        if let Some(width) = names.iter().position(|known| *known == name) {
            return Ok(Register {
                number: number as u8,
                bytes: 8 >> width,
                high: false,
            });
        }
    }
    Err(format!("the register `{text}`, which is no general one"))
}
