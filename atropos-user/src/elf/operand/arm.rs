//! Syntax of aarch64: `5`, `x0`, `w3`, `[x1]`, `[sp, 24]`, `[x0, x1, lsl 3]`.

use super::{Location, Register, number};

/// Number of the stack pointer.
const STACK: u8 = 31;

/// Number of the register that is always zero.
const ZERO: u8 = 32;

/// Reads a place.
pub(super) fn location(text: &str) -> Result<Location, String> {
    if let Some(constant) = number(text.strip_prefix('#').unwrap_or(text)) {
        return Ok(Location::Constant(constant));
    }
    let Some(inside) = text.strip_prefix('[') else {
        return register(text).map(Location::Register);
    };
    let inside = inside
        .strip_suffix(']')
        .ok_or_else(|| format!("`{text}` is not closed"))?;
    let mut parts = inside.split(',').map(str::trim);
    let base = register(parts.next().unwrap_or_default())?;
    let (mut displacement, mut index, mut scale) = (0, None, 1);
    if let Some(second) = parts.next() {
        match number(second.strip_prefix('#').unwrap_or(second)) {
            Some(value) => displacement = value,
            None => index = Some(register(second)?),
        }
    }
    if let Some(shift) = parts.next() {
        scale = shifted(shift)
            .filter(|_| index.is_some())
            .ok_or_else(|| format!("`{shift}` is no shift of an index"))?;
    }
    if parts.next().is_some() {
        return Err(format!("`{text}` has too many parts"));
    }
    Ok(Location::Memory {
        displacement,
        symbol: None,
        base: Some(base),
        index,
        scale,
    })
}

/// The factor of `lsl 0` to `lsl 3`.
fn shifted(text: &str) -> Option<u8> {
    let by = text.strip_prefix("lsl")?.trim();
    match by.strip_prefix('#').unwrap_or(by) {
        "0" => Some(1),
        "1" => Some(2),
        "2" => Some(4),
        "3" => Some(8),
        _ => None,
    }
}

/// Reads a register.
fn register(text: &str) -> Result<Register, String> {
    let unknown = || format!("the register `{text}`, which is no general one");
    let (number, bytes) = match text {
        "sp" => (STACK, 8),
        "wsp" => (STACK, 4),
        "xzr" => (ZERO, 8),
        "wzr" => (ZERO, 4),
        "fp" => (29, 8),
        "lr" => (30, 8),
        _ => {
            let bytes = match text.chars().next() {
                Some('x') => 8,
                Some('w') => 4,
                _ => return Err(unknown()),
            };
            let digits = &text[1..];
            let number: u8 = digits.parse().map_err(|_| unknown())?;
            if number > 30 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(unknown());
            }
            (number, bytes)
        }
    };
    Ok(Register {
        number,
        bytes,
        high: false,
    })
}
