//! Tokens to a tree, by precedence. From loosest to tightest: `||`, `&&`, comparisons, `&`, `+ -`, `*`, prefix `*` and `-`.

use super::lex::{self, Spanned, Token, error};
use super::{ExprError, MAX_DEPTH, MAX_LENGTH_BYTES, Name, NameKind, Node, Op, Width};

/// Precedence of comparisons, which do not chain.
const COMPARISON: u8 = 3;

/// Reads a whole text.
pub(super) fn parse(text: &str) -> Result<Node, ExprError> {
    if text.len() > MAX_LENGTH_BYTES {
        let message = format!("the expression has {} bytes", text.len());
        return Err(error(
            0,
            text.len(),
            &message,
            &format!("at most {MAX_LENGTH_BYTES}; split it into `let` entries"),
        ));
    }
    let mut parser = Parser {
        text,
        next: lex::next(text, 0)?,
    };
    if parser.next.token == Token::End {
        return Err(error(
            0,
            text.len(),
            "the expression is empty",
            "write at least a number or a variable",
        ));
    }
    let root = parser.binary(1, 0)?;
    match parser.next.token {
        Token::End => Ok(root),
        Token::Close => Err(parser.here("`)` without `(`", "")),
        _ => Err(parser.here(
            "an operator is missing in front of this",
            "join two terms with + - * & == != < <= > >= && or ||",
        )),
    }
}

/// How tightly an operator binds.
const fn precedence(op: Op) -> u8 {
    match op {
        Op::Or => 1,
        Op::And => 2,
        Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual => {
            COMPARISON
        }
        Op::BitAnd => 4,
        Op::Add | Op::Subtract => 5,
        Op::Multiply => 6,
    }
}

/// The text and the token that comes next.
struct Parser<'a> {
    text: &'a str,
    next: Spanned<'a>,
}

impl<'a> Parser<'a> {
    /// Takes the next token.
    fn take(&mut self) -> Result<Spanned<'a>, ExprError> {
        let following = lex::next(self.text, self.next.offset + self.next.len)?;
        Ok(std::mem::replace(&mut self.next, following))
    }

    /// An error at the next token.
    fn here(&self, message: &str, help: &str) -> ExprError {
        error(self.next.offset, self.next.len, message, help)
    }

    /// Terms joined by operators that bind at least as tightly as `least`.
    fn binary(&mut self, least: u8, depth: usize) -> Result<Node, ExprError> {
        let mut left = self.unary(depth)?;
        let mut compared = false;
        while let Token::Operator(op) = self.next.token {
            let level = precedence(op);
            if level < least {
                break;
            }
            if level == COMPARISON && std::mem::replace(&mut compared, true) {
                return Err(self.here(
                    "comparisons do not chain",
                    "put one of them in parentheses, or join them with `&&`",
                ));
            }
            self.take()?;
            let right = self.binary(level + 1, depth + 1)?;
            left = Node::Binary(op, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    /// A term with its prefixes.
    fn unary(&mut self, depth: usize) -> Result<Node, ExprError> {
        if depth > MAX_DEPTH {
            return Err(self.here(
                "the expression is nested too deep",
                &format!("at most {MAX_DEPTH} levels; split it into `let` entries"),
            ));
        }
        match self.next.token {
            Token::Operator(Op::Multiply) => {
                self.take()?;
                Ok(Node::Load(Width::U64, Box::new(self.unary(depth + 1)?)))
            }
            Token::Operator(Op::Subtract) => {
                self.take()?;
                let operand = self.unary(depth + 1)?;
                Ok(Node::Binary(
                    Op::Subtract,
                    Box::new(Node::Number(0)),
                    Box::new(operand),
                ))
            }
            _ => self.term(depth),
        }
    }

    /// A number, a name, a sized load or something in parentheses.
    fn term(&mut self, depth: usize) -> Result<Node, ExprError> {
        match self.next.token {
            Token::Number(value) => {
                self.take()?;
                Ok(Node::Number(value))
            }
            Token::Name(kind, name) => {
                let offset = self.next.offset;
                self.take()?;
                Ok(Node::Name(
                    kind,
                    Name {
                        text: name.to_owned(),
                        offset,
                    },
                ))
            }
            Token::Word(word) => self.word(word, depth),
            Token::Open => self.parentheses(depth),
            Token::Close => Err(self.here("a term is missing in front of `)`", "")),
            Token::Operator(_) => Err(self.here("a term is missing in front of this operator", "")),
            Token::End => Err(self.here("the expression ends where a term is expected", "")),
        }
    }

    /// A variable, or a sized load if a parenthesis follows.
    fn word(&mut self, word: &str, depth: usize) -> Result<Node, ExprError> {
        let offset = self.next.offset;
        self.take()?;
        if self.next.token != Token::Open {
            return Ok(Node::Name(
                NameKind::Variable,
                Name {
                    text: word.to_owned(),
                    offset,
                },
            ));
        }
        match Width::ALL.into_iter().find(|(name, _)| *name == word) {
            Some((_, width)) => Ok(Node::Load(width, Box::new(self.parentheses(depth)?))),
            None => Err(lex::unknown_function(word, offset)),
        }
    }

    /// Something in parentheses; the next token is the open one.
    fn parentheses(&mut self, depth: usize) -> Result<Node, ExprError> {
        let open = self.take()?;
        let inside = self.binary(1, depth + 1)?;
        match self.next.token {
            Token::Close => {
                self.take()?;
                Ok(inside)
            }
            Token::End => Err(error(open.offset, open.len, "`(` is not closed", "")),
            _ => Err(self.here("an operator or `)` is missing in front of this", "")),
        }
    }
}
