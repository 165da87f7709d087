//! A config as typed: the TOML document as a tree whose every key and value knows its place.
//!
//! serde would stop at the first mistake and lose the places when a file extends another, so the tree is read directly.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Report};
use super::source::{Place, Source};

/// Deepest nesting; presets use five.
const MAX_DEPTH: usize = 16;

/// Most dots on one line. Dotted keys nest without brackets, and the TOML parser does not bound those.
const MAX_DOTS: usize = 32;

/// Syntax errors shown; later ones are mostly consequences of the first.
const MAX_SYNTAX_ERRORS: usize = 5;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Place,
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Table),
    /// Something that no key takes, by its name.
    Other(&'static str),
}

impl Value {
    /// What it is, for error messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number with a fraction",
            Self::Boolean(_) => "true or false",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

/// Keys and values in the order of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Place,
    pub(crate) node: Node,
}

impl Table {
    /// The entry of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The entry of a key, to change it.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.key == key)
    }
}

/// Reads a text. `None` if it is not TOML; the report says why.
pub(crate) fn parse(source: &Arc<Source>, report: &Report) -> Option<Table> {
    if let Some(problem) = too_dotted(source) {
        report.add(problem);
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(source.text());
    for error in errors.iter().take(MAX_SYNTAX_ERRORS) {
        let place = Place::new(source, error.span().unwrap_or(0..0));
        report.add(Problem::at(
            &place,
            format!("not TOML: {}", error.message()),
        ));
    }
    if !errors.is_empty() {
        return None;
    }
    let reader = Reader { source, report };
    let document = document.into_inner();
    Some(reader.table(document, 0))
}

/// A problem if some line could nest too deep.
fn too_dotted(source: &Arc<Source>) -> Option<Problem> {
    let mut start = 0;
    for line in source.text().split_inclusive('\n') {
        let dots = line.bytes().filter(|byte| *byte == b'.').count();
        if dots > MAX_DOTS {
            let place = Place::new(source, start..start + line.trim_end().len());
            return Some(
                Problem::at(&place, format!("{dots} dots on one line"))
                    .help(format!("at most {MAX_DOTS}: keys of a preset are short")),
            );
        }
        start += line.len();
    }
    None
}

/// Turns the parser's tree into ours.
struct Reader<'a> {
    source: &'a Arc<Source>,
    report: &'a Report,
}

impl Reader<'_> {
    fn place(&self, span: Range<usize>) -> Place {
        Place::new(self.source, span)
    }

    fn table(&self, table: DeTable<'_>, depth: usize) -> Table {
        let mut entries: Vec<_> = table
            .into_iter()
            .map(|(key, value)| {
                let key_place = self.place(key.span());
                Entry {
                    key: key.into_inner().into_owned(),
                    key_place,
                    node: self.node(value, depth + 1),
                }
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_place.span().start);
        Table { entries }
    }

    fn node(&self, value: Spanned<DeValue<'_>>, depth: usize) -> Node {
        let place = self.place(value.span());
        if depth > MAX_DEPTH {
            self.report.add(Problem::at(
                &place,
                format!("nested deeper than {MAX_DEPTH} levels"),
            ));
            return Node {
                value: Value::Other("something nested too deep"),
                place,
            };
        }
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::Integer(number),
                    Err(_) => Value::Other("an integer beyond 64 bits"),
                }
            }
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => Value::Float(number),
                Err(_) => Value::Other("a number that cannot be read"),
            },
            DeValue::Boolean(flag) => Value::Boolean(flag),
            DeValue::Datetime(_) => Value::Other("a date or time"),
            DeValue::Array(items) => Value::Array(
                items
                    .into_iter()
                    .map(|item| self.node(item, depth + 1))
                    .collect(),
            ),
            DeValue::Table(table) => Value::Table(self.table(table, depth)),
        };
        Node { value, place }
    }
}
