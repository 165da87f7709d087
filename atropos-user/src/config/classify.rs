//! Which kind of task a session's work is: by who it belongs to, or by the beginning of its statement.

use super::preset::{Preset, TaskClass};

impl Preset {
    /// Index of the first class that the work belongs to; `None` for an ordinary request.
    pub fn classify(&self, principal: &str, statement: &str) -> Option<u16> {
        let index = self
            .classes
            .iter()
            .position(|class| class.includes(principal, statement))?;
        u16::try_from(index).ok()
    }
}

impl TaskClass {
    /// Whether work of this user with this statement belongs to the class.
    fn includes(&self, principal: &str, statement: &str) -> bool {
        (self.without_principal && principal.is_empty())
            || self.principals.iter().any(|known| known == principal)
            || self
                .statements
                .iter()
                .any(|start| begins_with(statement, start))
    }
}

/// Whether a statement begins with these words, whatever its case, white space and leading comments.
fn begins_with(statement: &str, words: &str) -> bool {
    let mut rest = skip_blank(statement);
    for word in words.split(' ') {
        let Some(head) = rest.get(..word.len()) else {
            return false;
        };
        if !head.eq_ignore_ascii_case(word) || rest[word.len()..].starts_with(is_word) {
            return false;
        }
        rest = skip_blank(&rest[word.len()..]);
    }
    true
}

/// The text behind white space, opening parentheses and comments.
fn skip_blank(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
        match rest
            .strip_prefix("/*")
            .and_then(|comment| comment.split_once("*/"))
        {
            Some((_, after)) => rest = after,
            None => return rest,
        }
    }
}

/// Whether a word goes on with this character.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_known_by_its_first_words_in_any_case_and_spacing() {
        assert!(begins_with(
            "  FLUSH\n TABLES  with read LOCK",
            "flush tables with read lock"
        ));
        assert!(begins_with("/* job 7 */ insert into t", "insert"));
        assert!(begins_with("(SELECT 1) UNION (SELECT 2)", "select"));
    }

    #[test]
    fn a_longer_word_is_another_word() {
        assert!(!begins_with("altered_states()", "alter"));
        assert!(!begins_with(
            "flush tables with",
            "flush tables with read lock"
        ));
        assert!(!begins_with("", "alter"));
        assert!(!begins_with("/* unfinished", "alter"));
        assert!(!begins_with("alté", "alter"));
    }
}
