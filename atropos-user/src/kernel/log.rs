//! Log lines from inside the kernel half, on standard error: for whoever works on the programs.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

use super::sys;

/// How often the lines are fetched.
const EVERY: Duration = Duration::from_millis(100);

/// Prints lines.
struct StandardError;

impl Log for StandardError {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    #[expect(clippy::print_stderr, reason = "this is the log")]
    fn log(&self, record: &Record<'_>) {
        eprintln!("kernel half: {}", record.args());
    }

    fn flush(&self) {}
}

/// Fetches the lines of a loaded program on a thread of its own until the process ends.
pub(super) fn start(program: BorrowedFd<'_>) -> Result<()> {
    let program = sys::program_info(program).context("cannot ask for the number of a program")?;
    let mut logger = EbpfLogger::init_from_id_with_logger(program.id, StandardError)
        .context("cannot read the log of the kernel half")?;
    thread::spawn(move || {
        loop {
            logger.flush();
            thread::sleep(EVERY);
        }
    });
    Ok(())
}
