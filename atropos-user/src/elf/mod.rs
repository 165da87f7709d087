//! Bytes of an ELF file in, sites out: symbols, displacements learned from accessors, USDT notes with their operands, the
//! cost of a probe.
//!
//! Nothing here opens a file or knows a process. Addresses are virtual addresses as the file has them (`vaddr`);
//! [`crate::target`] adds the load bias. Only 64-bit little-endian files are taken; what disassembles takes x86-64 alone.

mod accessor;
mod demangle;
mod global;
mod layout;
pub mod operand;
mod site;
mod source;
pub mod stapsdt;
mod symbols;
mod table;

use object::elf::{EM_X86_64, FileHeader64};
use object::read::elf::FileHeader as _;
use object::{LittleEndian, ReadRef as _};
use thiserror::Error;

pub use accessor::AccessorError;
pub use layout::{BuildId, Layout, Segment};
pub use site::{Cost, Keep, Site, SiteError};
pub use source::{Parts, Source};
pub use symbols::{NotFound, Symbol, SymbolPattern};
use table::{Entry, Kind};

/// A function whose symbol has no size, and behind which no other begins, is taken to be no longer.
const UNSIZED_BYTES: u64 = 1 << 20;

/// Why bytes are not an ELF file that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not a usable 64-bit little-endian ELF file: {0}")]
pub struct ElfError(pub(crate) String);

/// One ELF file: its layout and the symbols that it defines.
pub struct Image<'a> {
    source: Source<'a>,
    layout: Layout,
    x86_64: bool,
    /// Sorted by name, then address; no duplicates.
    entries: Vec<Entry<'a>>,
    /// Start and size of each function, sorted by start; no duplicate starts.
    functions: Vec<(u64, u64)>,
}

impl<'a> Image<'a> {
    /// Reads headers and both symbol tables. Nothing is demangled.
    pub fn parse(source: impl Into<Source<'a>>) -> Result<Self, ElfError> {
        let source = source.into();
        let layout = Layout::read(source)?;
        let entries = table::read(source)?;
        let mut functions: Vec<(u64, u64)> = entries
            .iter()
            .filter(|entry| entry.kind == Kind::Function)
            .map(|entry| (entry.vaddr, entry.size))
            .collect();
        // The largest size first, so that an alias without a size does not hide the function's end.
        functions.sort_unstable_by_key(|&(vaddr, size)| (vaddr, std::cmp::Reverse(size)));
        functions.dedup_by_key(|&mut (vaddr, _)| vaddr);
        let header = FileHeader64::<LittleEndian>::parse(source)
            .map_err(|error| ElfError(error.to_string()))?;
        let x86_64 = header.e_machine(LittleEndian) == EM_X86_64;
        Ok(Self {
            source,
            layout,
            x86_64,
            entries,
            functions,
        })
    }

    /// Build id, segments, position independence.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The linker's build id, if the file has one.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.layout.build_id.as_ref()
    }

    /// Number of distinct functions that the symbol tables define.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// Whether a function or variable of exactly this (mangled) name is defined.
    pub fn defines(&self, name: &str) -> bool {
        !self.entries_named(name).is_empty()
    }

    /// At most so many bytes of the file from `vaddr` on; fewer where its segment ends, none that the file does not have.
    fn bytes_at(&self, vaddr: u64, most_bytes: u64) -> Option<&'a [u8]> {
        let segment = self.layout.segment_of_vaddr(vaddr)?;
        let start = segment.file_offset.checked_add(vaddr - segment.vaddr)?;
        let end = segment.file_offset.checked_add(segment.file_size_bytes)?;
        let length = end.min(self.source.len().ok()?).checked_sub(start)?;
        self.source
            .read_bytes_at(start, length.min(most_bytes))
            .ok()
    }

    /// Code from `vaddr` to the end of its function: by the symbol's size or, for symbols without one, by the next function.
    fn code_of_function(&self, vaddr: u64) -> Option<&'a [u8]> {
        let at = self.functions.partition_point(|&(start, _)| start <= vaddr);
        let next = self.functions.get(at).map(|&(start, _)| start - vaddr);
        let own = at
            .checked_sub(1)
            .map(|at| self.functions[at])
            .and_then(|(start, size)| start.checked_add(size)?.checked_sub(vaddr));
        let length = own.filter(|&length| length > 0).or(next);
        self.bytes_at(vaddr, length.unwrap_or(UNSIZED_BYTES))
    }
}
