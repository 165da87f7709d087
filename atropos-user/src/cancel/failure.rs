//! Why a server's answer is not the one that was hoped for.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

use super::Answer;

/// The reason. `R` is how this kind of server says no.
#[derive(Debug)]
pub(super) enum Failure<R> {
    /// The server said no.
    Server(R),
    /// The connection broke.
    Broken(String),
    /// Nothing came back in time.
    Silent { limit_ms: u128 },
    /// There is no connection.
    NotConnected(String),
    /// The server did something that it should not.
    Unexpected(String),
}

impl<R> Failure<R> {
    /// The connection cannot be used any more.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Silent { .. })
    }
}

impl<R> Failure<R> {
    /// What it means for an order, in these words: only a server that said no has refused. Whatever happened after the command
    /// had left, the server may still carry it out.
    pub(super) fn answer(&self, text: String) -> Answer {
        match self {
            Self::Server(_) => Answer::refused(text),
            Self::NotConnected(_) => Answer::unsent(text),
            Self::Broken(_) | Self::Silent { .. } | Self::Unexpected(_) => Answer::unknown(text),
        }
    }
}

impl<R: fmt::Display> fmt::Display for Failure<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(refusal) => write!(f, "the server answered: {refusal}"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::Silent { limit_ms } => write!(f, "no answer within {limit_ms} ms"),
            Self::NotConnected(why) => write!(f, "not connected: {why}"),
            Self::Unexpected(what) => f.write_str(what),
        }
    }
}

/// Waits for an answer for at most `limit`.
pub(super) async fn within<T, R>(
    limit: Duration,
    work: impl Future<Output = Result<T, Failure<R>>>,
) -> Result<T, Failure<R>> {
    timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Failure::Silent {
            limit_ms: limit.as_millis(),
        })
    })
}
