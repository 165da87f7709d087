//! What the demo needs of a server, whichever it is: who it is, how the agent gets at it, customers for the load, and
//! connections for whoever is let in to hurt them.

use anyhow::Result;

/// The code of a statement that was interrupted; MariaDB's, which stands for the same at every server.
pub(crate) const INTERRUPTED: u16 = 1317;
/// The server's word for a connection that it closed.
pub(crate) const CLOSED: u16 = 1927;
/// A client's own word for a connection that is gone.
pub(crate) const LOST: u16 = 2013;
/// The code of an error that the server says in words only.
pub(crate) const OTHER: u16 = 1105;

/// A server that the demo is played at.
pub(crate) trait Place: Sync {
    /// Who makes the load.
    type Customer: Customer;
    /// Who plays a role.
    type Person: Person;

    /// Its process id.
    fn pid(&self) -> u32;

    /// What the agent is told, so that its orders reach this server.
    fn reach(&self) -> Vec<String>;

    /// One more connection for the load.
    fn customer(&self) -> impl Future<Output = Result<Self::Customer>> + Send;

    /// A connection as that user.
    fn person(&self, user: &'static str) -> impl Future<Output = Result<Self::Person>> + Send;
}

/// A connection that makes requests, and comes back if it is lost.
pub(crate) trait Customer: Send + 'static {
    /// One short request, a read and a write in turn, spread over tables and rows; the error's code if it fails.
    fn request(&mut self, number: u64) -> impl Future<Output = Result<(), u16>> + Send;
}

/// A connection that does what it is told.
pub(crate) trait Person: Send + 'static {
    /// The server's number of it.
    fn id(&self) -> u64;

    /// One statement, to its end.
    fn say(&mut self, statement: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Says good-bye; a connection that was ended by the server needs none.
    fn leave(self) -> impl Future<Output = ()> + Send + 'static;
}

/// How a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The error's code.
    pub(crate) code: u16,
    /// The same in words.
    pub(crate) why: String,
}

/// Whether a victim with that error was hurt by an order that was not meant for it.
pub(crate) fn is_hurt(code: u16) -> bool {
    matches!(code, INTERRUPTED | CLOSED | LOST)
}

/// How a statement ended, for people.
pub(crate) fn fate(done: &Result<(), Failure>) -> String {
    match done {
        Ok(()) => "is done".to_owned(),
        Err(Failure {
            code: INTERRUPTED,
            why,
        }) => format!("was interrupted ({why})"),
        Err(Failure {
            code: LOST | CLOSED,
            ..
        }) => "found its connection closed".to_owned(),
        Err(Failure { why, .. }) => format!("failed ({why})"),
    }
}
