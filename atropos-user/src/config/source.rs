//! Where something was written: a file's text and a range of it, kept beside every value that can turn out wrong later.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The text of one file, with the name to show for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    /// A text under a name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            text: text.into(),
        })
    }

    /// The name to show.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A range of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    source: Arc<Source>,
    span: Range<usize>,
}

impl Place {
    /// A byte range of a source, drawn in to what the text has and to whole characters.
    pub fn new(source: &Arc<Source>, span: Range<usize>) -> Self {
        let text = source.text();
        let start = text.floor_char_boundary(span.start);
        let end = text.ceil_char_boundary(span.end.max(start));
        Self {
            source: Arc::clone(source),
            span: start..end,
        }
    }

    /// The file.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The byte range.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Line, from 1.
    pub fn line(&self) -> usize {
        self.before().matches('\n').count() + 1
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> usize {
        self.before()[self.line_start()..].chars().count() + 1
    }

    /// The text of the line that it starts in, and its part of that line as a byte range.
    pub(crate) fn line_text(&self) -> (&str, Range<usize>) {
        let start = self.line_start();
        let line = self.source.text[start..]
            .split('\n')
            .next()
            .unwrap_or_default()
            .trim_end_matches('\r');
        let from = (self.span.start - start).min(line.len());
        let to = (self.span.end - start).clamp(from, line.len());
        (line, from..to)
    }

    /// A part of a quoted string that lies here, by its byte range in the string's value. The whole string if the value
    /// is not written out letter by letter (escapes).
    pub(crate) fn within(&self, value: &str, offset: usize, len: usize) -> Self {
        let start = self.span.start + 1;
        let literal = self
            .source
            .text
            .get(start..)
            .is_some_and(|rest| rest.starts_with(value));
        if !literal {
            return self.clone();
        }
        Self::new(&self.source, start + offset..start + offset + len)
    }

    /// The text in front of it.
    fn before(&self) -> &str {
        &self.source.text[..self.span.start]
    }

    /// Byte offset of the line that it starts in.
    fn line_start(&self) -> usize {
        self.before().rfind('\n').map_or(0, |newline| newline + 1)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source.name, self.line(), self.column())
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A value and where it was written, for errors that show up only when a process is looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it was written.
    pub place: Place,
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
