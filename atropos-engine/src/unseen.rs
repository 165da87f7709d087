//! A look that failed: time goes on, and what is known stays as it was last seen.
//!
//! Nothing is concluded from it. A session that could not be seen has not gone, a wait that could not be seen is not over,
//! and an order in flight has not been obeyed: nothing is decided, escalated or reported until the next tick.

use super::Engine;
use super::input::Unseen;
use super::record::Effect;

impl Engine {
    /// Takes a failed look in.
    pub(super) fn unseen(&mut self, unseen: &Unseen, out: &mut Vec<Effect>) {
        self.ledger.advance(unseen.at_ns);
        let now_ns = self.ledger.now_ns;
        self.guard.forget(&self.settings, now_ns);
        self.detector.count(&unseen.requests, now_ns);
        self.ledger.note_unseen();
        // Where nothing is seen for long, the suspect level has nothing to go by.
        self.leave_suspicion(out);
    }
}
