//! Statement text without its literals, and a stable hash of it: what may be shown and compared (DESIGN promise 7).

/// Longest digest, bytes.
const DIGEST_LIMIT: usize = 256;

/// The statement in lower case, literals as `?`, comments gone, blanks folded, cut to 256 bytes.
///
/// What ends a literal or a comment differs from server to server and by their settings (a backslash, `--` without a blank, `#`,
/// nested comments). Where two of them would read on at different places, the rest is left out: it might be the inside of a literal.
pub fn digest(statement: &str) -> String {
    let mut out = String::new();
    let mut rest = statement;
    while let Some(first) = rest.chars().next() {
        if out.len() >= DIGEST_LIMIT {
            break;
        }
        rest = match first {
            '\'' | '"' => literal(&mut out, quoted(rest, first)),
            '`' => name(&mut out, rest),
            '$' if !in_name(&out) => dollar(&mut out, rest),
            c if c.is_whitespace() => blank(&mut out, rest.trim_start()),
            '/' if rest.starts_with("/*") => blank(&mut out, comment(rest)),
            '#' => blank(&mut out, line(rest, false)),
            '-' if rest.starts_with("--") => {
                let in_all = rest[2..].starts_with(char::is_whitespace);
                blank(&mut out, line(rest, in_all))
            }
            c if c.is_ascii_digit() && word(&out).is_empty() => literal(&mut out, number(rest)),
            c => {
                out.extend(c.to_lowercase());
                &rest[c.len_utf8()..]
            }
        };
    }
    while out.len() > DIGEST_LIMIT {
        out.pop();
    }
    out.truncate(out.trim_end().len());
    out
}

/// FNV-1a of a digest: the same on every machine and in every version, so that recordings and audits can be compared.
/// 0 stands for "unknown", so the hash of an empty digest is 0.
pub fn fingerprint(digest: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    if digest.is_empty() {
        return 0;
    }
    digest.bytes().fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

/// Puts a `?`; several literals in a list (`in (1, 2, 3)`) are one, so that the length of a list does not matter.
fn literal<'a>(out: &mut String, rest: &'a str) -> &'a str {
    if let Some(list) = out.trim_end().strip_suffix(',').map(str::trim_end)
        && list.ends_with('?')
    {
        out.truncate(list.len());
    } else {
        out.push('?');
    }
    rest
}

/// One blank, unless there is one or nothing is there yet.
fn blank<'a>(out: &mut String, rest: &'a str) -> &'a str {
    if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
    rest
}

/// The word that the text so far ends within: `t1`, `_1`, `$1`; empty if there is none.
fn word(out: &str) -> &str {
    let before = out.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
    &out[before.len()..]
}

/// Whether it ends within a name, to which a dollar belongs.
fn in_name(out: &str) -> bool {
    word(out).starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// What follows a quoted text: the same whether a backslash escapes what comes after it or not, else nothing.
fn quoted(text: &str, quote: char) -> &str {
    let plain = ends(text, quote, false);
    if plain == ends(text, quote, true) {
        plain
    } else {
        ""
    }
}

/// What follows a quoted text; a doubled quote does not end it.
fn ends(text: &str, quote: char, escapes: bool) -> &str {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && escapes {
            chars.next();
        } else if c == quote {
            if chars.peek().is_some_and(|(_, next)| *next == quote) {
                chars.next();
            } else {
                return &text[at + c.len_utf8()..];
            }
        }
    }
    ""
}

/// Whether nothing in it begins a literal or a comment, wherever it is read from.
fn is_plain(text: &str) -> bool {
    !text.contains(['\'', '"', '`', '$', '\\', '#']) && !text.contains("--") && !text.contains("/*")
}

/// A name in backticks. Where a backtick means nothing the same is read as ordinary text.
fn name<'a>(out: &mut String, text: &'a str) -> &'a str {
    let Some((name, rest)) = text[1..].split_once('`').filter(|(name, _)| is_plain(name)) else {
        return literal(out, "");
    };
    out.push('`');
    out.push_str(&name.to_lowercase());
    out.push('`');
    rest
}

/// Text between two equal `$tag$`; another dollar (`$1`) is no quote.
fn dollar<'a>(out: &mut String, text: &'a str) -> &'a str {
    let tag = text[1..]
        .split_once('$')
        .filter(|(tag, _)| !tag.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|(tag, _)| tag.chars().all(|c| c.is_alphanumeric() || c == '_'));
    let Some((tag, inside)) = tag else {
        out.push('$');
        return &text[1..];
    };
    let quoted = inside.split_once(&format!("${tag}$"));
    let (_, rest) = quoted
        .filter(|(inside, _)| is_plain(inside))
        .unwrap_or_default();
    literal(out, rest)
}

/// What follows a comment; nothing if there is another within, which some servers nest.
fn comment(text: &str) -> &str {
    match text[2..].split_once("*/") {
        Some((inside, after)) if !inside.contains("/*") => after,
        _ => "",
    }
}

/// What follows a number (also hexadecimal, decimal, with an exponent).
fn number(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.')
}

/// What follows the rest of a line, which is a comment in all servers or in some: then only if nothing begins in it.
fn line(text: &str, in_all: bool) -> &str {
    let (line, after) = text.split_once('\n').unwrap_or((text, ""));
    let body = line.trim_start_matches(['#', '-']);
    if in_all || is_plain(body) { after } else { "" }
}

#[cfg(test)]
#[path = "statement_tests.rs"]
mod tests;
