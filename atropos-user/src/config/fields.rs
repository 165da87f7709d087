//! Typed access to one table: unknown, missing and ill-typed keys become problems; what is left is a value.

use super::duration;
use super::expr::Expr;
use super::nearest;
use super::preset::Formula;
use super::problem::{Problem, Report};
use super::schema::Section;
use super::scope::Scope;
use super::slo::share_of;
use super::source::{Located, Place};
use super::tree::{Entry, Node, Table, Value};

/// Most names that an answer lists.
const SHOWN_NAMES: usize = 40;

/// One table while it is read.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    table: &'a Table,
    section: &'static Section,
    pub(crate) place: &'a Place,
    pub(crate) report: &'a Report,
}

impl<'a> Fields<'a> {
    /// Opens a table: its keys are checked against the section at once.
    pub(crate) fn open(
        table: &'a Table,
        section: &'static Section,
        place: &'a Place,
        report: &'a Report,
    ) -> Self {
        let known = || section.keys.iter().map(|key| key.name);
        for entry in &table.entries {
            if !known().any(|key| key == entry.key) {
                let message = format!("unknown key `{}` in {}", entry.key, section.shown());
                report
                    .add(Problem::at(&entry.key_place, message).help(allowed(&entry.key, known())));
            }
        }
        for key in section
            .keys
            .iter()
            .filter(|key| key.required && table.get(key.name).is_none())
        {
            let message = format!("{} lacks the key `{}`", section.shown(), key.name);
            report.add(
                Problem::at(place, message)
                    .help(format!("add `{} = ...` ({})", key.name, key.takes)),
            );
        }
        Self {
            table,
            section,
            place,
            report,
        }
    }

    /// Opens the table that a node is; anything else is a problem.
    pub(crate) fn open_node(
        node: &'a Node,
        section: &'static Section,
        report: &'a Report,
    ) -> Option<Self> {
        match &node.value {
            Value::Table(table) => Some(Self::open(table, section, &node.place, report)),
            other => {
                let message = format!("`{}` must be a table, not {}", section.name, other.kind());
                report.add(Problem::at(&node.place, message));
                None
            }
        }
    }

