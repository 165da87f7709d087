//! What the demo needs of a server, whichever it is: who it is, how the agent gets at it, and customers for the load.

use anyhow::Result;

/// The code of a statement that was interrupted; MariaDB's, which stands for the same at every server.
pub(crate) const INTERRUPTED: u16 = 1317;
/// The server's word for a connection that it closed.
pub(crate) const CLOSED: u16 = 1927;
/// A client's own word for a connection that is gone.
pub(crate) const LOST: u16 = 2013;

/// A server that the demo is played at.
pub(crate) trait Place: Sync {
    /// Who makes the load.
    type Customer: Customer;

    /// Its process id.
    fn pid(&self) -> u32;

    /// What the agent is told, so that its orders reach this server.
    fn reach(&self) -> Vec<String>;

    /// One more connection for the load.
    fn customer(&self) -> impl Future<Output = Result<Self::Customer>> + Send;
}

/// A connection that makes requests, and comes back if it is lost.
pub(crate) trait Customer: Send + 'static {
    /// One short request, a read and a write in turn, spread over tables and rows; the error's code if it fails.
    fn request(&mut self, number: u64) -> impl Future<Output = Result<(), u16>> + Send;
}

/// How a statement ended, for people.
pub(crate) fn fate(done: Result<(), u16>) -> String {
    match done {
        Ok(()) => "is done".to_owned(),
        Err(INTERRUPTED) => format!("was interrupted (error {INTERRUPTED})"),
        Err(LOST | CLOSED) => "found its connection closed".to_owned(),
        Err(other) => format!("failed (error {other})"),
    }
}
