//! The tables by name, each with its lock and its rows. A table is there as soon as somebody names it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use crate::sessions::lock as locked;
use crate::visible::Lock;

/// Tables that there can be: the lock of each stays in memory.
const MOST_TABLES: usize = 1000;

static TABLES: Mutex<BTreeMap<String, &'static Table>> = Mutex::new(BTreeMap::new());

/// One table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) lock: &'static Lock,
    rows: Mutex<HashMap<String, String>>,
}

impl Table {
    /// The table of this name; nothing if there are too many.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        let mut tables = locked(&TABLES);
        if let Some(table) = tables.get(name) {
            return Some(table);
        }
        if tables.len() >= MOST_TABLES {
            return None;
        }
        let table: &'static Self = Box::leak(Box::new(Self {
            lock: Lock::leak(name),
            rows: Mutex::default(),
        }));
        tables.insert(name.to_owned(), table);
        Some(table)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        locked(&self.rows).get(key).cloned()
    }

    /// Sets the value of a key, or takes the key away; returns what was there.
    pub(crate) fn set(&self, key: &str, value: Option<String>) -> Option<String> {
        let mut rows = locked(&self.rows);
        match value {
            Some(value) => rows.insert(key.to_owned(), value),
            None => rows.remove(key),
        }
    }
}
