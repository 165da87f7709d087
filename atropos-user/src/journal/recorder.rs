//! A recording on a thread of its own, so that a slow disk never holds up the loop that decides.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::engine::Settings;
use crate::engine::input::Input;

use super::record::RecordWriter;

/// Inputs that may wait for the disk: more than ten seconds of a busy agent.
const QUEUE_INPUTS: usize = 8192;
/// How long a stop waits for the disk.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Records inputs in the background.
pub struct Recorder {
    /// `None` once the recording has stopped.
    to_writer: Option<SyncSender<Input>>,
    /// Closed by the writer when it is done.
    done: Receiver<()>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("recording", &self.to_writer.is_some())
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Creates the file; an error here is one of the start.
    pub fn create(path: &Path, settings: &Settings) -> io::Result<Self> {
        let writer = RecordWriter::create(path, settings)?;
        let (to_writer, inputs) = sync_channel(QUEUE_INPUTS);
        let trouble = Arc::new(Mutex::new(None));
        let said = Arc::clone(&trouble);
        let (done, when_done) = channel();
        thread::Builder::new()
            .name("atropos-record".to_owned())
            .spawn(move || {
                let _done: std::sync::mpsc::Sender<()> = done;
                if let Err(error) = write_all(writer, &inputs, &said) {
                    say(
                        &said,
                        format!("the recording stopped: cannot write: {error}"),
                    );
                }
            })?;
        Ok(Self {
            to_writer: Some(to_writer),
            done: when_done,
            trouble,
        })
    }

    /// Adds an input. Never blocks: when the disk is too slow the recording ends there, since one with a gap would
    /// replay to other decisions.
    pub fn push(&mut self, input: &Input) {
        let Some(to_writer) = &self.to_writer else {
            return;
        };
        match to_writer.try_send(input.clone()) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                say(
                    &self.trouble,
                    "the recording stopped: the disk is too slow".to_owned(),
                );
                self.to_writer = None;
            }
            Err(TrySendError::Disconnected(_)) => self.to_writer = None,
        }
    }

    /// Why the recording stopped, if it did.
    pub fn trouble(&self) -> Option<String> {
        self.trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Writes the rest and the end marker, and waits for it, at most two seconds.
    pub fn finish(mut self) -> Result<(), String> {
        self.to_writer = None;
        if self.done.recv_timeout(STOP_LIMIT) == Err(RecvTimeoutError::Timeout) {
            say(
                &self.trouble,
                "the recording is not finished: the disk is too slow".to_owned(),
            );
        }
        self.trouble().map_or(Ok(()), Err)
    }
}

fn write_all(
    mut writer: RecordWriter<impl io::Write>,
    inputs: &Receiver<Input>,
    trouble: &Mutex<Option<String>>,
) -> io::Result<()> {
    for input in inputs {
        writer.push(&input)?;
    }
    let whole = trouble
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .is_none();
    // Without the end marker a reader knows that something is missing.
    if whole {
        writer.finish().map(drop)
    } else {
        writer.flush()
    }
}

fn say(trouble: &Mutex<Option<String>>, text: String) {
    trouble
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert(text);
}
