//! The one voice of the demo: tells what happens as it happens, with the time since the beginning.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use super::clock::{SECOND, now_ns};

/// The one voice that prints: a line is told with the time since the beginning.
#[derive(Clone)]
pub(crate) struct Story {
    start_ns: u64,
    silent: bool,
    phase: Arc<Mutex<&'static str>>,
}

impl Story {
    /// Begins at this moment.
    pub(crate) fn begin() -> Self {
        Self {
            start_ns: now_ns(),
            silent: false,
            phase: Arc::new(Mutex::new("")),
        }
    }

    /// One that keeps everything to itself.
    pub(crate) fn silent() -> Self {
        Self {
            silent: true,
            ..Self::begin()
        }
    }

    /// Tells one thing.
    pub(crate) fn tell(&self, text: impl AsRef<str>) {
        self.tell_at(now_ns(), text);
    }

    /// Tells one thing that happened at that moment.
    pub(crate) fn tell_at(&self, at_ns: u64, text: impl AsRef<str>) {
        if self.silent {
            return;
        }
        let seconds = at_ns.saturating_sub(self.start_ns) as f64 / SECOND as f64;
        // A closed pipe must not end a demo that has things to clean up.
        let _ = writeln!(std::io::stdout(), "{seconds:8.3} s  {}", text.as_ref());
    }

    /// Names what goes on, for the line of each second.
    pub(crate) fn phase(&self, phase: &'static str) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// What goes on.
    pub(crate) fn current_phase(&self) -> &'static str {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
