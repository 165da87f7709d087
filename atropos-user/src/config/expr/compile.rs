//! A bound expression to the steps that the kernel half interprets at a probe.
//!
//! What fits: a base, then additions of constants and 8-byte loads, at most [`MAX_STEPS`] in all; the last load may be
//! shorter. Everything else is refused with the reason: a probe that silently meant something else would be worse. At a USDT
//! site `arg0` to `arg11` are its operands, whose own load is a step too.

use atropos_common::limits::MAX_STEPS;
use atropos_common::site::{ArgSpec, Base};

use super::bind::Part;
use super::{Bound, Op, Width};
use crate::elf::operand::Start;

/// What a probe's expressions can start from, with the numbers of the kernel half.
const BASES: [(&str, Base); 10] = [
    ("arg0", Base::Arg0),
    ("arg1", Base::Arg1),
    ("arg2", Base::Arg2),
    ("arg3", Base::Arg3),
    ("arg4", Base::Arg4),
    ("arg5", Base::Arg5),
    ("ret", Base::Ret),
    ("tid", Base::Tid),
    ("pid", Base::Pid),
    ("stack", Base::Stack),
];

/// The variables of a probe's expressions, in the order of their slots.
pub const PROBE_VARIABLES: [&str; 10] = [
    "arg0", "arg1", "arg2", "arg3", "arg4", "arg5", "ret", "tid", "pid", "stack",
];

/// The variables at a USDT site: those of every probe, and six more arguments.
pub const USDT_VARIABLES: [&str; 16] = [
    "arg0", "arg1", "arg2", "arg3", "arg4", "arg5", "ret", "tid", "pid", "stack", "arg6", "arg7",
    "arg8", "arg9", "arg10", "arg11",
];

/// Most operands of a USDT site.
pub const MAX_OPERANDS: usize = 12;

/// Which operand a slot of [`USDT_VARIABLES`] stands for.
fn operand_of(slot: usize) -> Option<usize> {
    let first_more = PROBE_VARIABLES.len();
    match slot {
        0..6 => Some(slot),
        _ => Some(slot.checked_sub(first_more)? + 6).filter(|operand| *operand < MAX_OPERANDS),
    }
}

/// The kernel half's number of a probe variable.
pub(super) fn base_of(name: &str) -> Option<u8> {
    BASES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, base)| *base as u8)
}

impl Bound {
    /// The steps for the kernel half, or the reason why there are none.
    pub fn compile(&self) -> Result<ArgSpec, String> {
        self.compile_from(None, None)
    }

    /// The same at a USDT site with these operands; the expression was bound with [`USDT_VARIABLES`].
    pub fn compile_at(&self, operands: &[Result<Start, String>]) -> Result<ArgSpec, String> {
        self.compile_from(None, Some(operands))
    }

    /// The same at a site of this address, where symbols of its file can be told by their distance to it.
    pub fn compile_near(
        &self,
        site_address: u64,
        operands: Option<&[Result<Start, String>]>,
    ) -> Result<ArgSpec, String> {
        self.compile_from(Some(site_address), operands)
    }

    fn compile_from(
        &self,
        site_address: Option<u64>,
        operands: Option<&[Result<Start, String>]>,
    ) -> Result<ArgSpec, String> {
        let mut chain = Chain {
            base: 0,
            pending: 0,
            loads: Vec::new(),
            part: None,
            site_address,
            operands,
        };
        chain.follow(&self.root)?;
        chain.finish()
    }
}

/// The steps so far.
struct Chain<'a> {
    base: u8,
    /// Added since the last load.
    pending: i64,
    /// Displacement and size of each load, the size as in [`ArgSpec::size`].
    loads: Vec<(i64, u8)>,
    /// Only so much of the value counts: it is the part of a register.
    part: Option<u8>,
    /// Where the site lies.
    site_address: Option<u64>,
    /// What the arguments stand for at a USDT site.
    operands: Option<&'a [Result<Start, String>]>,
}

