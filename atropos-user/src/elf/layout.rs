//! What the program headers say: build id, loadable segments, position independence. Read without symbols or sections, so
//! that a stripped file and a file read piecewise (`object::ReadCache`) are answered alike.

use std::fmt;

use object::elf::{ET_DYN, ET_EXEC, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, ReadRef};

use super::ElfError;

const PAGE_BYTES: u64 = 4096;

/// A linker's build id: the same bytes mean the same build.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BuildId(Vec<u8>);

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// A loadable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Virtual address of its first byte, before the load bias.
    pub vaddr: u64,
    /// Where it begins in the file.
    pub file_offset: u64,
    /// How many of its bytes are in the file.
    pub file_size_bytes: u64,
    /// Whether it holds code.
    pub executable: bool,
}

/// How a file is laid out in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The linker's build id, if any.
    pub build_id: Option<BuildId>,
    /// Loadable segments in the file's order.
    pub segments: Vec<Segment>,
    /// Whether the loader chooses its address: shared libraries and PIE programs.
    pub position_independent: bool,
}

impl Layout {
    /// Reads the program headers.
    pub fn read<'data, R: ReadRef<'data>>(data: R) -> Result<Self, ElfError> {
        let wrong = |error: object::Error| ElfError(error.to_string());
        let header = FileHeader64::<LittleEndian>::parse(data).map_err(wrong)?;
        let endian = header.endian().map_err(wrong)?;
        let position_independent = match header.e_type(endian) {
            ET_DYN => true,
            ET_EXEC => false,
            other => {
                return Err(ElfError(format!(
                    "type {other} is neither a program nor a shared library"
                )));
            }
        };
        let mut layout = Self {
            build_id: None,
            segments: Vec::new(),
            position_independent,
        };
        for program in header.program_headers(endian, data).map_err(wrong)? {
            match program.p_type(endian) {
                PT_LOAD => layout.segments.push(Segment {
                    vaddr: program.p_vaddr(endian),
                    file_offset: program.p_offset(endian),
                    file_size_bytes: program.p_filesz(endian),
                    executable: program.p_flags(endian) & PF_X != 0,
                }),
                PT_NOTE => {
                    let mut notes = program.notes(endian, data).map_err(wrong)?;
                    while let Some(notes) = notes.as_mut() {
                        let Some(note) = notes.next().map_err(wrong)? else {
                            break;
                        };
                        if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
                            layout.build_id = Some(BuildId(note.desc().to_vec()));
                        }
                    }
                }
                _ => {}
            }
        }
        if layout.segments.is_empty() {
            return Err(ElfError("it has no loadable segment".to_owned()));
        }
        Ok(layout)
    }

    /// The segment whose bytes in the file hold `vaddr`.
    pub(super) fn segment_of_vaddr(&self, vaddr: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| {
            vaddr
                .checked_sub(segment.vaddr)
                .is_some_and(|distance| distance < segment.file_size_bytes)
        })
    }

    /// File offset of a virtual address; `None` for what the file does not hold (zero-filled data).
    pub fn file_offset(&self, vaddr: u64) -> Option<u64> {
        self.segment_of_vaddr(vaddr)
            .map(|segment| segment.file_offset + (vaddr - segment.vaddr))
    }

    /// What the loader added to virtual addresses, from one mapping of the file: where it starts in memory, and from which
    /// file offset. Wraps, as the loader's addition does. `None` when no segment of the same access begins there.
    pub fn load_bias(
        &self,
        mapping_start: u64,
        mapping_file_offset: u64,
        executable: bool,
    ) -> Option<u64> {
        self.segments
            .iter()
            .filter(|segment| segment.executable == executable)
            .find_map(|segment| {
                let page_start = segment.file_offset - segment.file_offset % PAGE_BYTES;
                let end = segment.file_offset.checked_add(segment.file_size_bytes)?;
                (page_start <= mapping_file_offset && mapping_file_offset < end).then(|| {
                    let vaddr = segment
                        .vaddr
                        .wrapping_sub(segment.file_offset)
                        .wrapping_add(mapping_file_offset);
                    mapping_start.wrapping_sub(vaddr)
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(segments: &[(u64, u64, u64, bool)]) -> Layout {
        let segments = segments
            .iter()
            .map(
                |&(vaddr, file_offset, file_size_bytes, executable)| Segment {
                    vaddr,
                    file_offset,
                    file_size_bytes,
                    executable,
                },
            )
            .collect();
        Layout {
            build_id: None,
            segments,
            position_independent: true,
        }
    }

    #[test]
    fn zero_filled_data_has_no_file_offset() {
        let layout = layout(&[(0x1000, 0x0, 0x500, true)]);
        assert_eq!(layout.file_offset(0x14ff), Some(0x4ff));
        assert_eq!(layout.file_offset(0x1500), None);
        assert_eq!(layout.file_offset(0xfff), None);
    }

    #[test]
    fn the_load_bias_takes_a_segment_that_does_not_begin_on_a_page() {
        // As lld lays files out: addresses and offsets differ by whole pages, and segments share file pages.
        let layout = layout(&[
            (0x20_0000, 0, 0x5c4, false),
            (0x20_15d0, 0x5d0, 0x1000, true),
        ]);
        assert_eq!(
            layout.load_bias(0x5555_0020_1000, 0, true),
            Some(0x5555_0000_0000)
        );
        assert_eq!(
            layout.load_bias(0x5555_0020_0000, 0, false),
            Some(0x5555_0000_0000)
        );
        assert_eq!(layout.load_bias(0x5555_0020_0000, 0x5000, false), None);
    }

    #[test]
    fn what_is_no_elf_file_is_an_error() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", &[0x7f; 64]] {
            assert!(Layout::read(bytes).is_err(), "{bytes:?}");
        }
    }
}
