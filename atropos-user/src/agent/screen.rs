//! Standard output, written by a thread of its own: whoever reads there and stalls (a stopped terminal, a pager, a log pipe that
//! is stuck) never holds up the loop that decides.
//!
//! Lines are made here and wait in a bounded queue. When it is full they are dropped and counted, and once there is room again one
//! line says how many are missing.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::clock;
use super::line::Line;

/// Lines that may wait for the reader.
const QUEUE_LINES: usize = 1024;

/// So much of the queue must be free before lines are taken again after some were dropped: a slow reader would else get one line
/// of what is missing for each line that is not.
const ROOM_LINES: usize = QUEUE_LINES / 2;

/// How long the end of a run waits for the reader, so that what was said last is normally seen.
const LAST_LIMIT: Duration = Duration::from_millis(200);

/// Where lines are shown, as text or as JSON.
pub struct Screen {
    json: bool,
    to_writer: mpsc::Sender<Job>,
    /// Lines that were dropped and of which nothing was said yet.
    unshown: AtomicU64,
}

enum Job {
    Line(Vec<u8>),
    /// Everything before this is written.
    Reached(oneshot::Sender<()>),
}

impl Screen {
    /// Shows on `out`, as text or as JSON lines.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(out: impl Write + Send + 'static, json: bool) -> io::Result<Self> {
        let (to_writer, jobs) = mpsc::channel(QUEUE_LINES);
        thread::Builder::new()
            .name("atropos-screen".to_owned())
            .spawn(move || write_all(out, jobs))?;
        Ok(Self {
            json,
            to_writer,
            unshown: AtomicU64::new(0),
        })
    }

    /// Shows a line, or nothing if there is none as text. Never waits.
    pub(super) fn show(&self, line: &Line<'_>, text: impl FnOnce() -> String) {
        let Some(bytes) = self.encode(line, text) else {
            return;
        };
        self.catch_up();
        if self.unshown.load(Ordering::Relaxed) > 0 || !self.put(bytes) {
            self.unshown.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Says how many lines were dropped, once there is room again.
    pub(super) fn catch_up(&self) {
        let count = self.unshown.load(Ordering::Relaxed);
        if count == 0 || self.to_writer.capacity() < ROOM_LINES {
            return;
        }
        let at_ns = clock::monotonic_ns();
        let notice = self.encode(&Line::Unshown { at_ns, count }, || {
            format!("{count} lines are missing here: they were not read in time")
        });
        if notice.is_some_and(|notice| self.put(notice)) {
            self.unshown.fetch_sub(count, Ordering::Relaxed);
        }
    }

    /// Shows the last line of a run and waits for the reader, a bounded time and not at all if it stalls anyway.
    pub(super) async fn show_last(&self, line: &Line<'_>, text: impl FnOnce() -> String) {
        let is_read = self.is_written().await;
        self.show(line, text);
        if is_read {
            self.is_written().await;
        }
    }

    /// Whether everything so far is written within [`LAST_LIMIT`].
    async fn is_written(&self) -> bool {
        let (reached, written) = oneshot::channel();
        let all = async {
            let asked = self.to_writer.send(Job::Reached(reached)).await;
            asked.is_ok() && written.await.is_ok()
        };
        timeout(LAST_LIMIT, all).await.unwrap_or(false)
    }

    fn put(&self, line: Vec<u8>) -> bool {
        self.to_writer.try_send(Job::Line(line)).is_ok()
    }

    fn encode(&self, line: &Line<'_>, text: impl FnOnce() -> String) -> Option<Vec<u8>> {
        let mut bytes = if self.json {
            // Plain data: there is nothing in it that JSON could not say.
            serde_json::to_vec(line).ok()?
        } else {
            let text = text();
            if text.is_empty() {
                return None;
            }
            format!("{} {text}", wall_time()).into_bytes()
        };
        bytes.push(b'\n');
        Some(bytes)
    }
}

fn write_all(mut out: impl Write, mut jobs: mpsc::Receiver<Job>) {
    while let Some(job) = jobs.blocking_recv() {
        match job {
            Job::Line(line) => {
                // Whoever reads us may go away; the watch goes on.
                let _ = out.write_all(&line).and_then(|()| out.flush());
            }
            Job::Reached(reached) => {
                // Who asked may have given up.
                let _ = reached.send(());
            }
        }
    }
}

/// Time of day, UTC.
fn wall_time() -> String {
    let now_ns = clock::epoch_ns();
    let (seconds, ms) = (now_ns / 1_000_000_000, now_ns / 1_000_000 % 1000);
    let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use serde_json::Value;

    use super::*;

    /// Writes each line once it is let.
    struct Slow {
        let_go: Receiver<()>,
        written: Sender<Value>,
    }

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            self.let_go.recv().map_err(gone)?;
            let whole = line.len();
            let line = serde_json::from_slice(line)?;
            self.written.send(line).expect("the test reads");
            Ok(whole)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn screen() -> (Screen, Sender<()>, Receiver<Value>) {
        let (reads, let_go) = channel();
        let (written, lines) = channel();
        let screen = Screen::start(Slow { let_go, written }, true).unwrap();
        (screen, reads, lines)
    }

    fn show(screen: &Screen, at_ns: u64) {
        screen.show(&Line::Lost { at_ns, count: 1 }, String::new);
    }

    #[test]
    fn a_reader_who_stalls_holds_nobody_up_and_is_told_once_how_much_is_missing() {
        let (screen, reads, lines) = screen();
        for at_ns in 0..3 * QUEUE_LINES as u64 {
            show(&screen, at_ns);
        }
        let unshown = screen.unshown.load(Ordering::Relaxed);
        let shown = 3 * QUEUE_LINES as u64 - unshown;
        for at_ns in 0..shown {
            screen.catch_up();
            reads.send(()).unwrap();
            assert_eq!(lines.recv().unwrap()["at_ns"], at_ns);
        }
        while screen.to_writer.capacity() < QUEUE_LINES {
            thread::yield_now();
            let _ = reads.send(());
        }
        show(&screen, 7);
        reads.send(()).unwrap();
        reads.send(()).unwrap();
        let notice = lines.recv().unwrap();
        assert_eq!(
            (&notice["event"], &notice["count"]),
            (&"unshown".into(), &unshown.into())
        );
        assert_eq!(lines.recv().unwrap()["at_ns"], 7);
    }

    #[tokio::test]
    async fn the_last_line_is_shown_and_a_stalled_reader_is_not_waited_for() {
        let last = Line::Stopped {
            at_ns: 1,
            reason: "asked to stop",
        };
        let (screen, reads, lines) = screen();
        reads.send(()).unwrap();
        screen.show_last(&last, String::new).await;
        assert_eq!(lines.recv().unwrap()["event"], "stopped");
        // Nobody reads: this returns all the same.
        for at_ns in 0..2 * QUEUE_LINES as u64 {
            show(&screen, at_ns);
        }
        screen.show_last(&last, String::new).await;
        assert!(lines.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_reader_who_goes_away_is_no_reason_to_end() {
        let (screen, reads, _lines) = screen();
        drop(reads);
        show(&screen, 1);
        assert!(screen.is_written().await);
    }
}
