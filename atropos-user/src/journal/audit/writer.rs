//! The thread that owns the file. Whoever hands it a line never waits for the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Intent;

/// Lines that may wait for the disk.
const QUEUE_LINES: usize = 1024;

/// Lines written and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Written to the file.
    pub written: u64,
    /// Not written: the disk refused, or was too slow.
    pub lost: u64,
}

#[derive(Default)]
struct State {
    counts: Counts,
    trouble: Option<String>,
}

struct Job {
    line: Vec<u8>,
    sync: bool,
    done: Option<oneshot::Sender<Result<(), String>>>,
}

/// The handle of the thread.
pub(super) struct Writer {
    to_thread: SyncSender<Job>,
    state: Arc<Mutex<State>>,
}

impl Writer {
    /// Opens the file; an error here is one of the start.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let torn = is_torn(&mut file)?;
        let (to_thread, jobs) = sync_channel(QUEUE_LINES);
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::Builder::new()
            .name("atropos-audit".to_owned())
            .spawn(move || write_all(file, torn, &jobs, &shared))?;
        Ok(Self { to_thread, state })
    }

    /// Hands a line over.
    pub(super) fn put(&self, line: Vec<u8>, sync: bool) {
        self.send(Job {
            line,
            sync,
            done: None,
        });
    }

    /// Hands a line over and waits until it is on disk, at most `limit`.
    pub(super) async fn put_and_wait(&self, line: Vec<u8>, limit: Duration) -> Intent {
        let (done, on_disk) = oneshot::channel();
        self.send(Job {
            line,
            sync: true,
            done: Some(done),
        });
        match timeout(limit, on_disk).await {
            Ok(Ok(Ok(()))) => Intent::OnDisk,
            Ok(Ok(Err(why))) => Intent::Failed(why),
            Ok(Err(_)) => Intent::Failed(
                self.trouble()
                    .unwrap_or_else(|| "the writer is gone".to_owned()),
            ),
            Err(_) => Intent::Late,
        }
    }

    /// Counts a line that could not even be made.
    pub(super) fn lose(&self, why: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.counts.lost += 1;
        state.trouble = Some(why);
    }

    pub(super) fn counts(&self) -> Counts {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .counts
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .trouble
            .clone()
    }

    fn send(&self, job: Job) {
        match self.to_thread.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.lose("the disk is too slow for the audit log".to_owned());
            }
            Err(TrySendError::Disconnected(_)) => {
                self.lose("the writer of the audit log is gone".to_owned());
            }
        }
    }
}

/// The file does not end with a line: an agent was killed while it wrote.
fn is_torn(file: &mut File) -> io::Result<bool> {
    // Not every file that can be appended to can be read from (a pipe, /dev/stderr): those cannot be torn.
    if !file.metadata()?.is_file() || file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

fn write_all(mut file: File, mut torn: bool, jobs: &Receiver<Job>, state: &Mutex<State>) {
    for Job { line, sync, done } in jobs {
        // One write for the whole line: with O_APPEND it stays in one piece beside other writers. After a torn line it
        // begins with a newline, so that only the torn one is lost.
        let bytes = if torn {
            [b"\n", line.as_slice()].concat()
        } else {
            line
        };
        let mut result = file.write_all(&bytes);
        torn = result.is_err();
        if sync && result.is_ok() {
            result = file.sync_data().or_else(cannot_sync);
        }
        let result = result.map_err(|error| format!("cannot write the audit log: {error}"));
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match &result {
            Ok(()) => state.counts.written += 1,
            Err(why) => {
                state.counts.lost += 1;
                state.trouble = Some(why.clone());
            }
        }
        drop(state);
        if let Some(done) = done {
            // Nobody may be waiting any more: then it was late.
            let _ = done.send(result);
        }
    }
}

/// A pipe or terminal cannot be synced, and needs not.
fn cannot_sync(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::InvalidInput {
        Ok(())
    } else {
        Err(error)
    }
}
