//! The same decisions again, from a recording.

use std::io::Read;

use crate::engine::input::Input;
use crate::engine::record::Effect;
use crate::engine::{Engine, Settings};

use super::record::{RecordError, RecordReader};

/// Whoever turns inputs into effects: the engine, or a stand-in in tests.
pub trait Decider {
    /// Takes one input and appends what it wants done.
    fn handle(&mut self, input: &Input, effects: &mut Vec<Effect>);
}

/// What came of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// Every effect with the time of the input that caused it, nanoseconds of the recorded machine's `CLOCK_MONOTONIC`.
    pub effects: Vec<(u64, Effect)>,
    /// Inputs that were replayed.
    pub inputs: u64,
    /// The recording has no end marker: the agent did not stop cleanly. What was read is whole.
    pub unclean: Option<RecordError>,
}

/// Gives every input of a recording to the decider that `make` builds from the recorded settings. A recording that only
/// breaks off is replayed as far as it goes; a damaged one is an error.
pub fn replay<R: Read, D: Decider>(
    mut reader: RecordReader<R>,
    make: impl FnOnce(&Settings) -> D,
) -> Result<Replayed, RecordError> {
    let mut decider = make(reader.settings());
    let mut effects = Vec::new();
    let mut fresh = Vec::new();
    let unclean = each_input(&mut reader, |input| {
        decider.handle(&input, &mut fresh);
        effects.extend(fresh.drain(..).map(|effect| (input.at_ns(), effect)));
    })?;
    Ok(Replayed {
        effects,
        inputs: reader.inputs(),
        unclean,
    })
}

/// Gives every input of a recording to `take`. A recording that only breaks off is read as far as it goes, and how it ends
/// is returned; a damaged one is an error.
pub fn each_input<R: Read>(
    reader: &mut RecordReader<R>,
    mut take: impl FnMut(Input),
) -> Result<Option<RecordError>, RecordError> {
    for input in reader {
        match input {
            Ok(input) => take(input),
            Err(error) if error.is_truncation() => return Ok(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

impl Decider for Engine {
    fn handle(&mut self, input: &Input, effects: &mut Vec<Effect>) {
        Self::handle(self, input, effects);
    }
}
