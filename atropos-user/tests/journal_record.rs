//! Recordings: what goes in comes out, and no damage goes unnoticed.

#![allow(
    clippy::unwrap_used,
    reason = "in a test an unmet expectation is a failure"
)]

mod samples;

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use atropos::engine::Settings;
use atropos::engine::input::{Input, Lost};
use atropos::engine::record::{Effect, Level};
use atropos::engine::settings::Rerun;
use atropos::journal::{Decider, RecordError, RecordReader, RecordWriter, Recorder, replay};
use proptest::prelude::*;
use samples::{every_kind_of_input, input, settings, tick};

fn record(inputs: &[Input]) -> Vec<u8> {
    let mut writer = RecordWriter::new(Vec::new(), &settings()).unwrap();
    for input in inputs {
        writer.push(input).unwrap();
    }
    writer.finish().unwrap()
}

/// Everything that can be read, and the error that ended it.
fn read(bytes: &[u8]) -> (Vec<Input>, Option<RecordError>) {
    let reader = match RecordReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    assert_eq!(*reader.settings(), settings());
    let mut inputs = Vec::new();
    for next in reader {
        match next {
            Ok(input) => inputs.push(input),
            Err(error) => return (inputs, Some(error)),
        }
    }
    (inputs, None)
}

#[test]
fn a_recording_gives_back_settings_and_every_kind_of_input() {
    let inputs = every_kind_of_input();
    let (read, error) = read(&record(&inputs));
    assert!(error.is_none(), "{error:?}");
    assert_eq!(read, inputs);
}

#[test]
fn damage_to_any_byte_is_an_error_that_names_an_offset() {
    let inputs = every_kind_of_input();
    let whole = record(&inputs);
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            let (read, error) = read(&bytes);
            let error = error.unwrap_or_else(|| panic!("damage at byte {at} went unnoticed"));
            assert!(error.to_string().contains("byte "), "{error}");
            assert_eq!(
                read,
                inputs[..read.len()],
                "what was given before the damage at byte {at} is right"
            );
        }
    }
}

#[test]
fn a_recording_that_breaks_off_gives_every_whole_frame_and_says_where_it_ends() {
    let inputs: Vec<Input> = (0..100).map(|n| tick(n * 50_000_000, 3)).collect();
    let whole = record(&inputs);
    let mut most = 0;
    for length in 16..whole.len() {
        let bytes = &whole[..length];
        if let Err(error) = RecordReader::new(bytes) {
            assert!(error.is_truncation(), "{length}: {error}");
            continue;
        }
        let (read, error) = read(bytes);
        let error = error.unwrap_or_else(|| panic!("{length} bytes seem whole"));
        assert!(error.is_truncation(), "{length}: {error}");
        assert!(
            error.to_string().contains(&format!("byte {length}")),
            "{error}"
        );
        assert_eq!(read, inputs[..read.len()]);
        assert!(read.len() >= most, "more bytes, fewer inputs");
        most = read.len();
    }
    assert_eq!(
        most,
        inputs.len(),
        "without its end marker alone everything is read"
    );
}

#[test]
fn what_is_no_recording_or_of_another_version_is_told_apart() {
    assert!(matches!(read(b"").1, Some(RecordError::NotARecording)));
    assert!(matches!(
        read(b"{\"schema\":1}").1,
        Some(RecordError::NotARecording)
    ));
    let mut bytes = record(&[]);
    bytes[8..10].copy_from_slice(&7_u16.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..12]).to_le_bytes();
    bytes[12..16].copy_from_slice(&sum);
    let error = read(&bytes).1.unwrap();
    assert!(error.to_string().contains("version 7"), "{error}");
}

#[test]
fn missing_doubled_and_added_frames_are_noticed() {
    let inputs: Vec<Input> = (0..60).map(|n| tick(n * 50_000_000, 1)).collect();
    let whole = record(&inputs);
    let frames = frames(&whole);
    assert!(frames.len() >= 4, "settings, two of inputs, end");
    let build = |order: &[usize]| {
        let mut bytes = whole[..16].to_vec();
        for &index in order {
            bytes.extend_from_slice(&whole[frames[index].clone()]);
        }
        bytes
    };
    let last = frames.len() - 1;
    let all: Vec<usize> = (0..=last).collect();
    assert!(read(&build(&all)).1.is_none());
    assert!(
        read(&build(&[0, 2, last]))
            .1
            .unwrap()
            .to_string()
            .contains("missing or doubled")
    );
    assert!(
        read(&build(&[0, 1, 1, 2, last]))
            .1
            .unwrap()
            .to_string()
            .contains("missing or doubled")
    );
    let mut longer = whole.clone();
    longer.push(0);
    assert!(
        read(&longer)
            .1
            .unwrap()
            .to_string()
            .contains("behind the end marker")
    );
}

fn frames(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut at, mut frames) = (16, Vec::new());
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 5..at + 9].try_into().unwrap()) as usize;
        frames.push(at..at + 9 + length + 4);
        at = frames.last().unwrap().end;
    }
    frames
}

/// The encoding carries no names: when this fails, a recorded type has changed. Raise `record::VERSION`, then put the
/// value that is shown here.
#[test]
fn the_encoding_of_version_1_does_not_change_by_accident() {
    let mut raw = postcard::to_stdvec(&settings()).unwrap();
    for input in every_kind_of_input() {
        raw = postcard::to_extend(&input, raw).unwrap();
    }
    assert_eq!(atropos::journal::record::VERSION, 1);
    assert_eq!(format!("{:08x}", crc32fast::hash(&raw)), "364a77b1");
}

