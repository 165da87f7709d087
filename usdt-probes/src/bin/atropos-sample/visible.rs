//! What a preset's walk reads from outside: sessions, locks and tickets as plain structures in lists.
//!
//! Every structure is leaked and reused, never freed, so a reference to one is valid for ever; what makes an old one
//! worthless to a reader is its seal or back pointer, which is cleared when it leaves its list. Members are atomics because
//! the owner, other sessions and a signal handler touch them; the links of lists change only under the lock of
//! [`crate::locks`] or of [`crate::sessions`]. `presets/sample/preset.toml` knows the offsets that are asserted here.

use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Longest statement that is shown, bytes.
pub(crate) const TEXT_BYTES: usize = 512;
/// Longest user name with its zero byte.
pub(crate) const USER_BYTES: usize = 32;

/// A place in a circular list whose head is a node too.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Node {
    /// The node after this one.
    pub(crate) next: AtomicPtr<Node>,
    /// The node before this one.
    pub(crate) prev: AtomicPtr<Node>,
}

/// One connection.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) node: Node,
    /// Address of this structure + `id` + `thread`; 0 while it is in no list.
    pub(crate) seal: AtomicU64,
    /// What it waits for, null if it does not wait. Its neighbours are never zero, so a reader who is off by one member
    /// cannot mistake it for "nobody waits".
    pub(crate) waiting: AtomicPtr<Ticket>,
    pub(crate) id: AtomicU64,
    /// Thread of the operating system.
    pub(crate) thread: AtomicU32,
    /// [`state`], with a tag in the upper half.
    pub(crate) state: AtomicU32,
    /// Number of the current or last statement.
    pub(crate) request: AtomicU64,
    /// Address of the statement's first byte.
    pub(crate) text: AtomicU64,
    /// Start of the current or last statement, `CLOCK_MONOTONIC` microseconds.
    pub(crate) started_us: AtomicU64,
    /// The same start, seconds since 1970.
    pub(crate) started_epoch_s: AtomicU64,
    /// End of the last statement, `CLOCK_MONOTONIC` microseconds.
    pub(crate) ended_us: AtomicU64,
    /// Its length in bytes.
    pub(crate) text_length: AtomicU64,
    /// Address of the user's name, which ends with a zero byte.
    pub(crate) user: AtomicU64,
    /// Futex word that the thread sleeps on; it changes whenever the thread should look again.
    pub(crate) wake: AtomicU32,
    /// Socket of the connection, for the signal that ends the session.
    pub(crate) socket: AtomicI32,
    /// The statement that was cancelled last.
    pub(crate) cancelled_request: AtomicU64,
    /// 1 once the session has to end.
    pub(crate) ending: AtomicU32,
    pub(crate) text_bytes: [AtomicU8; TEXT_BYTES],
    pub(crate) user_bytes: [AtomicU8; USER_BYTES],
}

/// Bits of [`Session::state`].
pub(crate) mod state {
    /// A statement runs.
    pub(crate) const BUSY: u32 = 1;
    /// A transaction is open.
    pub(crate) const IN_TRANSACTION: u32 = 2;
    /// Locks are held that were asked for by name.
    pub(crate) const EXPLICIT_LOCKS: u32 = 4;
    /// The statement or the session has been asked to stop.
    pub(crate) const KILLED: u32 = 8;
    /// Upper half of every state: tells a reader that this is one.
    pub(crate) const TAG: u32 = 0x5353_0000;
}

/// The lock of one table.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Lock {
    /// Address of this structure.
    pub(crate) myself: AtomicU64,
    /// Tickets of those who hold it.
    pub(crate) granted: Node,
    /// Tickets of those who wait for it.
    pub(crate) queued: Node,
    /// Address of the table's name.
    pub(crate) name: AtomicU64,
    /// Its length in bytes.
    pub(crate) name_length: AtomicU64,
    pub(crate) name_bytes: [AtomicU8; USER_BYTES],
}

/// One session's hold on a lock, or its place in the queue.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) node: Node,
    /// [`Mode`] as a number.
    pub(crate) mode: AtomicU32,
    pub(crate) lock: AtomicPtr<Lock>,
    pub(crate) session: AtomicPtr<Session>,
    /// Address of this structure; 0 while it is in no list.
    pub(crate) seal: AtomicU64,
}

/// How a lock is held or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Mode {
    /// Beside others.
    Shared = 0,
    /// Alone.
    Exclusive = 1,
}

/// Head of the list of sessions.
#[unsafe(no_mangle)]
pub(crate) static sample_sessions: Node = Node::head(&raw const sample_sessions);

/// Statements completed since the start.
#[unsafe(no_mangle)]
pub(crate) static sample_completed: AtomicU64 = AtomicU64::new(0);