    /// The entry of a key.
    pub(crate) fn entry(&self, key: &str) -> Option<&'a Entry> {
        debug_assert!(
            self.section.keys.iter().any(|known| known.name == key),
            "{key} is in the schema"
        );
        self.table.get(key)
    }

    /// Place of a key's value, or of the table where it is missing.
    pub(crate) fn place_of(&self, key: &str) -> &'a Place {
        self.table
            .get(key)
            .map_or(self.place, |entry| &entry.node.place)
    }

    /// Notes a problem with a key's value.
    pub(crate) fn wrong(&self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        self.report
            .add(Problem::at(self.place_of(key), message).help(help));
    }

    /// A value of one type.
    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<Located<T>> {
        let entry = self.entry(key)?;
        let node = &entry.node;
        let Some(value) = convert(&node.value) else {
            let takes = self.section.keys.iter().find(|known| known.name == key);
            let help = match takes.map(|key| key.takes) {
                Some("array of tables") => {
                    format!("write `[[{}]]`, once for each", self.section.path(key))
                }
                Some(takes) if takes.starts_with("array") => format!("write `{key} = [...]`"),
                _ => String::new(),
            };
            self.wrong(
                key,
                format!("`{key}` must be {wanted}, not {}", node.value.kind()),
                help,
            );
            return None;
        };
        Some(Located {
            value,
            place: node.place.clone(),
        })
    }

    /// A string that is not empty.
    pub(crate) fn text(&self, key: &str) -> Option<Located<String>> {
        let text = self.typed(key, "a string", as_text)?;
        if text.value.trim().is_empty() {
            self.wrong(key, format!("`{key}` is empty"), "");
            return None;
        }
        Some(text)
    }

    /// A boolean, or what holds without it.
    pub(crate) fn flag(&self, key: &str, default: bool) -> bool {
        let flag = self.typed(key, "true or false", |value| match value {
            Value::Boolean(flag) => Some(*flag),
            _ => None,
        });
        flag.map_or(default, |flag| flag.value)
    }

    /// An integer within bounds.
    pub(crate) fn integer(&self, key: &str, least: i64, most: i64) -> Option<i64> {
        let number = self.typed(key, "an integer", |value| match value {
            Value::Integer(number) => Some(*number),
            _ => None,
        })?;
        if !(least..=most).contains(&number) {
            let message = format!("`{key}` is {}, which is out of bounds", number.value);
            self.wrong(key, message, format!("allowed: {least} to {most}"));
            return None;
        }
        Some(number.value)
    }

    /// A number, whole or not.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        let number = self.typed(key, "a number", |value| match value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        })?;
        Some(number.value)
    }

    /// A length of time above zero, in nanoseconds.
    pub(crate) fn duration_ns(&self, key: &str) -> Option<u64> {
        let text = self.typed(key, "a length of time in quotes", as_text)?;
        match duration::parse_ns(&text) {
            Ok(0) => self.wrong(
                key,
                format!("`{key}` is zero"),
                "write a length of time above zero",
            ),
            Ok(ns) => return Some(ns),
            Err(message) => self.wrong(key, message, format!("allowed: {}", duration::ALLOWED)),
        }
        None
    }

    /// A share above zero and up to all, from per cent.
    pub(crate) fn share(&self, key: &str) -> Option<f64> {
        let text = self.typed(key, "a percentage in quotes", as_text)?;
        let share = share_of(&text).filter(|share| *share <= 1.0);
        if share.is_none() {
            let message = format!("`{}` is not a percentage above 0", text.value);
            self.wrong(key, message, "such as \"1%\"; at most \"100%\"");
        }
        share
    }

    /// One of several words.
    pub(crate) fn choice<T: Copy>(
        &self,
        key: &str,
        what: &str,
        allowed: &[(&str, T)],
    ) -> Option<T> {
        let text = self.typed(key, "a string", as_text)?;
        self.choose(&text, what, allowed)
    }

    /// The meaning of a word among several.
    pub(crate) fn choose<T: Copy>(
        &self,
        text: &Located<String>,
        what: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let found = choices.iter().find(|(name, _)| *name == text.value);
        if found.is_none() {
            let message = format!("unknown {what} `{}`", text.value);
            let names = choices.iter().map(|(name, _)| *name);
            self.report
                .add(Problem::at(&text.place, message).help(allowed(&text.value, names)));
        }
        found.map(|(_, value)| *value)
    }

    /// The items of an array; none without the key.
    pub(crate) fn items(&self, key: &str) -> &'a [Node] {
        self.typed(key, "an array", |value| match value {
            Value::Array(items) => Some(items.as_slice()),
            _ => None,
        })
        .map_or(&[], |items| items.value)
    }

    /// An array of strings; empty without the key.
    pub(crate) fn texts(&self, key: &str) -> Vec<Located<String>> {
        let read = |node: &Node| {
            let text = as_text(&node.value).filter(|text| !text.trim().is_empty());
            if text.is_none() {
                let message = format!(
                    "`{key}` must hold strings that are not empty, not {}",
                    node.value.kind()
                );
                self.report.add(Problem::at(&node.place, message));
            }
            text.map(|value| Located {
                value,
                place: node.place.clone(),
            })
        };
        self.items(key).iter().filter_map(read).collect()
    }

    /// A table in this one.
    pub(crate) fn table(&self, key: &str, section: &'static Section) -> Option<Fields<'a>> {
        Self::open_node(&self.entry(key)?.node, section, self.report)
    }

    /// The tables of an array of tables.
    pub(crate) fn tables(&self, key: &str, section: &'static Section) -> Vec<Fields<'a>> {
        self.items(key)
            .iter()
            .filter_map(|node| Self::open_node(node, section, self.report))
            .collect()
    }

    /// An expression that may use what the scope has.
    pub(crate) fn formula(&self, key: &str, scope: &Scope<'_>) -> Option<Formula> {
        formula(&self.entry(key)?.node, key, scope, self.report)
    }

    /// An array of expressions.
    pub(crate) fn formulas(&self, key: &str, scope: &Scope<'_>) -> Vec<Formula> {
        self.items(key)
            .iter()
            .filter_map(|node| formula(node, key, scope, self.report))
            .collect()
    }
}

/// Reads an expression. A bare number counts as one.
pub(crate) fn formula(
    node: &Node,
    key: &str,
    scope: &Scope<'_>,
    report: &Report,
) -> Option<Formula> {
    let text = match &node.value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        other => {
            report.add(Problem::at(
                &node.place,
                format!(
                    "`{key}` must be an expression in quotes, not {}",
                    other.kind()
                ),
            ));
            return None;
        }
    };
    let expr = match Expr::parse(&text) {
        Ok(expr) => expr,
        Err(error) => {
            let place = node.place.within(&text, error.offset, error.len);
            report.add(Problem::at(&place, error.message).help(error.help.unwrap_or_default()));
            return None;
        }
    };
    scope.check(&expr, &node.place, report).then(|| Located {
        value: expr,
        place: node.place.clone(),
    })
}

/// A string's text.
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// "allowed: a, b; closest: a".
pub(crate) fn allowed<'a>(typed: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let mut list = known
        .clone()
        .take(SHOWN_NAMES)
        .collect::<Vec<_>>()
        .join(", ");
    let more = known.clone().count().saturating_sub(SHOWN_NAMES);
    if more > 0 {
        list = format!("{list} and {more} more");
    }
    let closest = nearest(typed, known)
        .map(|name| format!("; closest: `{name}`"))
        .unwrap_or_default();
    if list.is_empty() {
        "none is allowed here".to_owned()
    } else {
        format!("allowed: {list}{closest}")
    }
}
