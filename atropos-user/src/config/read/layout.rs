//! `[layout]`: numbers that depend on the build, put into an order in which each can be worked out.

use super::super::fields::{Fields, allowed};
use super::super::preset::{LayoutEntry, LayoutValue};
use super::super::problem::Problem;
use super::super::schema;
use super::super::source::Located;
use super::super::tree::{Entry, Table, Value};
use super::{as_table, is_word};

/// Most layout numbers.
const MAX_ENTRIES: usize = 256;

/// The names, whether or not their values can be read: expressions that use them are not wrong for that.
pub(super) fn names(root: &Table) -> Vec<String> {
    let layout = root
        .get("layout")
        .and_then(|entry| as_table(&entry.node.value));
    layout
        .map(|table| {
            table
                .entries
                .iter()
                .map(|entry| entry.key.clone())
                .collect()
        })
        .unwrap_or_default()
}

/// Reads the entries.
pub(super) fn read(root: &Fields<'_>) -> Vec<LayoutEntry> {
    let Some(entry) = root.entry("layout") else {
        return Vec::new();
    };
    let Some(table) = as_table(&entry.node.value) else {
        root.wrong(
            "layout",
            format!("`layout` must be a table, not {}", entry.node.value.kind()),
            "",
        );
        return Vec::new();
    };
    if table.entries.len() > MAX_ENTRIES {
        let message = format!("{} layout numbers", table.entries.len());
        root.wrong("layout", message, format!("at most {MAX_ENTRIES}"));
    }
    let entries = table
        .entries
        .iter()
        .take(MAX_ENTRIES)
        .filter_map(|entry| layout_entry(entry, root))
        .collect();
    in_order(entries, table, root)
}

/// One entry.
fn layout_entry(entry: &Entry, root: &Fields<'_>) -> Option<LayoutEntry> {
    if !is_word(&entry.key) {
        let message = format!("`{}` cannot be used as `@name`", entry.key.escape_debug());
        let help = "a name is made of letters, digits and `_`, and begins with a letter";
        root.report
            .add(Problem::at(&entry.key_place, message).help(help));
        return None;
    }
    let value = match &entry.node.value {
        Value::Integer(number) => LayoutValue::Number(*number),
        Value::Table(_) => computed(&Fields::open_node(
            &entry.node,
            &schema::LAYOUT_ENTRY,
            root.report,
        )?)?,
        other => {
            let message = format!(
                "`{}` must be an integer or a table, not {}",
                entry.key,
                other.kind()
            );
            root.report
                .add(Problem::at(&entry.node.place, message).help(FORMS));
            return None;
        }
    };
    Some(LayoutEntry {
        name: entry.key.clone(),
        value: Located {
            value,
            place: entry.node.place.clone(),
        },
    })
}

/// How an entry can be written.
const FORMS: &str = "write a number, `{ accessor = \"function\", nth = 0 }`, `{ global = \"function\" }` or `{ after = \"name\", add = 8 }`";

/// An entry that is worked out.
fn computed(fields: &Fields<'_>) -> Option<LayoutValue> {
    let (accessor, global) = (fields.text("accessor"), fields.text("global"));
    let functions = (accessor, global, fields.text("after"));
    let nth = || {
        let nth = fields
            .entry("nth")
            .map_or(Some(0), |_| fields.integer("nth", 0, 15))?;
        u32::try_from(nth).ok()
    };
    match (functions, fields.entry("nth"), fields.entry("add")) {
        ((Some(function), None, None), _, None) => Some(LayoutValue::Accessor {
            function: function.value,
            nth: nth()?,
        }),
        ((None, Some(function), None), _, None) => Some(LayoutValue::Global {
            function: function.value,
            nth: nth()?,
        }),
        ((None, None, Some(name)), None, _) => {
            let add = fields.entry("add").map_or(Some(0), |_| {
                fields.integer("add", i64::from(i32::MIN), i64::from(i32::MAX))
            })?;
            Some(LayoutValue::After {
                name: name.value,
                add,
            })
        }
        _ => {
            let problem = Problem::at(fields.place, "this is not a way to find a layout number");
            fields.report.add(problem.help(FORMS));
            None
        }
    }
}

/// Puts each entry behind the one that it depends on; circles and unknown names are problems.
fn in_order(mut waiting: Vec<LayoutEntry>, table: &Table, root: &Fields<'_>) -> Vec<LayoutEntry> {
    let mut done: Vec<LayoutEntry> = Vec::new();
    loop {
        let (ready, rest): (Vec<_>, Vec<_>) =
            waiting
                .into_iter()
                .partition(|entry| match &entry.value.value {
                    LayoutValue::After { name, .. } => {
                        done.iter().any(|earlier| earlier.name == *name)
                    }
                    _ => true,
                });
        waiting = rest;
        if ready.is_empty() {
            break;
        }
        done.extend(ready);
    }
    for entry in &waiting {
        let LayoutValue::After { name, .. } = &entry.value.value else {
            continue;
        };
        let problem = if waiting.iter().any(|other| other.name == *name) {
            let message = format!("`{}` depends on itself, by way of `{name}`", entry.name);
            Problem::at(&entry.value.place, message)
                .help("let one entry of the circle be a number or an accessor")
        } else if table.get(name).is_some() {
            // The entry that it depends on has a problem of its own.
            continue;
        } else {
            let known = table
                .entries
                .iter()
                .map(|entry| entry.key.as_str())
                .filter(|key| *key != entry.name);
            Problem::at(&entry.value.place, format!("`[layout]` has no `{name}`"))
                .help(allowed(name, known))
        };
        root.report.add(problem);
    }
    done
}