// The preset counts on these.
const _: () = {
    assert!(offset_of!(Session, seal) == 0x10);
    assert!(offset_of!(Session, waiting) == 0x18);
    assert!(offset_of!(Session, id) == 0x20);
    assert!(offset_of!(Session, thread) == 0x28);
    assert!(offset_of!(Session, state) == 0x2c);
    assert!(offset_of!(Session, request) == 0x30);
    assert!(offset_of!(Session, started_us) == 0x40);
    assert!(offset_of!(Session, started_epoch_s) == 0x48);
    assert!(offset_of!(Session, ended_us) == 0x50);
    assert!(offset_of!(Session, text) == 0x38);
    assert!(offset_of!(Session, text_length) == 0x58);
    assert!(offset_of!(Session, user) == 0x60);
    assert!(offset_of!(Session, wake) == 0x68);
    assert!(offset_of!(Lock, granted) == 0x08);
    assert!(offset_of!(Lock, queued) == 0x18);
    assert!(offset_of!(Lock, name) == 0x28);
    assert!(offset_of!(Lock, name_length) == 0x30);
    assert!(offset_of!(Ticket, mode) == 0x10);
    assert!(offset_of!(Ticket, lock) == 0x18);
    assert!(offset_of!(Ticket, session) == 0x20);
};

impl Node {
    /// The head of an empty list that lies at `place`.
    const fn head(place: *const Self) -> Self {
        Self {
            next: AtomicPtr::new(place.cast_mut()),
            prev: AtomicPtr::new(place.cast_mut()),
        }
    }

    /// A node in no list.
    fn loose() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            prev: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Makes a loose node the head of an empty list.
    fn become_head(&'static self) {
        let place = ptr::from_ref(self).cast_mut();
        self.next.store(place, Ordering::Relaxed);
        self.prev.store(place, Ordering::Relaxed);
    }
}

impl Session {
    /// A session in no list.
    pub(crate) fn leak() -> &'static Self {
        let session: &'static Self = Box::leak(Box::new(Self {
            node: Node::loose(),
            seal: AtomicU64::new(0),
            waiting: AtomicPtr::new(ptr::null_mut()),
            id: AtomicU64::new(0),
            thread: AtomicU32::new(0),
            state: AtomicU32::new(state::TAG),
            request: AtomicU64::new(0),
            started_us: AtomicU64::new(0),
            started_epoch_s: AtomicU64::new(0),
            ended_us: AtomicU64::new(0),
            text: AtomicU64::new(0),
            text_length: AtomicU64::new(0),
            user: AtomicU64::new(0),
            wake: AtomicU32::new(0),
            socket: AtomicI32::new(-1),
            cancelled_request: AtomicU64::new(0),
            ending: AtomicU32::new(0),
            text_bytes: [const { AtomicU8::new(0) }; TEXT_BYTES],
            user_bytes: [const { AtomicU8::new(0) }; USER_BYTES],
        }));
        session
            .text
            .store(session.text_bytes.as_ptr().addr() as u64, Ordering::Relaxed);
        session
            .user
            .store(session.user_bytes.as_ptr().addr() as u64, Ordering::Relaxed);
        session
    }

    /// Address of this structure: the session's key.
    pub(crate) fn address(&'static self) -> u64 {
        ptr::from_ref(self).addr() as u64
    }

    /// Whether any of these bits is set.
    pub(crate) fn is(&self, bits: u32) -> bool {
        self.state.load(Ordering::Relaxed) & bits != 0
    }

    /// Sets or clears bits.
    pub(crate) fn set(&self, bits: u32, on: bool) {
        if on {
            self.state.fetch_or(bits, Ordering::Relaxed);
        } else {
            self.state.fetch_and(!bits, Ordering::Relaxed);
        }
    }
}

impl Lock {
    /// The lock of a table. A name that is too long is cut for readers.
    pub(crate) fn leak(name: &str) -> &'static Self {
        let lock: &'static Self = Box::leak(Box::new(Self {
            myself: AtomicU64::new(0),
            granted: Node::loose(),
            queued: Node::loose(),
            name: AtomicU64::new(0),
            name_length: AtomicU64::new(0),
            name_bytes: [const { AtomicU8::new(0) }; USER_BYTES],
        }));
        lock.granted.become_head();
        lock.queued.become_head();
        lock.name_length
            .store(write(&lock.name_bytes, name) as u64, Ordering::Relaxed);
        lock.name
            .store(lock.name_bytes.as_ptr().addr() as u64, Ordering::Relaxed);
        lock.myself
            .store(ptr::from_ref(lock).addr() as u64, Ordering::Release);
        lock
    }
}

impl Ticket {
    /// A ticket in no list.
    pub(crate) fn leak() -> &'static Self {
        Box::leak(Box::new(Self {
            node: Node::loose(),
            mode: AtomicU32::new(0),
            lock: AtomicPtr::new(ptr::null_mut()),
            session: AtomicPtr::new(ptr::null_mut()),
            seal: AtomicU64::new(0),
        }))
    }

    /// How the lock is held or wanted.
    pub(crate) fn mode(&self) -> Mode {
        if self.mode.load(Ordering::Relaxed) == Mode::Shared as u32 {
            Mode::Shared
        } else {
            Mode::Exclusive
        }
    }

    /// Whether it is this session's.
    pub(crate) fn belongs_to(&self, session: &Session) -> bool {
        ptr::eq(self.session.load(Ordering::Relaxed), session)
    }
}

/// Writes a text where readers find it, cut to what has room; returns its length in bytes.
pub(crate) fn write(to: &[AtomicU8], text: &str) -> usize {
    let length = text.len().min(to.len() - 1);
    for (cell, byte) in to.iter().zip(text.as_bytes()[..length].iter().chain([&0])) {
        cell.store(*byte, Ordering::Relaxed);
    }
    length
}
