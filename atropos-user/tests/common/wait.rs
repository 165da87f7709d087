//! Waiting for what will come, with a deadline. Time is counted, not tries: a busy machine makes few of them.

use std::time::Duration;

use super::clock_ns;

/// How long anything may take that is waited for. A machine with other work needs many times what an idle one does, and only
/// a test that fails waits for so long.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// The end of a wait that begins now.
pub struct Deadline {
    end_ns: u64,
}

impl Deadline {
    /// [`PATIENCE`] from now.
    pub fn new() -> Self {
        Self {
            end_ns: clock_ns() + PATIENCE.as_nanos() as u64,
        }
    }

    /// Fails once it is over.
    #[track_caller]
    pub fn check(&self, what: &str) {
        assert!(
            clock_ns() < self.end_ns,
            "waited {PATIENCE:?} in vain for {what}"
        );
    }

    /// Fails once it is over; otherwise lets some time pass before the next look.
    pub async fn pause(&self, what: &str) {
        self.check(what);
        tokio::time::sleep(PAUSE).await;
    }

    /// What is left.
    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(clock_ns()))
    }
}

/// Asks again and again until there is an answer.
#[track_caller]
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::new();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        deadline.check(what);
        std::thread::sleep(PAUSE);
    }
}

/// The same where the asking waits for a server.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Deadline::new();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        deadline.pause(what).await;
    }
}
