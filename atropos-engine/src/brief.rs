//! A session in brief: what each tick asks of every session, kept apart from the rest, since there can be thousands of them
//! and a tick waits for what it must fetch from memory.

use super::input::{Activity, SessionState};

/// The brief.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Brief {
    /// Number of the tick that listed the session latest.
    pub(super) listed_in: u64,
    /// Time that the current request spent in waits that are over.
    pub(super) waited_ns: u64,
    /// When somebody asked the target to cancel it.
    pub(super) killed_ns: Option<u64>,
    /// It waits at this moment.
    pub(super) waits: bool,
    /// Of its state, if it has one.
    pub(super) listed: Option<Listed>,
}

impl Brief {
    /// It is the agent's own session.
    pub(super) fn is_own(&self) -> bool {
        self.listed.is_some_and(|listed| listed.own)
    }

    /// Since when it runs a request, as far as ticks tell; the agent's own requests do not count.
    pub(super) fn busy_since_ns(&self) -> Option<u64> {
        let listed = self.listed.as_ref()?;
        listed.is_foreign_and_busy().then_some(listed.since_ns)
    }
}

/// The part of a session's state that each tick asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    pub(super) since_ns: u64,
    pub(super) class: Option<u16>,
    activity: Activity,
    own: bool,
}

impl Listed {
    /// Of a state.
    pub(super) fn of(state: &SessionState) -> Self {
        Self {
            since_ns: state.since_ns,
            class: state.class,
            activity: state.activity,
            own: state.own,
        }
    }

    /// It runs a request, and is not the agent's own.
    pub(super) fn is_foreign_and_busy(&self) -> bool {
        self.activity == Activity::Busy && !self.own
    }
}
