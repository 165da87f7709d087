//! The files that a process maps executable, where each is in memory, and under which path we reach the same file.
//!
//! A path of the target may lead us elsewhere: another mount namespace, a file replaced or deleted since the start. What is
//! opened is checked against the mapping's inode and build id; when it is another file, the kernel's own link to the mapped
//! one (`/proc/PID/map_files`) is taken instead.

use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use super::{Process, TargetError, proc_of};
use crate::elf::{BuildId, Image, Layout, Parts, Symbol};

/// One mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedSegment {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Where in the file it begins.
    pub file_offset: u64,
    /// Whether code runs in it.
    pub executable: bool,
}

/// An ELF file of which a process has code mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// A path under which we reach the mapped file itself.
    pub path_for_us: PathBuf,
    /// Its path as the target had it.
    pub path_in_target: PathBuf,
    /// The linker's build id, if it has one.
    pub build_id: Option<BuildId>,
    /// Its mappings in the order of addresses.
    pub segments: Vec<MappedSegment>,
    /// What the loader added to the file's virtual addresses (wrapping).
    pub load_bias: u64,
    /// The mapped file has no name any more.
    pub deleted: bool,
    /// Another build lies at `path_in_target`: a restart would run something else.
    pub replaced: bool,
    /// It is the program itself (`/proc/PID/exe`).
    pub is_exe: bool,
}

/// Where a mapped file can be opened, and what it says.
struct Located {
    path_for_us: PathBuf,
    layout: Layout,
    replaced: bool,
}

impl MappedFile {
    /// Where a virtual address of the file is in the process.
    pub fn address_of(&self, vaddr: u64) -> u64 {
        vaddr.wrapping_add(self.load_bias)
    }

    /// Where a symbol of the file is in the process.
    pub fn symbol_address(&self, symbol: &Symbol) -> u64 {
        self.address_of(symbol.vaddr)
    }

    /// The virtual address in the file of an address in the process, if it lies in a mapping of the file.
    pub fn vaddr_of(&self, address: u64) -> Option<u64> {
        let inside = self
            .segments
            .iter()
            .any(|segment| (segment.start..segment.end).contains(&address));
        inside.then(|| address.wrapping_sub(self.load_bias))
    }
}

impl Process {
    /// The files with code in the process, the program first, then in the order of addresses.
    pub fn mapped_files(&self) -> Result<Vec<MappedFile>, TargetError> {
        let what = "its memory map";
        let maps = proc_of(self.pid)?
            .maps()
            .map_err(|error| TargetError::proc(self.pid, what, error))?;
        if maps.0.is_empty() || !self.still_same() {
            return Err(self.exited(what));
        }
        let link = format!("/proc/{}/exe", self.pid);
        let exe = fs::read_link(&link)
            .and_then(|name| Ok((name, fs::metadata(&link)?.ino())))
            .ok();
        let mut files = Vec::new();
        for maps in by_file(&maps.0) {
            files.extend(self.mapped_file(&maps, exe.as_ref())?);
        }
        files.sort_by_key(|file: &MappedFile| !file.is_exe);
        Ok(files)
    }

    /// A mapped file, to be read in parts.
    pub fn file_parts(&self, file: &MappedFile) -> Result<Parts, TargetError> {
        File::open(&file.path_for_us)
            .map(Parts::new)
            .map_err(|error| {
                TargetError::reading(self.pid, &file.path_for_us.display().to_string(), &error)
            })
    }

