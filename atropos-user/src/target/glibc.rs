//! Who owns the glibc lock that a thread waits for. Pure: a futex wait and memory in, an owner out, or nothing.
//!
//! A futex word is only a number in memory. It is taken for a mutex or a rwlock only when everything around it agrees with
//! glibc's layout on x86-64 (2.25 and later) and the owner is a live thread of the process other than the waiter. Condition
//! variables, semaphores, joins, glibc's internal locks and the application's own futexes have no owner to be told: `None`.

use crate::memory::Memory;

use super::FutexWait;

pub(super) const FUTEX_WAIT: u32 = 0;
pub(super) const FUTEX_LOCK_PI: u32 = 6;
pub(super) const FUTEX_WAIT_BITSET: u32 = 9;
pub(super) const FUTEX_LOCK_PI2: u32 = 13;

/// Low-level lock: held, and somebody sleeps for it.
const CONTENDED: u32 = 2;
/// Words of robust and priority-inheriting locks: owner's thread id and flags, as the kernel defines them.
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;

const KIND_TYPE: u32 = 0x3;
const KIND_ADAPTIVE: u32 = 3;
const KIND_ROBUST: u32 = 0x10;
const KIND_PI: u32 = 0x20;
const KIND_SHARED: u32 = 0x80;
const KIND_ELISION: u32 = 0x100;
const KIND_NO_ELISION: u32 = 0x200;

const MUTEX_BYTES: usize = 40;
const RWLOCK_BYTES: usize = 56;

/// `__readers` of a rwlock: phase and locked bits, then the number of readers.
const WRITE_PHASE: u32 = 1;
const WRITE_LOCKED: u32 = 2;
const READERS_WAIT: u32 = 4;
const READERS_SHIFT: u32 = 3;
/// Phase and writer words of a rwlock: 1 while taken, and a bit for "somebody sleeps here".
const TAKEN: u32 = 1;
const SLEPT_ON: u32 = 2;

/// The lock that a thread waits for and who has it. Thread ids are as the target sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOwner {
    /// A mutex owned by a thread.
    Mutex {
        /// Address of the `pthread_mutex_t`.
        address: u64,
        /// Its owner.
        tid: u32,
    },
    /// A rwlock owned by a writer.
    RwLockWriter {
        /// Address of the `pthread_rwlock_t`.
        address: u64,
        /// The writer.
        tid: u32,
    },
    /// A rwlock held by readers. glibc keeps only their number.
    RwLockReaders {
        /// Address of the `pthread_rwlock_t`.
        address: u64,
        /// How many hold it.
        reader_count: u32,
    },
}

impl LockOwner {
    /// Address of the lock.
    pub fn address(&self) -> u64 {
        match *self {
            Self::Mutex { address, .. }
            | Self::RwLockWriter { address, .. }
            | Self::RwLockReaders { address, .. } => address,
        }
    }

    /// The one thread that owns it, if it is one.
    pub fn owner_tid(&self) -> Option<u32> {
        match *self {
            Self::Mutex { tid, .. } | Self::RwLockWriter { tid, .. } => Some(tid),
            Self::RwLockReaders { .. } => None,
        }
    }
}

/// Decodes the lock behind a wait. `waiter` is the waiting thread, `is_thread` knows the live threads of the process, both
/// by the target's own thread ids.
pub fn lock_owner(
    wait: &FutexWait,
    waiter: u32,
    memory: &impl Memory,
    is_thread: &dyn Fn(u32) -> bool,
) -> Option<LockOwner> {
    let owns = |tid: u32| tid != 0 && tid != waiter && is_thread(tid);
    mutex(wait, memory, &owns).or_else(|| rwlock(wait, memory, &owns))
}

fn words<const BYTES: usize>(address: u64, memory: &impl Memory) -> Option<Vec<u32>> {
    let mut bytes = [0; BYTES];
    memory.read(address, &mut bytes).ok()?;
    Some(
        bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect(),
    )
}

