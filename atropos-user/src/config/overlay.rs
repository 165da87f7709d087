//! Lays a config over the one that it extends.
//!
//! Keys of the same table are overridden one by one; arrays of tables (`resource`, `probe`, `class`, `walk`, `sessions.note`,
//! `cancel.rung`) are matched by name, and what has no match is appended. Every value keeps the place of the file that it came from.

use super::tree::{Entry, Node, Table, Value};

/// Lays a config over its base.
pub(crate) fn overlay(mut base: Table, over: Table) -> Table {
    for entry in over.entries {
        match entry.key.as_str() {
            "extends" => {}
            "match" | "layout" | "completed" | "budget" | "decide" => {
                put_keys(&mut base, entry, &[]);
            }
            "sessions" => put_sessions(&mut base, entry),
            "resource" | "probe" | "class" => put_items(&mut base, entry, "name", &[]),
            "walk" => put_items(
                &mut base,
                entry,
                "resource",
                &["granted", "queued", "label"],
            ),
            "cancel" => put_cancel(&mut base, entry),
            _ => put(&mut base, entry),
        }
    }
    base
}

/// Sets or replaces an entry.
fn put(table: &mut Table, entry: Entry) {
    match table.get_mut(&entry.key) {
        Some(old) => *old = entry,
        None => table.entries.push(entry),
    }
}

/// Overrides a table key by key; the keys in `nested` are tables that are overridden the same way.
fn put_keys(table: &mut Table, entry: Entry, nested: &[&str]) {
    let Some(Entry {
        node: Node {
            value: Value::Table(old),
            ..
        },
        ..
    }) = table.get_mut(&entry.key)
    else {
        return put(table, entry);
    };
    // Something else than a table replaces it, so that the reader can complain at the right place.
    let Value::Table(over) = entry.node.value else {
        return put(table, entry);
    };
    for inner in over.entries {
        if nested.contains(&inner.key.as_str()) {
            put_keys(old, inner, &[]);
        } else {
            put(old, inner);
        }
    }
}

/// Overrides the tables of an array that have the same value under `by`, and appends the others.
fn put_items(table: &mut Table, entry: Entry, by: &str, nested: &[&str]) {
    let Some(Entry {
        node: Node {
            value: Value::Array(old),
            ..
        },
        ..
    }) = table.get_mut(&entry.key)
    else {
        return put(table, entry);
    };
    let Value::Array(over) = entry.node.value else {
        return put(table, entry);
    };
    for item in over {
        let name = identity(&item, by);
        let same = old
            .iter_mut()
            .find(|node| name.is_some() && identity(node, by) == name);
        match (same, item) {
            (
                Some(Node {
                    value: Value::Table(old),
                    ..
                }),
                Node {
                    value: Value::Table(over),
                    ..
                },
            ) => {
                for inner in over.entries {
                    if nested.contains(&inner.key.as_str()) {
                        put_keys(old, inner, &[]);
                    } else {
                        put(old, inner);
                    }
                }
            }
            (_, item) => old.push(item),
        }
    }
}

/// What an item is called.
fn identity(node: &Node, by: &str) -> Option<String> {
    let Value::Table(table) = &node.value else {
        return None;
    };
    match &table.get(by)?.node.value {
        Value::Text(name) => Some(name.clone()),
        _ => None,
    }
}

/// Overrides `[sessions]`; its notes by name.
fn put_sessions(table: &mut Table, mut entry: Entry) {
    let Value::Table(over) = &mut entry.node.value else {
        return put(table, entry);
    };
    let notes = over.entries.iter().position(|inner| inner.key == "note");
    let notes = notes.map(|at| over.entries.remove(at));
    put_keys(table, entry, &[]);
    if let (Some(notes), Some(sessions)) = (notes, table.get_mut("sessions"))
        && let Value::Table(sessions) = &mut sessions.node.value
    {
        put_items(sessions, notes, "name", &[]);
    }
}

/// Overrides `[cancel]`. The rungs of another initiator mean nothing to this one, so they go.
fn put_cancel(table: &mut Table, entry: Entry) {
    let Some(Entry {
        node: Node {
            value: Value::Table(old),
            ..
        },
        ..
    }) = table.get_mut("cancel")
    else {
        return put(table, entry);
    };
    let Value::Table(over) = &entry.node.value else {
        return put(table, entry);
    };
    let initiator = |table: &Table| match table.get("initiator").map(|entry| &entry.node.value) {
        Some(Value::Text(name)) => Some(name.clone()),
        _ => None,
    };
    if initiator(over).is_some() && initiator(over) != initiator(old) {
        return put(table, entry);
    }
    let Value::Table(over) = entry.node.value else {
        return;
    };
    for inner in over.entries {
        match inner.key.as_str() {
            "rung" => put_items(old, inner, "name", &[]),
            "exact" => put_keys(old, inner, &[]),
            _ => put(old, inner),
        }
    }
}
