//! The operations a site can stand for (see `docs/config.md`).

/// What passing a site means. The numbers are part of the recording format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// A session starts a request.
    RequestBegin = 1,
    /// A session's request is over.
    RequestEnd = 2,
    /// The session is gone; everything it held is released.
    SessionEnd = 3,
    /// A session starts to wait for an instance of a resource.
    WaitBegin = 4,
    /// The wait is over, granted or not.
    WaitEnd = 5,
    /// A session holds an instance.
    Acquire = 6,
    /// A session lets an instance go.
    Release = 7,
    /// A session lets go of every instance of one resource.
    ReleaseAll = 8,
    /// A session brings units of a MEMORY resource in.
    Use = 9,
    /// A session drives a unit of a MEMORY resource out.
    Evict = 10,
    /// A request enters a queue.
    Enqueue = 11,
    /// A request leaves a queue and runs.
    Dequeue = 12,
    /// Work that the session's task has done so far.
    Progress = 13,
    /// Somebody asked for the session's cancellation; reported so that outcomes can be told from chance.
    Killed = 14,
    /// A thread or process in scope exited (made by the kernel half itself, never by a site).
    Exit = 15,
    /// A process in scope forked (made by the kernel half itself, never by a site).
    Fork = 16,
    /// What the session is doing, in words that lie at an address of the target.
    Label = 17,
    /// A session begins to bring a unit of a MEMORY resource in.
    FetchBegin = 18,
    /// It has brought it in, or has given up.
    FetchEnd = 19,
    /// Work that the session's task will take in all, in the unit of [`Op::Progress`].
    Work = 20,
}

impl Op {
    /// Every operation, in numeric order.
    pub const ALL: [Self; 20] = [
        Self::RequestBegin,
        Self::RequestEnd,
        Self::SessionEnd,
        Self::WaitBegin,
        Self::WaitEnd,
        Self::Acquire,
        Self::Release,
        Self::ReleaseAll,
        Self::Use,
        Self::Evict,
        Self::Enqueue,
        Self::Dequeue,
        Self::Progress,
        Self::Killed,
        Self::Exit,
        Self::Fork,
        Self::Label,
        Self::FetchBegin,
        Self::FetchEnd,
        Self::Work,
    ];

    /// The operation with this number, if there is one.
    #[must_use]
    pub fn from_u8(n: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == n)
    }
}
