//! The one argument grammar of the probe config: text in, a small tree out (`docs/config.md`, "Expressions").
//!
//! An [`Expr`] is what was typed. [`Expr::bind`] puts layout numbers, symbol addresses and variable slots in, which gives
//! a [`Bound`]: that can be evaluated over the target's memory ([`Bound::eval`]) or, if it is simple enough, compiled
//! to the steps that the kernel half interprets at a probe ([`Bound::compile`]). All arithmetic is unsigned 64-bit and
//! wraps; length and depth are bounded, so nothing here can run away whatever the text.

mod bind;
mod compile;
mod eval;
mod lex;
mod parse;

use std::fmt;

pub use bind::{BindError, Bindings, Bound};
pub use compile::{MAX_OPERANDS, PROBE_VARIABLES, USDT_VARIABLES};

use super::nearest;

/// Longest text of one expression, in bytes.
pub const MAX_LENGTH_BYTES: usize = 1000;

/// Deepest nesting of parentheses, loads and stars.
pub const MAX_DEPTH: usize = 32;

/// An expression as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    text: String,
    root: Node,
}

/// What is wrong with an expression, and where in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// Byte offset of the offending part.
    pub offset: usize,
    /// Its length in bytes; 0 at the end of the text.
    pub len: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.message, self.offset)?;
        self.help
            .as_ref()
            .map_or(Ok(()), |help| write!(f, " ({help})"))
    }
}

impl std::error::Error for ExprError {}

/// A name in an expression and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name, without `@` or `symbol()`.
    pub text: String,
    /// Byte offset in the text of the expression.
    pub offset: usize,
}

/// What a [`Name`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A variable such as `thd` or `arg0`.
    Variable,
    /// A layout number, `@name`.
    Layout,
    /// The address of an exported symbol, `symbol(name)`.
    Symbol,
}

/// How many bytes a load reads and how they widen to 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    U8,
    U16,
    U32,
    U64,
    I32,
    /// A floating-point number, cut to the whole number below it.
    F64,
}

impl Width {
    /// Every sized load with its name in the grammar.
    const ALL: [(&'static str, Self); 6] = [
        ("u8", Self::U8),
        ("u16", Self::U16),
        ("u32", Self::U32),
        ("u64", Self::U64),
        ("i32", Self::I32),
        ("f64", Self::F64),
    ];

    /// Bytes that the load reads.
    const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 | Self::I32 => 4,
            Self::U64 | Self::F64 => 8,
        }
    }
}

/// Operators of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Multiply,
    Add,
    Subtract,
    BitAnd,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
}

/// A part of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Number(u64),
    Name(NameKind, Name),
    Load(Width, Box<Node>),
    Binary(Op, Box<Node>, Box<Node>),
}

impl Expr {
    /// Reads an expression. Any text gives an expression or an error, never a panic.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        parse::parse(text).map(|root| Self {
            text: text.to_owned(),
            root,
        })
    }

    /// The text it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Every name of a kind, in the order of the text, as often as it stands there.
    pub fn names(&self, kind: NameKind) -> Vec<&Name> {
        let mut found = Vec::new();
        self.root.walk(&mut |node| match node {
            Node::Name(is, name) if *is == kind => found.push(name),
            _ => {}
        });
        found
    }

    /// If the whole expression is `left == right` or `left != right`: both sides, and whether equality is asked for.
    pub fn equality(&self) -> Option<(Self, bool, Self)> {
        let (equal, left, right) = match &self.root {
            Node::Binary(Op::Equal, left, right) => (true, left, right),
            Node::Binary(Op::NotEqual, left, right) => (false, left, right),
            _ => return None,
        };
        let side = |node: &Node| Self {
            text: self.text.clone(),
            root: node.clone(),
        };
        Some((side(left), equal, side(right)))
    }

    /// Puts numbers in the place of names.
    pub fn bind(&self, names: &Bindings) -> Result<Bound, BindError> {
        bind::bind(&self.root, names)
    }
}

impl Node {
    /// Visits this node and all below it, left to right.
    fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Self)) {
        visit(self);
        match self {
            Self::Number(_) | Self::Name(..) => {}
            Self::Load(_, address) => address.walk(visit),
            Self::Binary(_, left, right) => {
                left.walk(visit);
                right.walk(visit);
            }
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