/// What was added to the settings since is missing in an older recording: the settings end earlier there.
#[test]
fn settings_that_end_before_what_was_added_later_have_its_defaults() {
    let whole = record(&[]);
    let frame = frames(&whole)[0].clone();
    let added = postcard::to_stdvec(&Rerun::default()).unwrap();
    let older = |cut: usize| {
        let payload = &whole[frame.start + 9..frame.end - 4 - cut];
        let mut bytes = whole[..frame.start + 5].to_vec();
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(payload);
        let sum = crc32fast::hash(&bytes[frame.start..]);
        bytes.extend(sum.to_le_bytes());
        RecordReader::new(io::Cursor::new(bytes))
    };
    let settings_read = older(added.len()).unwrap().settings().clone();
    assert_eq!(settings_read, settings());
    assert!(
        older(added.len() + 1).is_err(),
        "cut within what was always there"
    );
}

#[test]
fn a_minute_at_twenty_ticks_a_second_with_fifty_sessions_stays_small() {
    let inputs: Vec<Input> = (0..1_200).map(|n| tick(n * 50_000_000, 50)).collect();
    let bytes = record(&inputs).len();
    assert!(bytes < 60 * 20_000, "{bytes} bytes a minute");
}

#[test]
fn inputs_reach_the_disk_once_a_second_and_not_at_every_tick() {
    #[derive(Clone, Default)]
    struct Disk(Rc<RefCell<Vec<u8>>>);
    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let disk = Disk::default();
    let mut writer = RecordWriter::new(disk.clone(), &settings()).unwrap();
    let empty = disk.0.borrow().len();
    for n in 0..20 {
        writer.push(&tick(n * 50_000_000, 5)).unwrap();
        assert_eq!(disk.0.borrow().len(), empty, "tick {n}");
    }
    writer.push(&tick(20 * 50_000_000, 5)).unwrap();
    assert!(disk.0.borrow().len() > empty);
    let (read, error) = read(&disk.0.borrow());
    assert!(error.unwrap().is_truncation(), "no end marker yet");
    assert_eq!(read.len(), 21, "a killed agent loses at most a second");
}

#[test]
fn a_recording_made_in_the_background_is_whole_after_a_clean_stop() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.atr");
    let inputs = every_kind_of_input();
    let mut recorder = Recorder::create(&path, &settings()).unwrap();
    for input in &inputs {
        recorder.push(input);
    }
    recorder.finish().unwrap();
    let (read, error) = read(&std::fs::read(&path).unwrap());
    assert!(error.is_none(), "{error:?}");
    assert_eq!(read, inputs);
}

#[test]
fn a_full_disk_ends_the_recording_with_a_reason_and_nothing_else() {
    let full = std::path::Path::new("/dev/full");
    if full.exists() {
        match Recorder::create(full, &settings()) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
            Ok(recorder) => assert!(recorder.finish().unwrap_err().contains("cannot write")),
        }
    }
}

/// Says the level at every loss, with the number of ticks before it.
struct CountingDecider {
    ticks: u64,
}

impl Decider for CountingDecider {
    fn handle(&mut self, input: &Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Tick(_) => self.ticks += 1,
            Input::Lost(_) => {
                let level = if self.ticks.is_multiple_of(2) {
                    Level::Calm
                } else {
                    Level::Suspect
                };
                effects.push(Effect::Level(level));
            }
            _ => {}
        }
    }
}

#[test]
fn a_replay_gives_every_input_in_order_and_keeps_the_time_of_each_effect() {
    let lost = |at_ns| Input::Lost(Lost { at_ns, count: 1 });
    let whole = record(&[tick(10, 1), lost(15), tick(20, 1), lost(25)]);
    let make = |settings: &Settings| {
        assert_eq!(*settings, self::settings());
        CountingDecider { ticks: 0 }
    };
    let replayed = replay(RecordReader::new(whole.as_slice()).unwrap(), make).unwrap();
    assert_eq!(
        replayed.effects,
        vec![
            (15, Effect::Level(Level::Suspect)),
            (25, Effect::Level(Level::Calm))
        ]
    );
    assert_eq!((replayed.inputs, replayed.unclean.is_none()), (4, true));

    let cut = &whole[..whole.len() - 5];
    let replayed = replay(RecordReader::new(cut).unwrap(), make).unwrap();
    assert_eq!((replayed.inputs, replayed.effects.len()), (4, 2));
    assert!(replayed.unclean.unwrap().is_truncation());

    let mut damaged = whole;
    let middle = frames(&damaged)[1].start + 12;
    damaged[middle] ^= 1;
    assert!(replay(RecordReader::new(damaged.as_slice()).unwrap(), make).is_err());
}

proptest! {
    // A case writes and reads whole recordings: a quarter as many as `PROPTEST_CASES` says, 64 if it says nothing.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn any_inputs_survive_the_round_trip(inputs in proptest::collection::vec(input(), 0..40)) {
        let (read, error) = read(&record(&inputs));
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert_eq!(read, inputs);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), behind_a_header: bool) {
        let mut all = if behind_a_header { record(&[])[..16].to_vec() } else { Vec::new() };
        all.extend_from_slice(&bytes);
        if let Ok(reader) = RecordReader::new(all.as_slice()) {
            reader.for_each(drop);
        }
    }

    /// Checksums made right again, so that the layers behind them are reached.
    #[test]
    fn a_forged_payload_is_read_without_a_panic(payload in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u8..5) {
        let mut bytes = record(&[]);
        bytes.truncate(frames(&bytes)[0].end);
        let mut frame = vec![kind];
        frame.extend_from_slice(&1_u32.to_le_bytes());
        frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        frame.extend_from_slice(&payload);
        let sum = crc32fast::hash(&frame);
        bytes.extend_from_slice(&frame);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let (read, error) = read(&bytes);
        prop_assert!(read.is_empty() || error.is_some());
    }
}
