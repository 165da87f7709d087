//! A bound expression to the steps that the kernel half interprets at a probe.
//!
//! What fits: a base, then additions of constants and 8-byte loads, at most [`MAX_STEPS`] in all; the last load may be
//! shorter. Everything else is refused with the reason: a probe that silently meant something else would be worse.

use atropos_common::limits::MAX_STEPS;
use atropos_common::site::{ArgSpec, Base};

use super::bind::Part;
use super::{Bound, Op, Width};

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
        let mut chain = Chain::default();
        chain.follow(&self.root)?;
        chain.finish()
    }
}

/// The steps so far.
#[derive(Default)]
struct Chain {
    base: u8,
    /// Added since the last load.
    pending: i64,
    loads: Vec<(i64, Width)>,
}

impl Chain {
    /// Appends what a part does, from its base outward.
    fn follow(&mut self, part: &Part) -> Result<(), String> {
        match part {
            Part::Constant(value) => {
                self.pending = value.cast_signed();
                Ok(())
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
            Part::Load(width, address) => {
                self.follow(address)?;
                self.loads.push((std::mem::take(&mut self.pending), *width));
                Ok(())
            }
            Part::Binary(op, left, right) => self.add(*op, left, right),
        }
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
            .map(|(add, width)| (*add, Some(*width)))
            .chain(trailing)
            .collect();
        if steps.len() > MAX_STEPS {
            return Err(format!(
                "it takes {} steps (a load, or an addition after the last load); a probe has {MAX_STEPS}",
                steps.len()
            ));
        }
        for (index, (add, width)) in steps.iter().enumerate() {
            spec.add[index] = i32::try_from(*add).map_err(|_| {
                format!("{add:#x} does not fit the 32 bits of a probe's displacement (addresses of symbols never do)")
            })?;
            spec.steps += 1;
            let Some(width) = width else { continue };
            spec.deref |= 1 << index;
            // The kernel half shortens only its very last step.
            let last = index + 1 == steps.len();
            match width {
                Width::I32 => return Err("a probe cannot sign-extend: use u32(x)".to_owned()),
                Width::U64 => {}
                _ if last => spec.size = width.bytes() as u8,
                _ => {
                    return Err(
                        "at a probe only the last step can be a load of less than 8 bytes"
                            .to_owned(),
                    );
                }
            }
        }
        Ok(spec)
    }
}
