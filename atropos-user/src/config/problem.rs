//! What is wrong with a config, shown the way a compiler shows it: file, line, caret, and what to write instead.

use std::cell::RefCell;
use std::fmt;

use super::source::Place;

/// Most mistakes that are shown; more come from a text that is no config at all.
const SHOWN_PROBLEMS: usize = 50;

/// Widest part of a source line that is shown.
const SHOWN_CHARS: usize = 140;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, in one sentence without its place.
    pub message: String,
    /// Where, if it lies in a text.
    pub place: Option<Place>,
    /// What is allowed, what comes closest, what to do.
    pub help: Vec<String>,
}

impl Problem {
    /// A mistake at a place.
    pub fn at(place: &Place, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            place: Some(place.clone()),
            help: Vec::new(),
        }
    }

    /// A mistake without a place in a text.
    pub fn nowhere(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            place: None,
            help: Vec::new(),
        }
    }

    /// Adds a line of help; empty text adds nothing.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        let help = help.into();
        if !help.is_empty() {
            self.help.push(help);
        }
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", plain(&self.message))?;
        let mut margin = String::new();
        if let Some(place) = &self.place {
            margin = " ".repeat(place.line().to_string().len());
            write_source(f, place, &margin)?;
        }
        for help in &self.help {
            write!(f, "\n{margin} = help: {}", plain(help))?;
        }
        Ok(())
    }
}

/// The source line with carets under the place.
fn write_source(f: &mut fmt::Formatter<'_>, place: &Place, margin: &str) -> fmt::Result {
    let (line, part) = place.line_text();
    let before: Vec<char> = plain(&line[..part.start]).chars().collect();
    let marked = plain(&line[part.clone()]);
    let after = plain(&line[part.end..]);
    // Of a long line only the neighbourhood of the place is shown.
    let skipped = before.len().saturating_sub(SHOWN_CHARS / 2);
    let dots = if skipped > 0 { "..." } else { "" };
    let before: String = dots
        .chars()
        .chain(before.into_iter().skip(skipped))
        .collect();
    let shown: String = before
        .chars()
        .chain(marked.chars())
        .chain(after.chars())
        .take(SHOWN_CHARS)
        .collect();
    let room = SHOWN_CHARS.saturating_sub(before.chars().count()).max(1);
    let carets = "^".repeat(marked.chars().count().clamp(1, room));
    let indent = " ".repeat(before.chars().count());
    write!(
        f,
        "\n{margin}--> {place}\n{margin} |\n{} | {}\n{margin} | {indent}{carets}",
        place.line(),
        shown.trim_end()
    )
}

/// Text that a terminal can be trusted with: tabs become blanks, other control characters are shown as such.
fn plain(text: &str) -> String {
    let show = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(show).collect()
}

impl std::error::Error for Problem {}

/// Everything that is wrong with a config: all of it, so that one look is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// The mistakes, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(SHOWN_PROBLEMS).enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "\n\n" })?;
        }
        if self.0.len() > 1 {
            write!(f, "\n\n{} mistakes", self.0.len())?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Collects mistakes while a config is read.
#[derive(Default)]
pub(crate) struct Report(RefCell<Vec<Problem>>);

impl Report {
    /// Notes a mistake.
    pub(crate) fn add(&self, problem: Problem) {
        self.0.borrow_mut().push(problem);
    }

    /// Whether there are so many that nobody reads more.
    pub(crate) fn is_full(&self) -> bool {
        self.0.borrow().len() > SHOWN_PROBLEMS
    }

    /// Whether there is none so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// All of them, once each, in the order of the text.
    pub(crate) fn finish(self) -> Problems {
        let mut problems = self.0.into_inner();
        let key = |problem: &Problem| {
            let place = problem.place.as_ref();
            let place = place.map(|place| (place.source().name().to_owned(), place.span().start));
            (place, problem.message.clone())
        };
        problems.sort_by_key(key);
        problems.dedup();
        Problems(problems)
    }
}
