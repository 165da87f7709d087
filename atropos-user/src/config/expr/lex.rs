//! Text of an expression to tokens, one at a time, each with its place.

use super::{ExprError, NameKind, Op, nearest};

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Number(u64),
    /// A variable, or the name of a load in front of `(`.
    Word(&'a str),
    /// `@name` or `symbol(name)`; the name alone.
    Name(NameKind, &'a str),
    Operator(Op),
    Open,
    Close,
    End,
}

/// A token and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Spanned<'a> {
    pub(super) token: Token<'a>,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// Operators, the longer before its own beginning.
const OPERATORS: [(&str, Op); 12] = [
    ("&&", Op::And),
    ("||", Op::Or),
    ("==", Op::Equal),
    ("!=", Op::NotEqual),
    ("<=", Op::LessEqual),
    (">=", Op::GreaterEqual),
    ("<", Op::Less),
    (">", Op::Greater),
    ("*", Op::Multiply),
    ("+", Op::Add),
    ("-", Op::Subtract),
    ("&", Op::BitAnd),
];

/// What can stand in an expression, for error messages.
const TERMS: &str = "an expression is made of numbers, variables, @layout names, symbol(name), *x, u8/u16/u32/u64/i32(x), + - * &, \
                     == != < <= > >=, && || and parentheses";

/// The token that starts at or after `from`.
pub(super) fn next(text: &str, from: usize) -> Result<Spanned<'_>, ExprError> {
    let rest = &text[from..];
    let offset = from + (rest.len() - rest.trim_start().len());
    let rest = &text[offset..];
    let found = |token, len| Ok(Spanned { token, offset, len });
    let Some(first) = rest.chars().next() else {
        return found(Token::End, 0);
    };
    if first.is_ascii_digit() {
        let (value, len) = number(rest, offset)?;
        return found(Token::Number(value), len);
    }
    if is_word(first) {
        let len = word_length(rest);
        return match symbol(rest, len, offset)? {
            Some((name, len)) => found(Token::Name(NameKind::Symbol, name), len),
            None => found(Token::Word(&rest[..len]), len),
        };
    }
    if let Some(after) = rest.strip_prefix('@') {
        let len = word_length(after);
        if len == 0 {
            return Err(error(
                offset,
                1,
                "`@` without a name",
                "write a name of `[layout]` right after it, such as `@thd_id`",
            ));
        }
        return found(Token::Name(NameKind::Layout, &after[..len]), len + 1);
    }
    match first {
        '(' => return found(Token::Open, 1),
        ')' => return found(Token::Close, 1),
        _ => {}
    }
    if let Some((text, op)) = OPERATORS.iter().find(|(text, _)| rest.starts_with(text)) {
        return found(Token::Operator(*op), text.len());
    }
    Err(stray(first, offset))
}

/// The error for a character that starts no token.
fn stray(first: char, offset: usize) -> ExprError {
    let help = match first {
        '=' => "compare with `==`",
        '|' => "there is no bitwise or; the logical one is `||`",
        '!' => "write `x == 0` instead of `!x`",
        '[' => "write `*(x + 8)` instead of `x[8]`",
        '/' | '%' => "there is no division",
        _ => TERMS,
    };
    error(
        offset,
        first.len_utf8(),
        &format!("`{}` means nothing here", first.escape_debug()),
        help,
    )
}

/// A decimal or hexadecimal number and its length.
fn number(rest: &str, offset: usize) -> Result<(u64, usize), ExprError> {
    let len = word_length(rest);
    let digits = rest[..len].replace('_', "");
    let parsed = match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    parsed.map(|value| (value, len)).map_err(|_| {
        error(
            offset,
            len,
            &format!("`{}` is not a number of at most 64 bits", &rest[..len]),
            "write it in decimal (`264`) or hexadecimal (`0x108`)",
        )
    })
}

/// `symbol(name)`, if that is what starts here: the name and the length of the whole.
fn symbol(rest: &str, word: usize, offset: usize) -> Result<Option<(&str, usize)>, ExprError> {
    let inside = rest[word..].trim_start();
    let Some(inside) = (&rest[..word] == "symbol")
        .then(|| inside.strip_prefix('('))
        .flatten()
    else {
        return Ok(None);
    };
    let start = rest.len() - inside.len();
    let example = "write the name as the binary exports it, such as `symbol(server_threads)`";
    let Some(end) = inside.find(')') else {
        return Err(error(
            offset,
            rest.len(),
            "`symbol(` is not closed",
            example,
        ));
    };
    let name = inside[..end].trim();
    let allowed = |c: char| is_word(c) || matches!(c, '.' | '$' | '@');
    if name.is_empty() || !name.chars().all(allowed) {
        let message = match name {
            "" => "`symbol()` without a name".to_owned(),
            _ => format!("`{}` is not the name of a symbol", name.escape_debug()),
        };
        return Err(error(offset + start, end, &message, example));
    }
    Ok(Some((name, start + end + 1)))
}

/// Length of the word at the beginning.
fn word_length(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

/// Whether a character can be part of a word.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Shorthand for an error with help.
pub(super) fn error(offset: usize, len: usize, message: &str, help: &str) -> ExprError {
    ExprError {
        offset,
        len,
        message: message.to_owned(),
        help: (!help.is_empty()).then(|| help.to_owned()),
    }
}

/// The error for `word(` where no such load exists.
pub(super) fn unknown_function(word: &str, offset: usize) -> ExprError {
    let known = ["u8", "u16", "u32", "u64", "i32", "f64", "symbol"];
    let closest = nearest(word, known)
        .map(|name| format!("; closest: `{name}`"))
        .unwrap_or_default();
    let help =
        format!("allowed: u8(x), u16(x), u32(x), u64(x), i32(x), f64(x), symbol(name){closest}");
    error(
        offset,
        word.len(),
        &format!("unknown function `{word}`"),
        &help,
    )
}
