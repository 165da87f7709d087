//! USDT notes: the bytes of `.note.stapsdt` to sites, each with its own operands and its semaphore.
//!
//! A note tells where a probe lies as the linker saw it, and where it saw `.stapsdt.base`; if the file was moved since (by
//! `prelink`), the difference of that section's address corrects all addresses. Works on programs and libraries, stripped or
//! not; files of 32 bits are read too, though nothing can be attached to them here.

use iced_x86::{Decoder, DecoderOptions};
use object::{Architecture, Object as _, ObjectSection as _};

use super::operand::{self, Machine, Operand};
use super::site::{cost, name};
use super::symbols::glob_matches;
use super::{ElfError, Image, Site, SiteError, Source};

/// Section with the notes.
const NOTES: &str = ".note.stapsdt";

/// Section whose address tells by how much the file was moved.
const BASE: &str = ".stapsdt.base";

/// Owner of the notes.
const OWNER: &[u8] = b"stapsdt\0";

/// The longest instruction.
const INSTRUCTION_BYTES: u64 = 15;

/// Type of the notes.
const TYPE: u32 = 3;

/// One site of a USDT probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usdt {
    /// Who provides the probe.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Virtual address of the site.
    pub vaddr: u64,
    /// Virtual address of the counter (2 bytes) that the application looks at; the probe is passed only while it is not 0.
    pub semaphore_vaddr: Option<u64>,
    /// The operands' text.
    pub arguments: String,
}

/// Size of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

impl Usdt {
    /// `provider:name`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.provider, self.name)
    }

    /// Whether `provider:name` fits a pattern, in which `*` stands for any number of characters.
    pub fn fits(&self, pattern: &str) -> bool {
        glob_matches(pattern.as_bytes(), self.full_name().as_bytes())
    }

    /// The operands.
    pub fn operands(&self, machine: Machine) -> Vec<Operand> {
        operand::parse(&self.arguments, machine)
    }
}

/// Every site in a file, in the notes' order; none if it has no notes.
pub fn read<'a>(source: impl Into<Source<'a>>) -> Result<Vec<Usdt>, ElfError> {
    let wrong = |error: object::Error| ElfError(error.to_string());
    let file = object::File::parse(source.into()).map_err(wrong)?;
    if !file.is_little_endian() {
        return Err(ElfError("it is big-endian".to_owned()));
    }
    let word = if file.is_64() {
        Word::Eight
    } else {
        Word::Four
    };
    let base = file.section_by_name(BASE).map(|section| section.address());
    let mut found = Vec::new();
    // A linker script may leave several sections of the name.
    for section in file
        .sections()
        .filter(|section| section.name() == Ok(NOTES))
    {
        found.extend(notes(section.data().map_err(wrong)?, word, base));
    }
    Ok(found)
}

/// Whose syntax the operands of a file have; nothing for processors that are not understood.
pub fn machine<'a>(source: impl Into<Source<'a>>) -> Option<Machine> {
    match object::File::parse(source.into()).ok()?.architecture() {
        Architecture::X86_64 | Architecture::X86_64_X32 | Architecture::I386 => {
            Some(Machine::X86_64)
        }
        Architecture::Aarch64 => Some(Machine::Aarch64),
        _ => None,
    }
}

/// Reads the notes of one section; `base` is the address of `.stapsdt.base` as the file has it. Notes that are cut short or
/// are something else are passed over.
pub fn notes(section: &[u8], word: Word, base: Option<u64>) -> Vec<Usdt> {
    let mut found = Vec::new();
    let mut rest = section;
    while let Some((note, tail)) = next(rest) {
        rest = tail;
        if note.owner == OWNER && note.kind == TYPE {
            found.extend(usdt(note.payload, word, base));
        }
    }
    found
}

struct Note<'a> {
    owner: &'a [u8],
    kind: u32,
    payload: &'a [u8],
}

/// The first note and what is behind it. Everything is padded to 4 bytes.
fn next(bytes: &[u8]) -> Option<(Note<'_>, &[u8])> {
    let field = |at: usize| {
        let bytes = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let (owner_size, size, kind) = (field(0)? as usize, field(4)? as usize, field(8)?);
    let owner_end = 12_usize.checked_add(owner_size)?;
    let start = owner_end.checked_next_multiple_of(4)?;
    let end = start.checked_add(size)?;
    let note = Note {
        owner: bytes.get(12..owner_end)?,
        kind,
        payload: bytes.get(start..end)?,
    };
    let tail = bytes.get(end.checked_next_multiple_of(4)?..);
    Some((note, tail.unwrap_or_default()))
}

/// Address, base, semaphore, then provider, name and operands, each ended by a zero.
fn usdt(payload: &[u8], word: Word, base: Option<u64>) -> Option<Usdt> {
    let width = match word {
        Word::Four => 4,
        Word::Eight => 8,
    };
    let address = |index: usize| {
        let bytes = payload.get(index * width..(index + 1) * width)?;
        let mut whole = [0; 8];
        whole[..width].copy_from_slice(bytes);
        Some(u64::from_le_bytes(whole))
    };
    let (vaddr, noted_base, semaphore) = (address(0)?, address(1)?, address(2)?);
    let moved = |vaddr: u64| {
        let by = base.filter(|_| noted_base != 0).unwrap_or(noted_base);
        let moved = vaddr.wrapping_add(by.wrapping_sub(noted_base));
        match word {
            Word::Four => moved & 0xffff_ffff,
            Word::Eight => moved,
        }
    };
    let mut texts = payload.get(3 * width..)?.split(|byte| *byte == 0);
    let mut text = || Some(std::str::from_utf8(texts.next()?).ok()?.to_owned());
    let (provider, name, arguments) = (text()?, text()?, text()?);
    if provider.is_empty() || name.is_empty() {
        return None;
    }
    Some(Usdt {
        provider,
        name,
        vaddr: moved(vaddr),
        semaphore_vaddr: (semaphore != 0).then(|| moved(semaphore)),
        arguments,
    })
}

impl Image<'_> {
    /// Every USDT site of the file.
    pub fn usdt(&self) -> Result<Vec<Usdt>, ElfError> {
        read(self.source)
    }

    /// Where a USDT probe sits: exactly at its address, since the registers of its operands are right nowhere else.
    pub fn usdt_site(&self, vaddr: u64) -> Result<Site, SiteError> {
        if !self.x86_64 {
            return Err(SiteError::OtherProcessor);
        }
        let code = self
            .layout
            .segment_of_vaddr(vaddr)
            .filter(|segment| segment.executable)
            .and_then(|_| self.bytes_at(vaddr, INSTRUCTION_BYTES))
            .ok_or(SiteError::NotCode(vaddr))?;
        let first = Decoder::with_ip(64, code, vaddr, DecoderOptions::NONE).decode();
        let cost = cost(&first, code).map_err(|why| SiteError::Refused { vaddr, why })?;
        let file_offset = self.layout.file_offset(vaddr);
        Ok(Site {
            vaddr,
            file_offset: file_offset.ok_or(SiteError::NotCode(vaddr))?,
            moved: 0,
            cost,
            why: format!("`{}` of {} bytes", name(&first), first.len()),
        })
    }
}
