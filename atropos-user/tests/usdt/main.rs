//! USDT notes: the golden table of `PostgreSQL`'s, notes of any bytes, and files that a real compiler made.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
mod marks;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use atropos::elf::Image;
use atropos::elf::operand::Machine;
use atropos::elf::stapsdt::{Usdt, Word, notes};
use proptest::prelude::*;

const POSTGRESQL: &str = include_str!("postgresql-15.txt");

/// One note as the assembler writes it.
fn encode(word: Word, addresses: [u64; 3], texts: [&str; 3]) -> Vec<u8> {
    let mut payload = Vec::new();
    for address in addresses {
        match word {
            Word::Eight => payload.extend(address.to_le_bytes()),
            Word::Four => payload.extend((address as u32).to_le_bytes()),
        }
    }
    for text in texts {
        payload.extend(text.as_bytes());
        payload.push(0);
    }
    let mut note = Vec::new();
    note.extend(8_u32.to_le_bytes());
    note.extend((payload.len() as u32).to_le_bytes());
    note.extend(3_u32.to_le_bytes());
    note.extend(b"stapsdt\0");
    note.extend(payload);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// The dump's notes as a section, its base address, and its symbols.
fn postgresql() -> (Vec<u8>, u64, Vec<(String, u64)>) {
    let (mut section, mut base, mut symbols) = (Vec::new(), 0, Vec::new());
    for line in POSTGRESQL.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.splitn(5, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (name, second, third) = (word(), word(), word());
        if name == "symbol" {
            symbols.push((second.to_owned(), hexadecimal(third)));
            continue;
        }
        base = hexadecimal(third);
        let semaphore = hexadecimal(word());
        let (provider, name) = name.split_once(':').unwrap();
        let addresses = [hexadecimal(second), base, semaphore];
        section.extend(encode(Word::Eight, addresses, [provider, name, word()]));
    }
    (section, base, symbols)
}

/// A site with its operands as the kernel half begins with them.
fn table(sites: &[Usdt], symbols: &[(String, u64)]) -> String {
    let mut table = String::new();
    for site in sites {
        let semaphore = site.semaphore_vaddr.unwrap_or_default();
        writeln!(
            table,
            "{} {:#x} {semaphore:#x}",
            site.full_name(),
            site.vaddr
        )
        .unwrap();
        for operand in site.operands(Machine::X86_64) {
            let start = operand.start(site.vaddr, &|name| {
                let found = symbols.iter().find(|(known, _)| known == name);
                found.map(|(_, vaddr)| *vaddr)
            });
            let start = start.unwrap_or_else(|reason| panic!("{operand}: {reason}"));
            writeln!(table, "    {:<28} {start:?}", operand.text).unwrap();
        }
    }
    table
}

#[test]
fn every_note_of_postgresql_can_be_evaluated() {
    let (section, base, symbols) = postgresql();
    let sites = notes(&section, Word::Eight, Some(base));
    assert_eq!(sites.len(), 71);
    insta::assert_snapshot!("postgresql_15", table(&sites, &symbols));
}

#[test]
fn the_installed_postgresql_is_read_like_the_golden_table() {
    let path = Path::new("/usr/lib/postgresql/15/bin/postgres");
    let Ok(bytes) = std::fs::read(path) else {
        return common::skip("there is no PostgreSQL 15 here");
    };
    let image = Image::parse(&bytes).unwrap();
    let sites = image.usdt().unwrap();
    let (section, base, _) = postgresql();
    let golden = notes(&section, Word::Eight, Some(base));
    if image.build_id().map(ToString::to_string).as_deref()
        == Some("44c007cfee140e4c25e8a434008096828e70a92c")
    {
        assert_eq!(sites, golden);
    } else {
        // Another minor release: the same probes, elsewhere.
        let probes = |sites: &[Usdt]| -> BTreeSet<(String, usize)> {
            let probe = |site: &Usdt| (site.full_name(), site.operands(Machine::X86_64).len());
            sites.iter().map(probe).collect()
        };
        assert_eq!(probes(&sites), probes(&golden));
    }
    for site in &sites {
        let found = image.usdt_site(site.vaddr).unwrap();
        assert!(found.cost.is_emulated() && found.moved == 0, "{found:?}");
        assert!(
            image
                .layout()
                .file_offset(site.semaphore_vaddr.unwrap())
                .is_some()
        );
    }
}

#[test]
fn a_file_that_was_moved_has_all_addresses_corrected() {
    let note = encode(Word::Eight, [0x1000, 0x8000, 0x9000], ["p", "n", "8@%rax"]);
    let at = |base| {
        let site = notes(&note, Word::Eight, base).remove(0);
        (site.vaddr, site.semaphore_vaddr)
    };
    assert_eq!(at(Some(0x8000)), (0x1000, Some(0x9000)));
    assert_eq!(at(Some(0x28000)), (0x21000, Some(0x29000)));
    assert_eq!(at(Some(0x7000)), (0, Some(0x8000)));
    assert_eq!(at(None), (0x1000, Some(0x9000)));
    let without = encode(Word::Eight, [0x1000, 0x8000, 0], ["p", "n", ""]);
    let site = notes(&without, Word::Eight, Some(0x28000)).remove(0);
    assert_eq!(site.semaphore_vaddr, None);
}

#[test]
fn notes_of_32_bits_are_read_and_wrap() {
    let note = encode(Word::Four, [0x10, 0x8000, 0x20], ["p", "n", "4@%eax"]);
    let site = notes(&note, Word::Four, Some(0x7ff0)).remove(0);
    assert_eq!((site.vaddr, site.semaphore_vaddr), (0, Some(0x10)));
    let site = notes(&note, Word::Four, Some(0x7fe0)).remove(0);
    assert_eq!(site.vaddr, 0xffff_fff0);
}

#[test]
fn notes_of_others_and_broken_ones_are_passed_over() {
    let mut section = encode(Word::Eight, [1, 0, 0], ["p", "first", ""]);
    let mut other = encode(Word::Eight, [2, 0, 0], ["p", "other", ""]);
    other[12] = b'X';
    section.extend(other);
    section.extend(encode(Word::Eight, [3, 0, 0], ["", "nobody", ""]));
    section.extend(encode(Word::Eight, [4, 0, 0], ["p", "last", ""]));
    section.extend([8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0]);
    let names: Vec<_> = notes(&section, Word::Eight, None)
        .into_iter()
        .map(|site| site.name)
        .collect();
    assert_eq!(names, ["first", "last"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_noted_is_read(
        sites in prop::collection::vec((any::<[u64; 3]>(), "[a-z]{1,9}", "[a-z_]{1,20}", "[ -~]{0,40}"), 0..8),
    ) {
        let section: Vec<u8> = sites
            .iter()
            .flat_map(|(addresses, provider, name, arguments)| {
                encode(Word::Eight, *addresses, [provider, name, arguments])
            })
            .collect();
        let found = notes(&section, Word::Eight, None);
        prop_assert_eq!(found.len(), sites.len());
        for (found, (addresses, provider, name, arguments)) in found.iter().zip(&sites) {
            prop_assert_eq!(found.vaddr, addresses[0]);
            prop_assert_eq!(found.semaphore_vaddr.unwrap_or_default(), addresses[2]);
            prop_assert_eq!((&found.provider, &found.name, &found.arguments), (provider, name, arguments));
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), base in any::<Option<u64>>()) {
        for word in [Word::Four, Word::Eight] {
            for site in notes(&bytes, word, base) {
                drop((site.operands(Machine::X86_64), site.operands(Machine::Aarch64)));
            }
        }
    }

    #[test]
    fn damaged_notes_are_read_without_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let (mut section, base, _) = postgresql();
        *at.get_mut(&mut section) = byte;
        section.truncate(cut.index(section.len() + 1));
        drop(notes(&section, Word::Eight, Some(base)));
    }
}
