//! Above all: no text of a literal is shown, whichever server's rules it is a literal by.

use proptest::prelude::*;

use super::*;

#[test]
fn literals_comments_and_blanks_do_not_matter() {
    let plain = digest("SELECT c FROM t1 WHERE id=5 AND name = 'it''s'");
    assert_eq!(plain, "select c from t1 where id=? and name = ?");
    assert_eq!(
        digest("select /* hint */ c\n from t1  where id=77 and name = \"x\\ny\" -- end"),
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
fn no_server_s_way_to_quote_shows_what_is_quoted() {
    for (statement, shown) in [
        (
            "ALTER ROLE app PASSWORD $$hunter2$$ VALID UNTIL 'x'",
            "alter role app password ? valid until ?",
        ),
        (
            "alter role app password $tag$hunter2$$ $tag$",
            "alter role app password ?",
        ),
        (
            r"update t set path = 'C:\', pw = 'hunter2' where id = 1",
            "update t set path = ?",
        ),
        (r"select 'it\'s', 'hunter2'", "select ?"),
        ("select `it's`, 'hunter2'", "select ?"),
        ("select 5--'hunter2", "select ?"),
        ("select a #> 'hunter2'\n hunter2", "select a"),
        ("select /* a /* b */ hunter2 */ 1", "select"),
        ("select `My Name`, `t1`", "select `my name`, `t1`"),
        (
            "select c from t where id = $1 and a$b$c = 2",
            "select c from t where id = $1 and a$b$c = ?",
        ),
        ("select 1 -- it's\n + 2", "select ? + ?"),
        ("select 1 # plain\n + 2", "select ? + ?"),
    ] {
        assert_eq!(digest(statement), shown, "{statement}");
    }
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

/// By whose rules a statement is read.
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// A backslash escapes what follows it in a literal.
    backslash: bool,
    /// `#` begins a comment.
    hash: bool,
    /// `--` begins a comment only before a blank.
    dashes_want_blank: bool,
    /// Comments nest.
    nested: bool,
    /// `$tag$` quotes.
    dollar: bool,
    /// A backtick quotes a name.
    backtick: bool,
}

const MARIADB: Rules = Rules {
    backslash: true,
    hash: true,
    dashes_want_blank: true,
    nested: false,
    dollar: false,
    backtick: true,
};

const POSTGRESQL: Rules = Rules {
    backslash: false,
    hash: false,
    dashes_want_blank: false,
    nested: true,
    dollar: true,
    backtick: false,
};

impl Rules {
    /// Letters of the text that lie within a literal.
    fn secrets(self, text: &[char]) -> Vec<char> {
        let mut secrets = Vec::new();
        let mut at = 0;
        // A dollar belongs to a name that has begun.
        let mut in_name = false;
        while at < text.len() {
            let rest = &text[at..];
            let next = rest.get(1).copied();
            let was_in_name = in_name;
            in_name = if was_in_name {
                rest[0].is_alphanumeric() || matches!(rest[0], '$' | '_')
            } else {
                rest[0].is_alphabetic() || rest[0] == '_'
            };
            at += match rest[0] {
                '\'' | '"' => self.literal(rest, &mut secrets),
                '`' if self.backtick => self.literal(rest, &mut Vec::new()),
                '$' if self.dollar && !was_in_name => dollar_quoted(rest, &mut secrets),
                '#' if self.hash => to_line_end(rest),
                '-' if next == Some('-')
                    && (!self.dashes_want_blank
                        || rest.get(2).is_some_and(|c| c.is_whitespace())) =>
                {
                    to_line_end(rest)
                }
                '/' if next == Some('*') => self.comment(rest),
                _ => 1,
            };
        }
        secrets
    }

    fn literal(self, text: &[char], secrets: &mut Vec<char>) -> usize {
        let quote = text[0];
        let escapes = self.backslash && quote != '`';
        let mut at = 1;
        while at < text.len() {
            if escapes && text[at] == '\\' {
                secrets.extend(text.get(at + 1));
                at += 2;
            } else if text[at] != quote {
                secrets.push(text[at]);
                at += 1;
            } else if text.get(at + 1) == Some(&quote) {
                at += 2;
            } else {
                return at + 1;
            }
        }
        text.len()
    }

    fn comment(self, text: &[char]) -> usize {
        let (mut at, mut depth) = (2, 1);
        while at < text.len() {
            match text[at..] {
                ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
                ['/', '*', ..] if self.nested => (at, depth) = (at + 2, depth + 1),
                _ => at += 1,
            }
            if depth == 0 {
                return at;
            }
        }
        text.len()
    }
}

fn to_line_end(text: &[char]) -> usize {
    let end = text.iter().position(|c| *c == '\n');
    end.map_or(text.len(), |end| end + 1)
}

/// A tag is empty or letters.
fn dollar_quoted(text: &[char], secrets: &mut Vec<char>) -> usize {
    let Some(length) = text[1..].iter().position(|c| !c.is_alphanumeric()) else {
        return 1;
    };
    let tag = &text[..length + 2];
    if tag[length + 1] != '$' || tag[1].is_ascii_digit() {
        return 1;
    }
    let inside = &text[tag.len()..];
    let end = inside.windows(tag.len()).position(|window| window == tag);
    let end = end.unwrap_or(inside.len());
    secrets.extend(&inside[..end]);
    (tag.len() + end + tag.len()).min(text.len())
}

/// Letters, each of which occurs once, among what begins and ends literals and comments.
fn statements() -> impl Strategy<Value = Vec<char>> {
    let pieces = prop::sample::select(vec![
        "'", "'", "'", "\"", "`", "\\", "$", "$$", "$t$", "--", "-- ", "#", "/*", "*/", " ", "\n",
        "x", "x", "x", ",",
    ]);
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| {
        let mut letters = ('\u{3400}'..='\u{4db5}').cycle();
        let one = |c: char| {
            if c == 'x' {
                letters.next().unwrap_or(c)
            } else {
                c
            }
        };
        pieces.concat().chars().map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_letter_of_a_literal_is_shown(text in statements()) {
        let statement: String = text.iter().collect();
        let shown = digest(&statement);
        let no_escapes = Rules { backslash: false, ..MARIADB };
        for rules in [MARIADB, no_escapes, POSTGRESQL] {
            for secret in rules.secrets(&text).into_iter().filter(|c| *c >= '\u{3400}') {
                prop_assert!(!shown.contains(secret), "{statement:?} as {shown:?} by {rules:?}");
            }
        }
    }
}
