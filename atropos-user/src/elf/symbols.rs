//! Which symbol a pattern means. A pattern that means several functions, or none, is an error that helps: it lists them, or
//! names the closest. Never a guess.

use std::fmt;

use thiserror::Error;

use super::table::{Entry, Kind};
use super::{Image, demangle};

const CLOSEST_COUNT: usize = 3;
const CLOSE_ENOUGH: f64 = 0.7;

/// A defined function or variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name in the symbol table, mangled if it is C++.
    pub name: String,
    /// Virtual address, before the load bias.
    pub vaddr: u64,
    /// Size that the symbol table gives; 0 when it gives none.
    pub size: u64,
    /// Where its bytes are in the file; `None` for zero-filled variables.
    pub file_offset: Option<u64>,
}

/// What a user writes to name a function: its name in the symbol table, its demangled path without parameters
/// (`MDL_context::acquire_lock`), or either with `*` for any characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SymbolPattern(String);

impl SymbolPattern {
    /// Takes the pattern as written, without spaces around it.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_glob(&self) -> bool {
        // `operator*` is a name.
        self.0.replace("operator*", "").contains('*')
    }

    fn matches_text(&self, text: &str) -> bool {
        if self.is_glob() {
            glob_matches(self.0.as_bytes(), text.as_bytes())
        } else {
            self.0 == text
        }
    }
}

impl From<&str> for SymbolPattern {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for SymbolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a pattern names no one symbol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotFound {
    /// Nothing matches.
    #[error("no {kind} `{pattern}` among {symbol_count} {kind}s{}", closest_text(.closest))]
    Missing {
        /// The pattern as written.
        pattern: String,
        /// `function` or `variable`.
        kind: &'static str,
        /// How many symbols of the kind the file defines.
        symbol_count: usize,
        /// The closest names, best first.
        closest: Vec<String>,
    },
    /// Several different functions match.
    #[error("`{pattern}` means {} functions; name one of them: {}", .candidates.len(), .candidates.join(", "))]
    Ambiguous {
        /// The pattern as written.
        pattern: String,
        /// Mangled names with the demangled one beside it, in the order of addresses.
        candidates: Vec<String>,
    },
    /// The symbol is a resolver that chooses the function at load time: a probe there would fire once.
    #[error(
        "`{0}` is an indirect function: the loader picks its code at start; name the implementation instead"
    )]
    Indirect(String),
}

fn closest_text(closest: &[String]) -> String {
    if closest.is_empty() {
        String::new()
    } else {
        format!("; closest: {}", closest.join(", "))
    }
}

impl<'a> Image<'a> {
    /// The one function that the pattern means. Names that share an address (constructor and destructor variants) are one.
    pub fn find(&self, pattern: &SymbolPattern) -> Result<Symbol, NotFound> {
        let exact = self.entries_named(pattern.as_str());
        if let Some(found) = exact
            .iter()
            .find(|entry| entry.kind == Kind::IndirectFunction)
        {
            return Err(NotFound::Indirect(found.name.to_owned()));
        }
        let mut found: Vec<Entry<'a>> = exact
            .iter()
            .filter(|entry| entry.kind == Kind::Function)
            .copied()
            .collect();
        if found.is_empty() {
            found = self.matching(pattern);
        }
        found.sort_unstable_by_key(|entry| (entry.vaddr, entry.name));
        found.dedup_by_key(|entry| entry.vaddr);
        match found.as_slice() {
            [] => Err(self.missing(pattern.as_str(), Kind::Function)),
            [one] => Ok(self.symbol(one)),
            several => Err(NotFound::Ambiguous {
                pattern: pattern.as_str().to_owned(),
                candidates: several.iter().map(candidate).collect(),
            }),
        }
    }

    /// The variable of exactly this (mangled) name, or with this demangled path.
    pub fn data_symbol(&self, name: &str) -> Result<Symbol, NotFound> {
        let mut found: Vec<Entry<'a>> = self
            .entries_named(name)
            .iter()
            .filter(|entry| entry.kind == Kind::Data)
            .copied()
            .collect();
        if found.is_empty() {
            found = self.with_path(&SymbolPattern::new(name), Kind::Data);
        }
        found.dedup_by_key(|entry| entry.vaddr);
        match found.as_slice() {
            [] => Err(self.missing(name, Kind::Data)),
            [one] => Ok(self.symbol(one)),
            several => Err(NotFound::Ambiguous {
                pattern: name.to_owned(),
                candidates: several.iter().map(candidate).collect(),
            }),
        }
    }

    pub(super) fn entries_named(&self, name: &str) -> &[Entry<'a>] {
        let start = self.entries.partition_point(|entry| entry.name < name);
        let count = self.entries[start..].partition_point(|entry| entry.name == name);
        &self.entries[start..start + count]
    }

