//! When to ask a silent connection whether it lives, and when to try again after it broke: the same for every client.

/// A connection that has been silent for this long is pinged.
const PING_AFTER_NS: u64 = 5_000_000_000;
/// Waits between attempts to reconnect: doubled from the first to the last.
const BACK_OFF_NS: (u64, u64) = (200_000_000, 5_000_000_000);

/// What is known of a connection's health. Times are those of the caller's clock, nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    heard_ns: u64,
    trouble: Option<String>,
    failures: u32,
    retry_at_ns: u64,
}

impl Pulse {
    /// Why there is no connection, if there is none.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The same as text, for an error.
    pub(super) fn reason(&self) -> String {
        self.trouble.clone().unwrap_or_default()
    }

    /// The connection was opened.
    pub(super) fn opened(&mut self, now_ns: u64) {
        *self = Self {
            heard_ns: now_ns,
            ..Self::default()
        };
    }

    /// The server answered.
    pub(super) fn heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
    }

    /// The open connection broke: the first attempt to reconnect is due at once.
    pub(super) fn broke(&mut self, why: String) {
        self.trouble = Some(why);
        self.failures = 0;
        self.retry_at_ns = 0;
    }

    /// An attempt to open it failed: the next one waits.
    pub(super) fn refused(&mut self, now_ns: u64, why: String) {
        let (first, last) = BACK_OFF_NS;
        let wait_ns = first.saturating_mul(1 << self.failures.min(16)).min(last);
        self.trouble = Some(why);
        self.failures = self.failures.saturating_add(1);
        self.retry_at_ns = now_ns.saturating_add(wait_ns);
    }

    /// An open connection has been silent for long enough to be pinged.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.heard_ns) >= PING_AFTER_NS
    }

    /// A broken one may be opened again.
    pub(super) fn may_retry(&self, now_ns: u64) -> bool {
        now_ns >= self.retry_at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn attempts_come_at_once_after_a_break_and_then_ever_more_slowly() {
        let mut pulse = Pulse::default();
        pulse.opened(0);
        pulse.broke("reset by peer".to_owned());
        assert!(pulse.may_retry(0));
        let mut now_ns = 0;
        for wait_ms in [200, 400, 800, 1600, 3200, 5000, 5000] {
            pulse.refused(now_ns, "refused".to_owned());
            assert!(!pulse.may_retry(now_ns + wait_ms * MS - 1));
            now_ns += wait_ms * MS;
            assert!(pulse.may_retry(now_ns));
        }
        pulse.opened(now_ns);
        assert_eq!(pulse.trouble(), None);
    }

    #[test]
    fn only_a_silent_connection_is_pinged() {
        let mut pulse = Pulse::default();
        pulse.opened(1000 * MS);
        assert!(!pulse.is_due(5999 * MS));
        assert!(pulse.is_due(6000 * MS));
        pulse.heard(6000 * MS);
        assert!(!pulse.is_due(6001 * MS));
    }
}
