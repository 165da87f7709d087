//! Walks: who holds what and who waits, read out of the target's memory from whoever waits.
//!
//! In: a preset's session list and walks, bound to one process, and a [`Memory`](crate::memory::Memory). Out: sessions and
//! a wait-for graph, each edge proved by the preset's checks. The target is not stopped and knows nothing of it, so a view
//! can be torn; what a torn view shows fails a check. Refused: an edge that any check speaks against. A walk that keeps
//! failing makes its resource blind, never a wrong edge.

mod cache;
mod graph;
mod label;
mod list;
mod notes;
mod progress;
mod sessions;
mod trust;

pub use cache::{Fields, Look};
pub use graph::{Edge, Graph, LockWalk, WaitFor};
pub use list::Ticket;
pub use sessions::{SessionList, SessionView, Times};
pub use trust::Trust;

use crate::config::expr::{BindError, Bindings, Bound};
use crate::config::{Formula, TextAt};
use crate::memory::{Fault, Memory};

/// Why a walk was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalkError {
    /// Memory that the walk points at cannot be read.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// A check that proves the layout does not hold.
    #[error("the check `{check}` does not hold for {what} {address:#x}")]
    Check {
        /// The check, as written in the preset, or in words.
        check: String,
        /// What it was made on.
        what: &'static str,
        /// Its address.
        address: u64,
    },
    /// A list is longer than the preset believes, or runs in a circle.
    #[error("the list at {head:#x} has more than {limit} entries")]
    TooLong {
        /// Where it ends.
        head: u64,
        /// The limit.
        limit: u32,
    },
}

/// A name in a preset's expression that this process has no value for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in `{expression}`: {cause}")]
pub struct Unbound {
    /// The expression.
    pub expression: String,
    /// What is missing.
    #[source]
    pub cause: BindError,
}

/// A bound expression that remembers how it was written.
#[derive(Clone, Debug)]
struct Check {
    bound: Bound,
    text: String,
}

impl Check {
    fn bind(formula: &Formula, names: &Bindings) -> Result<Self, Unbound> {
        Ok(Self {
            bound: bind(formula, names)?,
            text: formula.text().to_owned(),
        })
    }

    /// Whether it holds.
    fn holds(&self, variables: &[u64], memory: &dyn Memory) -> Result<bool, Fault> {
        Ok(self.bound.eval(variables, memory)? != 0)
    }

    /// Fails unless the check holds.
    fn hold(
        &self,
        variables: &[u64],
        memory: &dyn Memory,
        what: &'static str,
        address: u64,
    ) -> Result<(), WalkError> {
        if !self.holds(variables, memory)? {
            return Err(WalkError::Check {
                check: self.text.clone(),
                what,
                address,
            });
        }
        Ok(())
    }
}

/// Binds an expression.
fn bind(formula: &Formula, names: &Bindings) -> Result<Bound, Unbound> {
    formula.bind(names).map_err(|cause| Unbound {
        expression: formula.text().to_owned(),
        cause,
    })
}

/// Binds an expression that may be missing.
fn bind_some(formula: Option<&Formula>, names: &Bindings) -> Result<Option<Bound>, Unbound> {
    formula.map(|formula| bind(formula, names)).transpose()
}

/// Binds checks.
fn bind_checks(formulas: &[Formula], names: &Bindings) -> Result<Vec<Check>, Unbound> {
    formulas
        .iter()
        .map(|formula| Check::bind(formula, names))
        .collect()
}

/// A text in the target's memory, bound.
#[derive(Clone, Debug)]
struct Text {
    at: Bound,
    length: Option<Bound>,
    parts: u32,
    index: Option<Bound>,
    names: Vec<String>,
}

/// Longest text that is read, bytes.
const TEXT_LIMIT: usize = 1024;

impl Text {
    fn bind(text: &TextAt, names: &Bindings) -> Result<Self, Unbound> {
        let TextAt {
            at,
            length,
            parts,
            index,
            names: by_index,
        } = text;
        Ok(Self {
            at: bind(at, names)?,
            length: bind_some(length.as_ref(), names)?,
            parts: *parts,
            index: bind_some(index.as_ref(), names)?,
            names: by_index.clone(),
        })
    }

    /// Reads the text; its parts are joined by dots, and what is not UTF-8 is replaced. A null pointer reads as nothing.
    fn read(&self, variables: &[u64], memory: &dyn Memory) -> Result<String, Fault> {
        if let Some(index) = &self.index {
            let index = usize::try_from(index.eval(variables, memory)?).unwrap_or(usize::MAX);
            if let Some(name) = self.names.get(index) {
                return Ok(name.clone());
            }
        }
        let address = self.at.eval(variables, memory)?;
        if address == 0 {
            return Ok(String::new());
        }
        let bytes = match &self.length {
            Some(length) => {
                let length = usize::try_from(length.eval(variables, memory)?)
                    .unwrap_or(TEXT_LIMIT)
                    .min(TEXT_LIMIT);
                let mut bytes = vec![0; length];
                memory.read(address, &mut bytes)?;
                bytes
            }
            None => memory.read_c_string(address, TEXT_LIMIT)?,
        };
        let parts = bytes
            .split(|byte| *byte == 0)
            .filter(|part| !part.is_empty())
            .take(self.parts.max(1) as usize);
        Ok(parts
            .map(|part| String::from_utf8_lossy(part))
            .collect::<Vec<_>>()
            .join("."))
    }
}