    /// The first mapped file that defines all of these (mangled) names. It need not be `/proc/PID/exe`: a program can be
    /// started through the loader, or live in a library.
    pub fn file_defining<'a>(
        &self,
        files: &'a [MappedFile],
        names: &[&str],
    ) -> Result<Option<&'a MappedFile>, TargetError> {
        for file in files {
            let parts = self.file_parts(file)?;
            if Image::parse(&parts).is_ok_and(|image| names.iter().all(|name| image.defines(name)))
            {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// What is known of one file from its mappings; `None` when it is no ELF file.
    fn mapped_file(
        &self,
        maps: &[&MemoryMap],
        exe: Option<&(PathBuf, u64)>,
    ) -> Result<Option<MappedFile>, TargetError> {
        let first = maps[0];
        let MMapPath::Path(path) = &first.pathname else {
            return Ok(None);
        };
        let (path_in_target, deleted) = without_deleted(path);
        let is_exe = exe.is_some_and(|(name, inode)| name == path && *inode == first.inode);
        let Some(Located {
            path_for_us,
            layout,
            replaced,
        }) = self.locate(first, &path_in_target, deleted, is_exe)?
        else {
            return Ok(None);
        };
        let executable = |map: &MemoryMap| map.perms.contains(MMPermissions::EXECUTE);
        let mut code = maps.iter().filter(|map| executable(map));
        let load_bias = code.find_map(|map| layout.load_bias(map.address.0, map.offset, true));
        let segments = maps.iter().map(|map| MappedSegment {
            start: map.address.0,
            end: map.address.1,
            file_offset: map.offset,
            executable: executable(map),
        });
        Ok(load_bias.map(|load_bias| MappedFile {
            path_for_us,
            path_in_target,
            build_id: layout.build_id,
            segments: segments.collect(),
            load_bias,
            deleted,
            replaced,
            is_exe,
        }))
    }

    /// Finds a path to the mapped file itself; `None` when it is no ELF file.
    fn locate(
        &self,
        map: &MemoryMap,
        name: &Path,
        deleted: bool,
        is_exe: bool,
    ) -> Result<Option<Located>, TargetError> {
        let named_path = self.path_for_us(name);
        let named = File::open(&named_path).ok();
        let named_inode = named
            .as_ref()
            .and_then(|file| Some(file.metadata().ok()?.ino()));
        let named_layout = named.and_then(layout);
        let by_name = |layout: Option<Layout>| {
            layout.map(|layout| Located {
                path_for_us: named_path.clone(),
                layout,
                replaced: false,
            })
        };
        if !deleted && named_inode == Some(map.inode) {
            return Ok(by_name(named_layout));
        }
        let (path_for_us, mapped) = match self.open_mapped(map, is_exe) {
            // Unmapped in between, or nothing that has a file.
            Err(TargetError::Unreadable { .. }) if !is_exe => return Ok(None),
            other => other?,
        };
        let Some(mapped) = layout(mapped) else {
            return Ok(None);
        };
        // Overlay file systems give a file other inodes than its mappings: the build id decides.
        let same = mapped.build_id.is_some()
            && named_layout
                .as_ref()
                .is_some_and(|named| named.build_id == mapped.build_id);
        if same && !deleted {
            return Ok(by_name(named_layout));
        }
        let replaced = named_inode.is_some() && !same;
        Ok(Some(Located {
            path_for_us,
            layout: mapped,
            replaced,
        }))
    }

    /// Opens the file behind a mapping, whatever became of its name.
    fn open_mapped(&self, map: &MemoryMap, is_exe: bool) -> Result<(PathBuf, File), TargetError> {
        let exe = PathBuf::from(format!("/proc/{}/exe", self.pid));
        let (start, end) = map.address;
        let by_mapping = PathBuf::from(format!("/proc/{}/map_files/{start:x}-{end:x}", self.pid));
        // The link to the program needs fewer rights than those to the mappings.
        let path = if is_exe { exe } else { by_mapping };
        match File::open(&path) {
            Ok(file) => Ok((path, file)),
            Err(error) => match TargetError::reading(self.pid, &path.display().to_string(), &error)
            {
                TargetError::PermissionDenied { pid, what, .. } if !is_exe => {
                    Err(TargetError::PermissionDenied {
                        pid,
                        what,
                        capability: "CAP_CHECKPOINT_RESTORE",
                    })
                }
                other => Err(other),
            },
        }
    }
}

fn layout(file: File) -> Option<Layout> {
    Layout::read(&Parts::new(file)).ok()
}

/// Groups file mappings by the file; only files with code, in the order of their first address.
fn by_file(maps: &[MemoryMap]) -> Vec<Vec<&MemoryMap>> {
    let mut files: Vec<Vec<&MemoryMap>> = Vec::new();
    for map in maps
        .iter()
        .filter(|map| map.inode != 0 && matches!(map.pathname, MMapPath::Path(_)))
    {
        let same =
            |other: &&mut Vec<&MemoryMap>| (other[0].dev, other[0].inode) == (map.dev, map.inode);
        match files.iter_mut().find(same) {
            Some(file) => file.push(map),
            None => files.push(vec![map]),
        }
    }
    files.retain(|file| {
        file.iter()
            .any(|map| map.perms.contains(MMPermissions::EXECUTE))
    });
    files
}

/// The kernel marks files without a name by a suffix of the path.
pub(super) fn without_deleted(path: &Path) -> (PathBuf, bool) {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(name) => (
            PathBuf::from(std::ffi::OsString::from_vec(name.to_vec())),
            true,
        ),
        None => (path.to_owned(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deleted_mark_is_no_part_of_the_path() {
        assert_eq!(
            without_deleted(Path::new("/usr/sbin/mariadbd (deleted)")),
            (PathBuf::from("/usr/sbin/mariadbd"), true)
        );
        assert_eq!(
            without_deleted(Path::new("/usr/sbin/mariadbd")),
            (PathBuf::from("/usr/sbin/mariadbd"), false)
        );
    }
}
