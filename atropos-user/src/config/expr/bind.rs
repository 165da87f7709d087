//! Names to numbers: layout entries and symbols become constants, variables become slots, constants are folded.

use std::collections::BTreeMap;

use super::{Name, NameKind, Node, Op, Width, eval};
use crate::memory::Fault;

/// What the names of an expression stand for in one process.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    variables: Vec<String>,
    layout: BTreeMap<String, u64>,
    symbols: BTreeMap<String, u64>,
}

impl Bindings {
    /// No names at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same layout and symbols with these variables: the first is slot 0. Where a name comes twice, the later slot
    /// is meant (an inner name hides an outer one).
    #[must_use]
    pub fn with_variables<S: Into<String>>(&self, names: impl IntoIterator<Item = S>) -> Self {
        Self {
            variables: names.into_iter().map(Into::into).collect(),
            ..self.clone()
        }
    }

    /// Adds a layout number (negative ones wrap).
    pub fn add_layout(&mut self, name: &str, value: u64) {
        self.layout.insert(name.to_owned(), value);
    }

    /// Adds the run-time address of a symbol.
    pub fn add_symbol(&mut self, name: &str, address: u64) {
        self.symbols.insert(name.to_owned(), address);
    }

    /// A layout number.
    pub fn layout(&self, name: &str) -> Option<u64> {
        self.layout.get(name).copied()
    }

    /// The variables, by slot.
    pub fn variables(&self) -> &[String] {
        &self.variables
    }
}

/// A name that stands for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} `{}` has no value", match kind { NameKind::Variable => "variable", NameKind::Layout => "layout number", NameKind::Symbol => "symbol" }, name.text)]
pub struct BindError {
    /// What kind of name.
    pub kind: NameKind,
    /// Which, and where.
    pub name: Name,
}

/// An expression whose names have become numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub(super) root: Part,
}

/// A part of a bound expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Constant(u64),
    /// A slot, and the register base if the name is one of a probe's.
    Variable {
        slot: usize,
        base: Option<u8>,
    },
    Load(Width, Box<Part>),
    Binary(Op, Box<Part>, Box<Part>),
}

/// Binds a tree.
pub(super) fn bind(root: &Node, names: &Bindings) -> Result<Bound, BindError> {
    Ok(Bound {
        root: part(root, names)?,
    })
}

/// Binds one node and folds it if it is constant.
fn part(node: &Node, names: &Bindings) -> Result<Part, BindError> {
    match node {
        Node::Number(value) => Ok(Part::Constant(*value)),
        Node::Name(kind, name) => value_of(*kind, name, names).ok_or_else(|| BindError {
            kind: *kind,
            name: name.clone(),
        }),
        Node::Load(width, address) => Ok(Part::Load(*width, Box::new(part(address, names)?))),
        Node::Binary(op, left, right) => Ok(join(*op, part(left, names)?, part(right, names)?)),
    }
}

/// What a name stands for.
fn value_of(kind: NameKind, name: &Name, names: &Bindings) -> Option<Part> {
    match kind {
        NameKind::Variable => {
            let slot = names
                .variables
                .iter()
                .rposition(|variable| *variable == name.text)?;
            Some(Part::Variable {
                slot,
                base: super::compile::base_of(&name.text),
            })
        }
        NameKind::Layout => names.layout.get(&name.text).copied().map(Part::Constant),
        NameKind::Symbol => names.symbols.get(&name.text).copied().map(Part::Constant),
    }
}

/// Joins two parts, at once if both are constants. `&&` and `||` fold on their left side alone, as they do when evaluated.
fn join(op: Op, left: Part, right: Part) -> Part {
    match (op, &left, &right) {
        (Op::And, Part::Constant(0), _) => Part::Constant(0),
        (Op::Or, Part::Constant(a), _) if *a != 0 => Part::Constant(1),
        (_, Part::Constant(a), Part::Constant(b)) => Part::Constant(eval::apply(op, *a, *b)),
        _ => Part::Binary(op, Box::new(left), Box::new(right)),
    }
}

impl Bound {
    /// The value, if it depends on nothing.
    pub fn constant(&self) -> Option<u64> {
        match self.root {
            Part::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The value over these variables and this memory. Allocates nothing. A slot that `variables` does not have is a
    /// fault at address 0: whoever bound the expression promised that many.
    pub fn eval(
        &self,
        variables: &[u64],
        memory: &dyn crate::memory::Memory,
    ) -> Result<u64, Fault> {
        eval::eval(&self.root, variables, memory)
    }
}
