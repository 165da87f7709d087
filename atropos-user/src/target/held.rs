//! Files that are held open, so that what is attached later is attached to them.
//!
//! A package upgrade puts another file where the server's was. Offsets that were found in the old one mean something else in
//! the new one, and a breakpoint there would hit whoever starts it next.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Deref;
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

    /// The path that means the opened file; the path itself for one that is not held.
    pub fn path(&self, path: &Path) -> HeldPath {
        self.0.get(path).map_or_else(
            || HeldPath::from(path.to_owned()),
            |file| HeldPath {
                path: PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
                file: Some(Arc::clone(file)),
            },
        )
    }
}

/// A path that goes on to mean its file: it keeps the file open. The number of a closed one is soon another file's.
#[derive(Clone, Debug)]
pub struct HeldPath {
    path: PathBuf,
    file: Option<Arc<File>>,
}

impl HeldPath {
    /// What must live for as long as somebody may come back to the path alone.
    pub fn file(&self) -> Option<Arc<File>> {
        self.file.clone()
    }
}

impl From<PathBuf> for HeldPath {
    /// The file that has this name when it is opened.
    fn from(path: PathBuf) -> Self {
        Self { path, file: None }
    }
}

impl Deref for HeldPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_means_its_file_when_nobody_else_holds_it_and_another_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (name, next) = (folder.path().join("server"), folder.path().join("next"));
        std::fs::write(&name, "that runs").unwrap();
        std::fs::write(&next, "that is installed").unwrap();
        let held = HeldFiles::open([name.as_path()]).unwrap();
        let path = held.path(&name);
        drop(held);
        std::fs::rename(&next, &name).unwrap();
        assert_eq!(std::fs::read_to_string(&*path).unwrap(), "that runs");
    }
}
