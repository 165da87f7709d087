//! Bytes of an ELF file in, sites out: symbols, displacements learned from accessors, USDT notes with their operands, the
//! cost of a probe.
//!
//! Pure: nothing here opens a file or knows a process. Addresses are virtual addresses as the file has them (`vaddr`);
//! [`crate::target`] adds the load bias. Only 64-bit little-endian files are taken; what disassembles takes x86-64 alone.

mod accessor;
mod demangle;
mod layout;
pub mod operand;
mod site;
pub mod stapsdt;
mod symbols;

use object::elf::{EM_X86_64, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSymbol as _};
use thiserror::Error;

pub use accessor::AccessorError;
pub use layout::{BuildId, Layout, Segment};
pub use site::{Cost, Keep, Site, SiteError};
pub use symbols::{NotFound, Symbol, SymbolPattern};

/// Why bytes are not an ELF file that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not a usable 64-bit little-endian ELF file: {0}")]
pub struct ElfError(pub(crate) String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Function,
    IndirectFunction,
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<'a> {
    name: &'a str,
    vaddr: u64,
    size: u64,
    kind: Kind,
}

/// One ELF file: its layout and the symbols that it defines.
pub struct Image<'a> {
    bytes: &'a [u8],
    layout: Layout,
    x86_64: bool,
    /// Sorted by name, then address; no duplicates.
    entries: Vec<Entry<'a>>,
    /// Start and size of each function, sorted by start; no duplicate starts.
    functions: Vec<(u64, u64)>,
}

impl<'a> Image<'a> {
    /// Reads headers and both symbol tables. Nothing is demangled.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        let layout = Layout::read(bytes)?;
        let file =
            ElfFile64::<LittleEndian>::parse(bytes).map_err(|error| ElfError(error.to_string()))?;
        let mut entries: Vec<Entry<'a>> = file
            .dynamic_symbols()
            .chain(file.symbols())
            .filter_map(|symbol| entry(&symbol))
            .collect();
        entries.sort_unstable();
        entries.dedup_by(|later, kept| {
            (later.name, later.vaddr, later.kind) == (kept.name, kept.vaddr, kept.kind)
        });
        let mut functions: Vec<(u64, u64)> = entries
            .iter()
            .filter(|entry| entry.kind == Kind::Function)
            .map(|entry| (entry.vaddr, entry.size))
            .collect();
        // The largest size first, so that an alias without a size does not hide the function's end.
        functions.sort_unstable_by_key(|&(vaddr, size)| (vaddr, std::cmp::Reverse(size)));
        functions.dedup_by_key(|&mut (vaddr, _)| vaddr);
        let x86_64 = file.elf_header().e_machine.get(LittleEndian) == EM_X86_64;
        Ok(Self {
            bytes,
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

    /// File bytes from `vaddr` to the end of what its segment keeps in the file.
    fn bytes_at(&self, vaddr: u64) -> Option<&'a [u8]> {
        let segment = self.layout.segment_of_vaddr(vaddr)?;
        let start = segment.file_offset + (vaddr - segment.vaddr);
        let end = segment.file_offset.checked_add(segment.file_size_bytes)?;
        self.bytes
            .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?.min(self.bytes.len()))
    }

    /// Code from `vaddr` to the end of its function: by the symbol's size or, for symbols without one, by the next function.
    fn code_of_function(&self, vaddr: u64) -> Option<&'a [u8]> {
        let bytes = self.bytes_at(vaddr)?;
        let at = self.functions.partition_point(|&(start, _)| start <= vaddr);
        let next = self.functions.get(at).map(|&(start, _)| start - vaddr);
        let own = at
            .checked_sub(1)
            .map(|at| self.functions[at])
            .and_then(|(start, size)| (start + size).checked_sub(vaddr));
        let length = own
            .filter(|&length| length > 0)
            .or(next)
            .unwrap_or(bytes.len() as u64);
        Some(&bytes[..bytes.len().min(length as usize)])
    }
}

fn entry<'a>(symbol: &object::read::elf::ElfSymbol64<'a, '_, LittleEndian>) -> Option<Entry<'a>> {
    if symbol.is_undefined() || symbol.address() == 0 {
        return None;
    }
    let kind = match symbol.elf_symbol().st_type() {
        STT_FUNC => Kind::Function,
        STT_GNU_IFUNC => Kind::IndirectFunction,
        STT_OBJECT => Kind::Data,
        _ => return None,
    };
    let name = symbol.name().ok()?;
    // `.symtab` spells symbol versions out (`write@@GLIBC_2.2.5`), `.dynsym` does not.
    let name = name.split_once('@').map_or(name, |(plain, _)| plain);
    if name.is_empty() {
        return None;
    }
    Some(Entry {
        name,
        vaddr: symbol.address(),
        size: symbol.size(),
        kind,
    })
}
