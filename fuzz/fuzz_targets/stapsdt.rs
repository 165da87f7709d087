//! Any bytes as USDT notes, and any text as operands: an answer, never a panic.
#![no_main]

use atropos::elf::operand::{self, Machine};
use atropos::elf::stapsdt::{self, Word};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for (word, base) in [(Word::Four, None), (Word::Eight, None), (Word::Eight, Some(0x8000))] {
        for site in stapsdt::notes(bytes, word, base) {
            assert!(site.fits("*") && !site.provider.is_empty() && !site.name.is_empty());
            look(&site.arguments, site.vaddr);
        }
    }
    look(&String::from_utf8_lossy(bytes), 0x1000);
    let _ = stapsdt::read(bytes);
});

/// Reads operands in both syntaxes and makes of each what the kernel half could begin with.
fn look(text: &str, vaddr: u64) {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        for operand in operand::parse(text, machine) {
            let start = operand.start(vaddr, &|name| Some(name.len() as u64));
            assert!(start.is_ok() || start.is_err_and(|reason| !reason.is_empty()));
        }
    }
}