    fn matching(&self, pattern: &SymbolPattern) -> Vec<Entry<'a>> {
        let mut found = self.with_path(pattern, Kind::Function);
        if pattern.is_glob() {
            let by_name = self.entries.iter().filter(|entry| {
                // Clones that the compiler split off would make every glob ambiguous.
                entry.kind == Kind::Function
                    && !entry.name.contains('.')
                    && pattern.matches_text(entry.name)
            });
            found.extend(by_name);
        }
        found
    }

    fn with_path(&self, pattern: &SymbolPattern, kind: Kind) -> Vec<Entry<'a>> {
        let pieces = demangle::needed_pieces(pattern.as_str());
        self.entries
            .iter()
            .filter(|entry| entry.kind == kind && demangle::is_mangled(entry.name))
            .filter(|entry| pieces.iter().all(|piece| entry.name.contains(piece)))
            .filter(|entry| {
                demangle::path(entry.name).is_some_and(|path| pattern.matches_text(&path))
            })
            .copied()
            .collect()
    }

    fn symbol(&self, entry: &Entry<'_>) -> Symbol {
        let &Entry {
            name,
            vaddr,
            size,
            kind: _,
        } = entry;
        Symbol {
            name: name.to_owned(),
            vaddr,
            size,
            file_offset: self.layout.file_offset(vaddr),
        }
    }

    fn missing(&self, pattern: &str, kind: Kind) -> NotFound {
        let names = self
            .entries
            .iter()
            .filter(|entry| entry.kind == kind)
            .map(|entry| entry.name);
        let symbol_count = names.clone().count();
        let wanted = demangle::path(pattern).unwrap_or_else(|| pattern.to_owned());
        let mut scored: Vec<(f64, String)> = names
            .map(|name| demangle::rough_path(name).unwrap_or_else(|| name.to_owned()))
            .map(|name| (closeness(&wanted, &name), name))
            .filter(|&(score, _)| score >= CLOSE_ENOUGH)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        scored.dedup_by(|a, b| a.1 == b.1);
        NotFound::Missing {
            pattern: pattern.to_owned(),
            kind: if kind == Kind::Data {
                "variable"
            } else {
                "function"
            },
            symbol_count,
            closest: scored
                .into_iter()
                .take(CLOSEST_COUNT)
                .map(|(_, name)| name)
                .collect(),
        }
    }
}

/// Compares whole names, and last parts alone: `MDL_ctx::acquire_lock` and a bare `acquire_lock` are both meant well.
fn closeness(wanted: &str, name: &str) -> f64 {
    fn last(path: &str) -> &str {
        path.rsplit("::").next().unwrap_or(path)
    }
    let score = |a: &str, b: &str| {
        // Two lengths alone bound the score: most of a server's names need no comparison.
        let (short, long) = (a.len().min(b.len()) as f64, a.len().max(b.len()) as f64);
        if short < CLOSE_ENOUGH * long {
            0.0
        } else {
            strsim::normalized_damerau_levenshtein(a, b)
        }
    };
    score(wanted, name).max(0.95 * score(last(wanted), last(name)))
}

fn candidate(entry: &Entry<'_>) -> String {
    let demangled = demangle::full(entry.name);
    if demangled == entry.name {
        format!("{demangled} at {:#x}", entry.vaddr)
    } else {
        format!("{} ({demangled})", entry.name)
    }
}

/// `*` stands for any number of characters. Linear in the text for every star: no backtracking blow-up.
pub(super) fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at_pattern, mut at_text) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while at_text < text.len() {
        if pattern.get(at_pattern) == Some(&b'*') {
            retry = Some((at_pattern + 1, at_text));
            at_pattern += 1;
        } else if pattern.get(at_pattern) == Some(&text[at_text]) {
            at_pattern += 1;
            at_text += 1;
        } else if let Some((after_star, taken)) = retry {
            retry = Some((after_star, taken + 1));
            at_pattern = after_star;
            at_text = taken + 1;
        } else {
            return false;
        }
    }
    pattern[at_pattern..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_characters() {
        for (pattern, text, matches) in [
            ("a*c", "abbc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("*lock", "acquire_lock", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*", "", true),
            ("", "", true),
            ("a", "", false),
            ("*aaab", "aaaaaaaaaab", true),
        ] {
            assert_eq!(
                glob_matches(pattern.as_bytes(), text.as_bytes()),
                matches,
                "{pattern} on {text}"
            );
        }
    }

    #[test]
    fn a_multiplication_operator_is_no_glob() {
        assert!(!SymbolPattern::new("Matrix::operator*").is_glob());
        assert!(SymbolPattern::new("Matrix::*").is_glob());
    }
}
