//! An operand of x86-64 as the kernel half can begin an expression with it.

use atropos_common::site::{ArgSpec, Base};

use super::{Location, Operand, Register};

/// Bases by the processor's number of the register.
const BASES: [Base; 17] = [
    Base::Ret,
    Base::Arg3,
    Base::Arg2,
    Base::Rbx,
    Base::Stack,
    Base::Rbp,
    Base::Arg1,
    Base::Arg0,
    Base::Arg4,
    Base::Arg5,
    Base::R10,
    Base::R11,
    Base::R12,
    Base::R13,
    Base::R14,
    Base::R15,
    Base::Site,
];

/// Number of `rip`.
const RIP: u8 = super::x86::RIP;

/// How an expression begins that stands on an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Register, or none for a number or a fixed address.
    pub base: Base,
    /// Added to it.
    pub add: i64,
    /// The sum is an address and the value lies there.
    pub load: bool,
    /// Size and sign as in [`ArgSpec::size`].
    pub size: u8,
}

impl Operand {
    /// The beginning for the kernel half. `site_vaddr` is where the site lies, `symbol_vaddr` knows the symbols of its file.
    ///
    /// # Errors
    /// A reason, when the operand was not understood or takes more than one register.
    pub fn start(
        &self,
        site_vaddr: u64,
        symbol_vaddr: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Start, String> {
        let location = self.location.as_ref().map_err(Clone::clone)?;
        let sized = |bytes: u8| bytes | if self.signed { ArgSpec::SIGNED } else { 0 };
        match location {
            Location::Constant(value) => Ok(constant(*value, self.bytes, self.signed)),
            Location::Register(register) => Ok(Start {
                base: base(*register)?,
                add: 0,
                load: false,
                size: sized(self.bytes.min(register.bytes)),
            }),
            Location::Memory { index: Some(_), .. } => {
                Err("an index register, which the kernel half does not have".to_owned())
            }
            Location::Memory {
                displacement,
                symbol,
                base: register,
                ..
            } => {
                let mut add = *displacement;
                let relative = register.is_some_and(|register| register.number == RIP);
                if let Some(name) = symbol {
                    if !relative {
                        return Err(format!("the absolute address of `{name}`"));
                    }
                    let vaddr = symbol_vaddr(name)
                        .ok_or_else(|| format!("the file does not export `{name}`"))?;
                    add = add.wrapping_add(vaddr.wrapping_sub(site_vaddr).cast_signed());
                } else if relative {
                    return Err("a distance to an instruction that is not named".to_owned());
                }
                Ok(Start {
                    base: register.map_or(Ok(Base::None), whole)?,
                    add,
                    load: true,
                    size: sized(self.bytes),
                })
            }
        }
    }
}

/// A number. What has 4 bytes but does not fit a displacement is the sum's low half.
fn constant(value: i64, bytes: u8, signed: bool) -> Start {
    let value = narrowed(value, bytes, signed);
    let wide = bytes == 4 && i32::try_from(value).is_err();
    Start {
        base: Base::None,
        add: if wide { i64::from(value as i32) } else { value },
        load: false,
        size: if wide { 4 } else { 8 },
    }
}

/// A register whose value is wanted.
fn base(register: Register) -> Result<Base, String> {
    if register.high {
        return Err("the second byte of a register".to_owned());
    }
    BASES
        .get(usize::from(register.number))
        .copied()
        .ok_or_else(|| "a register of another processor".to_owned())
}

/// A register that an address is made of.
fn whole(register: Register) -> Result<Base, String> {
    if register.bytes != 8 {
        return Err("an address of less than 8 bytes".to_owned());
    }
    base(register)
}

/// The low bytes of a number, widened by zeros or by the sign.
fn narrowed(value: i64, bytes: u8, signed: bool) -> i64 {
    let shift = 64 - 8 * u32::from(bytes.clamp(1, 8));
    if signed {
        (value << shift) >> shift
    } else {
        ((value << shift).cast_unsigned() >> shift).cast_signed()
    }
}
