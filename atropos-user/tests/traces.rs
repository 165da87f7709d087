//! Recorded incidents are decided today as they were when they were committed: `presets/*/traces/NAME.rec` beside
//! `NAME.decisions.jsonl`. `ATROPOS_UPDATE_TRACES=1` writes the second file anew; look at the difference before you commit it. In what is
//! called `left_alone_...` nobody is ended.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use atropos::engine::Engine;
use atropos::engine::record::Effect;
use atropos::journal::{RecordReader, replay};

/// Every recording of every preset.
fn recordings() -> Vec<PathBuf> {
    let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../presets");
    let folders = fs::read_dir(presets)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("traces"));
    let mut found: Vec<PathBuf> = folders
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rec"))
        .collect();
    found.sort();
    found
}

/// What the engine says of a recording, one JSON object a line.
fn decisions(recording: &Path) -> String {
    let reader = RecordReader::open(recording)
        .unwrap_or_else(|error| panic!("{}: {error}", recording.display()));
    let replayed = replay(reader, |settings| Engine::new(settings.clone())).unwrap();
    assert!(
        replayed.unclean.is_none(),
        "{} was closed",
        recording.display()
    );
    let line = |(at_ns, effect): &(u64, Effect)| {
        serde_json::json!({ "at_ns": at_ns, "effect": effect }).to_string()
    };
    replayed
        .effects
        .iter()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
        + "\n"
}

#[test]
fn recorded_incidents_are_decided_as_they_were() {
    let recordings = recordings();
    assert!(recordings.len() >= 2, "the recordings are there");
    for recording in recordings {
        let committed = recording.with_extension("decisions.jsonl");
        let said = decisions(&recording);
        if std::env::var_os("ATROPOS_UPDATE_TRACES").is_some() {
            fs::write(&committed, &said).unwrap();
        }
        let committed = fs::read_to_string(&committed).unwrap_or_default();
        let name = recording.file_stem().unwrap().to_string_lossy();
        assert_eq!(
            said.contains("\"orders\":[{"),
            !name.starts_with("left_alone_"),
            "{}: an order was made, or was not",
            recording.display()
        );
        for (line, (said, committed)) in said.lines().zip(committed.lines()).enumerate() {
            assert_eq!(
                said,
                committed,
                "{}, line {}",
                recording.display(),
                line + 1
            );
        }
        assert_eq!(
            said.lines().count(),
            committed.lines().count(),
            "{}",
            recording.display()
        );
    }
}