fn mutex(wait: &FutexWait, memory: &impl Memory, owns: &dyn Fn(u32) -> bool) -> Option<LockOwner> {
    let &FutexWait {
        address,
        op,
        expected,
    } = wait;
    if !address.is_multiple_of(8) {
        return None;
    }
    let words = words::<MUTEX_BYTES>(address, memory)?;
    let [
        lock,
        _count,
        owner,
        users,
        kind,
        spins_and_elision,
        _padding @ ..,
    ] = words.as_slice()
    else {
        return None;
    };
    let (lock, owner, kind) = (*lock, *owner, *kind);
    let (spins, elision) = (spins_and_elision & 0xffff, spins_and_elision >> 16);
    let waits = match op {
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => kind & KIND_PI != 0,
        FUTEX_WAIT | FUTEX_WAIT_BITSET => kind & KIND_PI == 0 && lock == expected,
        _ => false,
    };
    // A lock shared between processes may belong to a thread elsewhere; glibc marks every robust one so, and robust locks do
    // not work across PID namespaces. Priority ceilings (0x40) are not decoded.
    let robust = kind & KIND_ROBUST != 0;
    let known_bits = KIND_TYPE
        | KIND_ROBUST
        | KIND_PI
        | KIND_ELISION
        | KIND_NO_ELISION
        | if robust { KIND_SHARED } else { 0 };
    let known = kind & !known_bits == 0;
    let held = if kind & (KIND_ROBUST | KIND_PI) == 0 {
        lock == CONTENDED
    } else {
        lock & FUTEX_OWNER_DIED == 0 && lock & FUTEX_TID_MASK == owner
    };
    let plausible = *users > 0
        && (spins == 0 || kind & KIND_TYPE == KIND_ADAPTIVE)
        && (elision == 0 || kind & KIND_ELISION != 0)
        && (robust || words[6..].iter().all(|&word| word == 0));
    (waits && known && held && plausible && owns(owner)).then_some(LockOwner::Mutex {
        address,
        tid: owner,
    })
}

fn rwlock(wait: &FutexWait, memory: &impl Memory, owns: &dyn Fn(u32) -> bool) -> Option<LockOwner> {
    /// Where in the lock the waited word lies: the readers' count, the phase, the writers' turn.
    const WORDS: [u64; 3] = [0, 8, 12];
    if wait.op != FUTEX_WAIT_BITSET {
        return None;
    }
    let mut found = WORDS
        .iter()
        .filter_map(|&offset| rwlock_at(wait, offset, memory, owns));
    // Two readings of the same memory would be a guess.
    let lock = found.next()?;
    found.next().is_none().then_some(lock)
}

fn rwlock_at(
    wait: &FutexWait,
    offset: u64,
    memory: &impl Memory,
    owns: &dyn Fn(u32) -> bool,
) -> Option<LockOwner> {
    let address = wait.address.checked_sub(offset)?;
    if !address.is_multiple_of(8) {
        return None;
    }
    let words = words::<RWLOCK_BYTES>(address, memory)?;
    let [
        readers,
        writers,
        phase,
        turn,
        pad_a,
        pad_b,
        writer,
        shared,
        rest @ ..,
    ] = words.as_slice()
    else {
        return None;
    };
    let (readers, writer) = (*readers, *writer);
    // `rest`: elision and padding, then the preference (0, 1, 2) and tail padding that nothing writes.
    let preference = *rest.get(4)?;
    let well_formed = [*pad_a, *pad_b, *shared]
        .iter()
        .chain(&rest[..4])
        .all(|&word| word == 0)
        && preference <= 2
        && *writers & 0x7fff_ffff < 0x10_0000
        && *phase <= (TAKEN | SLEPT_ON)
        && *turn <= (TAKEN | SLEPT_ON);
    let unchanged = words.get((offset / 4) as usize) == Some(&wait.expected);
    if !well_formed || !unchanged {
        return None;
    }
    let in_write = readers & (WRITE_PHASE | WRITE_LOCKED) == (WRITE_PHASE | WRITE_LOCKED)
        && phase & TAKEN != 0;
    let reader_count = readers >> READERS_SHIFT;
    let in_read =
        readers & WRITE_PHASE == 0 && phase & TAKEN == 0 && reader_count > 0 && writer == 0;
    let by_writer = in_write && owns(writer);
    let may_wait = match (offset, wait.expected) {
        // A reader that lets a waiting writer go first sleeps on the count itself.
        (0, expected) => in_read && expected & READERS_WAIT != 0 && preference == 2,
        (8, expected) if expected == TAKEN | SLEPT_ON => by_writer,
        (8, expected) => in_read && expected == SLEPT_ON && readers & WRITE_LOCKED != 0,
        (_, expected) => expected == TAKEN | SLEPT_ON && (by_writer || in_read),
    };
    if !may_wait {
        return None;
    }
    Some(if by_writer {
        LockOwner::RwLockWriter {
            address,
            tid: writer,
        }
    } else {
        LockOwner::RwLockReaders {
            address,
            reader_count,
        }
    })
}

#[cfg(test)]
mod tests;
