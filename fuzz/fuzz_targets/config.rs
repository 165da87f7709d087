//! Any bytes as a config: an answer, never a panic, and an error that can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Err(problems) = atropos::config::parse("fuzz.toml", &text) {
        assert!(problems.iter().next().is_some(), "an error without a problem");
        assert!(problems.to_string().chars().all(|c| c == '\n' || !c.is_control()));
    }
});
