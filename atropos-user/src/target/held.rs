//! Files that are held open, so that what is attached later is attached to them.
//!
//! A package upgrade puts another file where the server's was. Offsets that were found in the old one mean something else in
//! the new one, and a breakpoint there would hit whoever starts it next.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files by the path under which each was opened.
#[derive(Clone, Debug, Default)]
pub struct HeldFiles(BTreeMap<PathBuf, Arc<File>>);

impl HeldFiles {
    /// Opens each of them, once.
    ///
    /// # Errors
    /// When one cannot be opened; the error does not say which.
    pub fn open<'a>(paths: impl IntoIterator<Item = &'a Path>) -> io::Result<Self> {
        let mut held = Self::default();
        for path in paths {
            if !held.0.contains_key(path) {
                held.0.insert(path.to_owned(), Arc::new(File::open(path)?));
            }
        }
        Ok(held)
    }

    /// The path that means the opened file for as long as this lives; the path itself for one that is not held.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.0.get(path).map_or_else(
            || path.to_owned(),
            |file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
        )
    }
}
