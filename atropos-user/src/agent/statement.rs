//! Statement text without its literals, and a stable hash of it: what may be shown and compared (DESIGN promise 7).

/// Longest digest, bytes.
const DIGEST_LIMIT: usize = 256;

/// The statement in lower case, literals as `?`, comments gone, blanks folded, cut to 256 bytes.
pub fn digest(statement: &str) -> String {
    let mut out = String::new();
    let mut rest = statement;
    while let Some(first) = rest.chars().next() {
        if out.len() >= DIGEST_LIMIT {
            break;
        }
        rest = match first {
            '\'' | '"' => literal(&mut out, quoted(rest, first)),
            c if c.is_whitespace() => blank(&mut out, rest.trim_start()),
            '/' if rest.starts_with("/*") => blank(
                &mut out,
                rest.split_once("*/").map_or("", |(_, after)| after),
            ),
            '#' => blank(&mut out, line(rest)),
            '-' if rest.starts_with("-- ") => blank(&mut out, line(rest)),
            c if c.is_ascii_digit() && !in_word(&out) => literal(&mut out, number(rest)),
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

/// Whether the text so far ends within a word (`t1`, `_1`), so that a digit belongs to it.
fn in_word(out: &str) -> bool {
    out.chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$' || c == '`')
}

/// What follows a quoted text; a backslash or a doubled quote does not end it.
fn quoted(text: &str, quote: char) -> &str {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
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

/// What follows a number (also hexadecimal, decimal, with an exponent).
fn number(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.')
}

/// What follows the rest of a line.
fn line(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, after)| after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_comments_and_blanks_do_not_matter() {
        let plain = digest("SELECT c FROM t1 WHERE id=5 AND name = 'it''s'");
        assert_eq!(plain, "select c from t1 where id=? and name = ?");
        assert_eq!(
            digest("select /* hint */ c\n from t1  where id=77 and name = \"x\\\"y\" -- end"),
            plain
        );
        assert_eq!(
            fingerprint(&plain),
            fingerprint(&digest("select c from t1 where id=0x1f and name = ''"))
        );
    }

    #[test]
    fn the_length_of_a_list_does_not_matter() {
        assert_eq!(
            digest("delete from t where id in (1, 2,3)"),
            "delete from t where id in (?)"
        );
    }

    #[test]
    fn a_digit_within_a_name_is_no_literal() {
        assert_eq!(
            digest("alter table sbtest21 add c2 int"),
            "alter table sbtest21 add c2 int"
        );
    }

    #[test]
    fn a_digest_is_bounded_and_never_cuts_a_character() {
        let long = digest(&"ü".repeat(1000));
        assert!(long.len() <= DIGEST_LIMIT);
        assert!(long.chars().all(|c| c == 'ü'));
    }

    #[test]
    fn an_unfinished_quote_shows_nothing_of_its_text() {
        assert_eq!(digest("select 'secret"), "select ?");
    }

    #[test]
    fn nothing_has_the_fingerprint_of_the_unknown() {
        assert_eq!(fingerprint(""), 0);
        assert_ne!(fingerprint("commit"), 0);
    }
}