impl Chain<'_> {
    /// Appends what a part does, from its base outward.
    fn follow(&mut self, part: &Part) -> Result<(), String> {
        match part {
            Part::Constant(value) => {
                self.pending = value.cast_signed();
                // What is too far from 0 for a displacement may be near enough to the site.
                if let Some(site_address) = self.site_address
                    && i32::try_from(self.pending).is_err()
                {
                    self.base = Base::Site as u8;
                    self.pending = value.wrapping_sub(site_address).cast_signed();
                }
                Ok(())
            }
            Part::Variable { slot, .. }
                if self.operands.is_some() && operand_of(*slot).is_some() =>
            {
                self.begin(operand_of(*slot).unwrap_or_default())
            }
            Part::Variable {
                base: Some(base), ..
            } => {
                self.base = *base;
                Ok(())
            }
            Part::Variable { base: None, .. } => {
                Err(format!("a probe knows only {}", PROBE_VARIABLES.join(", ")))
            }
            Part::Load(Width::F64, _) => {
                Err("at a probe floating-point numbers cannot be read".to_owned())
            }
            Part::Load(width, address) => {
                self.follow(address)?;
                self.is_whole()?;
                let size = match width {
                    Width::I32 => 4 | ArgSpec::SIGNED,
                    _ => width.bytes() as u8,
                };
                self.loads.push((std::mem::take(&mut self.pending), size));
                Ok(())
            }
            Part::Binary(op, left, right) => self.add(*op, left, right),
        }
    }

    /// Begins with an operand of the site.
    fn begin(&mut self, operand: usize) -> Result<(), String> {
        let operands = self.operands.unwrap_or_default();
        let start = match operands.get(operand) {
            Some(Ok(start)) => start,
            Some(Err(reason)) => return Err(format!("arg{operand} of the site is {reason}")),
            None => {
                return Err(format!(
                    "the site has no arg{operand}: it has {} arguments",
                    operands.len()
                ));
            }
        };
        self.base = start.base as u8;
        if start.load {
            self.loads.push((start.add, start.size));
        } else {
            self.pending = start.add;
            self.part = Some(start.size).filter(|size| *size != 8);
        }
        Ok(())
    }

    /// Nothing can be done to the part of a register: the kernel half cuts only at the very end.
    fn is_whole(&self) -> Result<(), String> {
        self.part.map_or(Ok(()), |size| {
            Err(format!(
                "the argument has {} bytes there; at a probe only one of 8 bytes can be added to or dereferenced",
                size & !ArgSpec::SIGNED
            ))
        })
    }

    /// Appends an addition of a constant.
    fn add(&mut self, op: Op, left: &Part, right: &Part) -> Result<(), String> {
        let (inner, amount) = match (op, left, right) {
            (Op::Add, inner, Part::Constant(value)) | (Op::Add, Part::Constant(value), inner) => {
                (inner, value.cast_signed())
            }
            (Op::Subtract, inner, Part::Constant(value)) => {
                (inner, value.cast_signed().wrapping_neg())
            }
            (Op::Add | Op::Subtract, ..) => {
                return Err(
                    "at a probe only a constant can be added to or taken from a value".to_owned(),
                );
            }
            _ => {
                return Err(
                    "at a probe values can be added to and dereferenced, nothing else".to_owned(),
                );
            }
        };
        self.follow(inner)?;
        self.is_whole()?;
        self.pending = self.pending.wrapping_add(amount);
        Ok(())
    }

    /// Packs the steps.
    fn finish(self) -> Result<ArgSpec, String> {
        let mut spec = ArgSpec {
            base: self.base,
            ..ArgSpec::NONE
        };
        let trailing = (self.pending != 0).then_some((self.pending, None));
        let steps: Vec<_> = self
            .loads
            .iter()
            .map(|(add, size)| (*add, Some(*size)))
            .chain(trailing)
            .collect();
        if steps.len() > MAX_STEPS {
            return Err(format!(
                "it takes {} steps (a load, or an addition after the last load); a probe has {MAX_STEPS}",
                steps.len()
            ));
        }
        for (index, (add, size)) in steps.iter().enumerate() {
            spec.add[index] = i32::try_from(*add).map_err(|_| {
                format!("{add:#x} does not fit the 32 bits of a probe's displacement (a symbol's address only as the distance to a site in the same file)")
            })?;
            spec.steps += 1;
            let Some(size) = *size else { continue };
            spec.deref |= 1 << index;
            // The kernel half shortens only its very last step.
            let last = index + 1 == steps.len();
            if last {
                spec.size = size;
            } else if size & !ArgSpec::SIGNED != 8 {
                return Err(
                    "at a probe only the last step can be a load of less than 8 bytes".to_owned(),
                );
            }
        }
        spec.size = self.part.unwrap_or(spec.size);
        Ok(spec)
    }
}
