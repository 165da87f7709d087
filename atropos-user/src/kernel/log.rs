//! Log lines from inside the kernel half, on standard error: for whoever works on the programs.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

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

/// Fetches lines on a thread of its own until the process ends.
pub(super) fn start(ebpf: &mut Ebpf) -> Result<()> {
    let mut logger = EbpfLogger::init_with_logger(ebpf, StandardError)
        .context("cannot read the log of the kernel half")?;
    thread::spawn(move || {
        loop {
            logger.flush();
            thread::sleep(EVERY);
        }
    });
    Ok(())
}
