//! The symbols that a file defines, out of both of its symbol tables.

use object::elf::{
    FileHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT, Sym64,
};
use object::read::StringTable;
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use object::{LittleEndian, SectionIndex};

use super::{ElfError, Source};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Function,
    IndirectFunction,
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) vaddr: u64,
    pub(super) size: u64,
    pub(super) kind: Kind,
}

/// Every function and variable that the file defines, sorted by name, then address; no duplicates.
pub(super) fn read(source: Source<'_>) -> Result<Vec<Entry<'_>>, ElfError> {
    let wrong = |error: object::Error| ElfError(error.to_string());
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(source).map_err(wrong)?;
    let sections = header.sections(endian, source).map_err(wrong)?;
    let mut entries = Vec::new();
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let table = sections.symbols(endian, source, kind).map_err(wrong)?;
        if table.string_section() == SectionIndex(0) {
            continue;
        }
        // All names at once: one by one, each would be a read of its own.
        let names = sections
            .section(table.string_section())
            .and_then(|section| section.data(endian, source))
            .map_err(wrong)?;
        let names = StringTable::new(names, 0, names.len() as u64);
        entries.extend(table.iter().filter_map(|symbol| entry(symbol, names)));
    }
    entries.sort_unstable();
    entries.dedup_by(|later: &mut Entry<'_>, kept| {
        (later.name, later.vaddr, later.kind) == (kept.name, kept.vaddr, kept.kind)
    });
    entries.shrink_to_fit();
    Ok(entries)
}

fn entry<'a>(symbol: &Sym64<LittleEndian>, names: StringTable<'a, &'a [u8]>) -> Option<Entry<'a>> {
    let endian = LittleEndian;
    let vaddr = symbol.st_value(endian);
    if symbol.st_shndx(endian) == SHN_UNDEF || vaddr == 0 {
        return None;
    }
    let kind = match symbol.st_type() {
        STT_FUNC => Kind::Function,
        STT_GNU_IFUNC => Kind::IndirectFunction,
        STT_OBJECT => Kind::Data,
        _ => return None,
    };
    let name = std::str::from_utf8(symbol.name(endian, names).ok()?).ok()?;
    // `.symtab` spells symbol versions out (`write@@GLIBC_2.2.5`), `.dynsym` does not.
    let name = name.split_once('@').map_or(name, |(plain, _)| plain);
    if name.is_empty() {
        return None;
    }
    Some(Entry {
        name,
        vaddr,
        size: symbol.st_size(endian),
        kind,
    })
}
