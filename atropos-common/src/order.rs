//! Orders that a thread of the target finds by itself: key and value of the `ORDERS` map.
//!
//! The agent puts an order down for one thread and the request that it is about. The thread finds it when it passes a site
//! that stands for [`crate::op::Op::Killed`]; what it is doing at that very moment is compared there, by the thread itself, so
//! that nothing can change between the comparison and the signal.

/// Which thread an order is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct OrderKey {
    /// Process id (thread group id).
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
}

/// An order and what came of it. 48 bytes, no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OrderValue {
    /// The request that the order is about, as the site's value expression gives it.
    pub request: u64,
    /// `CLOCK_MONOTONIC` nanoseconds from which on the order counts for nothing.
    pub deadline_ns: u64,
    /// When the thread found it, `CLOCK_MONOTONIC` nanoseconds; 0 before.
    pub found_ns: u64,
    /// The request that the thread was at when it found the order; 0 before, and between requests.
    pub found_request: u64,
    /// Signal that the thread gets.
    pub signal: u32,
    /// An [`OrderState`].
    pub state: u32,
    /// Passings whose arguments lay on a page that was not in memory, so that the order had to wait for another.
    pub unknown: u32,
    /// Zero.
    pub reserved: u32,
}

/// What came of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OrderState {
    /// The thread has not found it.
    Waiting = 0,
    /// The thread was at the request that was meant, and got the signal.
    Delivered = 1,
    /// The thread was at another request, or at none: it got nothing.
    Missed = 2,
    /// The thread was at the request that was meant, and the kernel refused to signal it.
    Refused = 3,
}

impl OrderState {
    /// The state with this number, if there is one.
    #[must_use]
    pub fn from_u32(n: u32) -> Option<Self> {
        [Self::Waiting, Self::Delivered, Self::Missed, Self::Refused]
            .into_iter()
            .find(|state| *state as u32 == n)
    }
}

const _: () = assert!(core::mem::size_of::<OrderKey>() == 8);
const _: () = assert!(core::mem::size_of::<OrderValue>() == 48);
