//! One authenticated session at a server, open before it is needed, and reopened outside the order path when it breaks.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::Clock;
use super::failure::{Failure, within};
use super::pulse::Pulse;

/// How long the end of a session of our own is looked for. A server that hangs under its load is slow at this as well.
pub(super) const SETTLE: Duration = Duration::from_secs(5);
/// Pause between two such looks.
pub(super) const SETTLE_PAUSE: Duration = Duration::from_millis(10);

/// Where a kind of server is, and as whom it is used.
pub(super) trait Reach: fmt::Display + fmt::Debug + Send + Sync {
    /// What comes of it.
    type Session: Session;

    /// Opens a session; each attempt takes `limit` at most.
    ///
    /// # Errors
    /// Why no way led to one.
    fn open(&self, limit: Duration) -> impl Future<Output = Result<Self::Session, String>> + Send;

    /// What the first session tells about further ways in.
    fn learn(&mut self, _session: &Self::Session) {}
}

/// An open session. It ends when dropped, in the background: a server that hangs must not collect our sockets.
pub(super) trait Session: Send {
    /// How this kind of server says no.
    type Refusal: fmt::Display + Send;

    /// Asks whether the server is there.
    fn ping(&mut self) -> impl Future<Output = Result<(), Failure<Self::Refusal>>> + Send;
}

type Refused<R> = Failure<<<R as Reach>::Session as Session>::Refusal>;

/// The session, or the reason why there is none.
pub(super) struct Warm<R: Reach> {
    reach: R,
    limit: Duration,
    clock: Clock,
    open: Option<R::Session>,
    pulse: Pulse,
}

impl<R: Reach> fmt::Debug for Warm<R> {
    // By hand: the clients' own types show their options, and with them the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warm")
            .field("reach", &self.reach)
            .field("open", &self.open.is_some())
            .field("pulse", &self.pulse)
            .finish_non_exhaustive()
    }
}

impl<R: Reach> Warm<R> {
    /// Without a session yet. `limit` is for each command and each attempt to connect.
    pub(super) fn new(reach: R, limit: Duration, clock: Clock) -> Self {
        Self {
            reach,
            limit,
            clock,
            open: None,
            pulse: Pulse::default(),
        }
    }

    pub(super) fn reach(&self) -> &R {
        &self.reach
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// The session, if it is open.
    pub(super) fn open(&self) -> Option<&R::Session> {
        self.open.as_ref()
    }

    /// Why there is none, if so.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.pulse.trouble()
    }

    /// The objection to every order while there is no session.
    pub(super) fn absence(&self) -> String {
        format!(
            "no control connection to {}: {}",
            self.reach,
            self.trouble().unwrap_or("not opened yet")
        )
    }

    /// Opens it.
    pub(super) async fn connect(&mut self) -> Result<(), String> {
        match self.reach.open(self.limit).await {
            Ok(session) => {
                self.reach.learn(&session);
                self.open = Some(session);
                self.pulse.opened((self.clock)());
                Ok(())
            }
            Err(why) => {
                let text = format!(
                    "cannot open a control connection to {}: {why}; check address, user and password",
                    self.reach
                );
                self.pulse.refused((self.clock)(), text.clone());
                Err(text)
            }
        }
    }

    /// Another session of the same account.
    pub(super) async fn another(&self) -> Result<R::Session, Refused<R>> {
        let opened = self.reach.open(self.limit).await;
        opened.map_err(Failure::NotConnected)
    }

    /// Pings, or reconnects when it is time to.
    pub(super) async fn keep(&mut self) -> Result<(), String> {
        let at_ns = (self.clock)();
        let Some(session) = &mut self.open else {
            if !self.pulse.may_retry(at_ns) {
                return Err(self.pulse.reason());
            }
            return self.connect().await;
        };
        if !self.pulse.is_due(at_ns) {
            return Ok(());
        }
        let answer = within(self.limit, session.ping()).await;
        if self.heard(answer).is_ok() {
            return Ok(());
        }
        // Reconnected in the same call: the way in should be shut for as short a time as possible.
        self.connect().await
    }

    /// The session for a command, whose answer is to be passed to [`Self::heard`].
    pub(super) fn session(&mut self) -> Result<&mut R::Session, Refused<R>> {
        let reason = || Failure::NotConnected(self.pulse.reason());
        self.open.as_mut().ok_or_else(reason)
    }

    /// After a command: remembers that the server lives, or gives the session up.
    pub(super) fn heard<T>(&mut self, answer: Result<T, Refused<R>>) -> Result<T, Refused<R>> {
        match &answer {
            Err(failure) if failure.is_fatal() => {
                self.pulse.broke(failure.to_string());
                self.open = None;
            }
            _ => self.pulse.heard((self.clock)()),
        }
        answer
    }
}
