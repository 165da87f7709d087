use std::collections::BTreeMap;

use super::*;
use crate::memory::Fault;

const LOCK: u64 = 0x7000_0000;
const WAITER: u32 = 101;
const OWNER: u32 = 100;
const STRANGER: u32 = 900;

struct Words(BTreeMap<u64, u32>);

impl Words {
    fn new(address: u64, words: &[u32]) -> Self {
        Self(
            words
                .iter()
                .enumerate()
                .map(|(index, &word)| (address + 4 * index as u64, word))
                .collect(),
        )
    }
}

impl Memory for Words {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        for (index, bytes) in into.chunks_exact_mut(4).enumerate() {
            let at = address + 4 * index as u64;
            bytes.copy_from_slice(&self.0.get(&at).ok_or(Fault { address })?.to_le_bytes());
        }
        Ok(())
    }
}

fn decode(words: &[u32], offset: u64, op: u32) -> Option<LockOwner> {
    let expected = words[(offset / 4) as usize];
    let wait = FutexWait {
        address: LOCK + offset,
        op,
        expected,
    };
    lock_owner(&wait, WAITER, &Words::new(LOCK, words), &|tid| {
        tid == WAITER || tid == OWNER
    })
}

fn mutex_words(change: impl FnOnce(&mut [u32; 10])) -> [u32; 10] {
    // lock, count, owner, users, kind, spins and elision, list
    let mut words = [CONTENDED, 0, OWNER, 1, 0, 0, 0, 0, 0, 0];
    change(&mut words);
    words
}

const IN_WRITE: [u32; 14] = [
    WRITE_PHASE | WRITE_LOCKED,
    0,
    3,
    1,
    0,
    0,
    OWNER,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
];
const IN_READ: [u32; 14] = [
    3 << READERS_SHIFT | WRITE_LOCKED,
    0,
    2,
    1,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
];

fn changed(words: [u32; 14], index: usize, value: u32) -> [u32; 14] {
    let mut words = words;
    words[index] = value;
    words
}

#[test]
fn a_contended_mutex_of_each_type_names_its_owner() {
    for kind in [0, 1, 2, 3, KIND_NO_ELISION, KIND_ELISION] {
        let words = mutex_words(|words| words[4] = kind);
        for op in [FUTEX_WAIT, FUTEX_WAIT_BITSET] {
            assert_eq!(
                decode(&words, 0, op),
                Some(LockOwner::Mutex {
                    address: LOCK,
                    tid: OWNER
                }),
                "{kind:#x}"
            );
        }
    }
}

#[test]
fn robust_and_inheriting_mutexes_carry_their_owner_in_the_lock_word() {
    let waiters = 0x8000_0000;
    let robust = mutex_words(|words| {
        (words[0], words[4], words[6]) = (OWNER | waiters, KIND_ROBUST, 0xdead);
    });
    assert_eq!(
        decode(&robust, 0, FUTEX_WAIT).and_then(|lock| lock.owner_tid()),
        Some(OWNER)
    );
    let inheriting = mutex_words(|words| (words[0], words[4]) = (OWNER | waiters, KIND_PI));
    assert_eq!(
        decode(&inheriting, 0, FUTEX_LOCK_PI).and_then(|lock| lock.owner_tid()),
        Some(OWNER)
    );
    assert_eq!(
        decode(&inheriting, 0, FUTEX_WAIT),
        None,
        "an inheriting mutex is locked by the kernel"
    );
    let died = mutex_words(|words| (words[0], words[4]) = (OWNER | FUTEX_OWNER_DIED, KIND_ROBUST));
    assert_eq!(decode(&died, 0, FUTEX_WAIT), None);
    let other = mutex_words(|words| (words[0], words[4]) = (STRANGER | waiters, KIND_ROBUST));
    assert_eq!(
        decode(&other, 0, FUTEX_WAIT),
        None,
        "lock word and owner field disagree"
    );
}

#[test]
fn whatever_is_no_consistent_mutex_has_no_owner() {
    let cases: [(&str, [u32; 10]); 11] = [
        ("free", mutex_words(|words| words[0] = 0)),
        ("held, nobody sleeps", mutex_words(|words| words[0] = 1)),
        ("between two owners", mutex_words(|words| words[2] = 0)),
        (
            "owner is no thread of the process",
            mutex_words(|words| words[2] = STRANGER),
        ),
        (
            "owner is the waiter",
            mutex_words(|words| words[2] = WAITER),
        ),
        ("no users", mutex_words(|words| words[3] = 0)),
        ("unknown kind", mutex_words(|words| words[4] = 0x1000)),
        (
            "shared between processes",
            mutex_words(|words| words[4] = 0x80),
        ),
        (
            "spins without being adaptive",
            mutex_words(|words| words[5] = 7),
        ),
        (
            "elision without the kind",
            mutex_words(|words| words[5] = 7 << 16),
        ),
        (
            "list without being robust",
            mutex_words(|words| words[8] = 1),
        ),
    ];
    for (case, words) in cases {
        assert_eq!(decode(&words, 0, FUTEX_WAIT), None, "{case}");
    }
    let wait = FutexWait {
        address: LOCK,
        op: FUTEX_WAIT,
        expected: 1,
    };
    let memory = Words::new(LOCK, &mutex_words(|_| ()));
    assert_eq!(
        lock_owner(&wait, WAITER, &memory, &|_| true),
        None,
        "the word has changed since the wait began"
    );
    let wait = FutexWait {
        address: LOCK + 4,
        op: FUTEX_WAIT,
        expected: 0,
    };
    assert_eq!(
        lock_owner(&wait, WAITER, &memory, &|_| true),
        None,
        "unaligned"
    );
    let wait = FutexWait {
        address: 0,
        op: FUTEX_WAIT,
        expected: 2,
    };
    assert_eq!(
        lock_owner(&wait, WAITER, &memory, &|_| true),
        None,
        "unreadable"
    );
}

#[test]
fn a_mutex_layout_shifted_by_a_word_is_never_an_owner() {
    let words = mutex_words(|_| ());
    for shift in [-8_i64, -4, 4, 8] {
        let mut memory = Words::new(LOCK.wrapping_add_signed(shift), &words);
        for around in (LOCK - 128..LOCK + 128).step_by(4) {
            memory.0.entry(around).or_insert(0);
        }
        memory.0.insert(LOCK, CONTENDED);
        let wait = FutexWait {
            address: LOCK,
            op: FUTEX_WAIT,
            expected: CONTENDED,
        };
        assert_eq!(
            lock_owner(&wait, WAITER, &memory, &|tid| tid == OWNER),
            None,
            "shifted by {shift}"
        );
    }
}

#[test]
fn a_rwlock_in_write_phase_names_its_writer() {
    for offset in [8, 12] {
        let words = changed(IN_WRITE, 3, 3);
        let lock = decode(&words, offset, FUTEX_WAIT_BITSET);
        assert_eq!(
            lock,
            Some(LockOwner::RwLockWriter {
                address: LOCK,
                tid: OWNER
            }),
            "at {offset}"
        );
    }
}

#[test]
fn a_rwlock_in_read_phase_tells_how_many_readers() {
    let readers = LockOwner::RwLockReaders {
        address: LOCK,
        reader_count: 3,
    };
    assert_eq!(
        decode(&IN_READ, 8, FUTEX_WAIT_BITSET),
        Some(readers),
        "the first writer"
    );
    assert_eq!(
        decode(&changed(IN_READ, 3, 3), 12, FUTEX_WAIT_BITSET),
        Some(readers),
        "a second writer"
    );
    let polite = changed(
        changed(IN_READ, 0, 3 << READERS_SHIFT | WRITE_LOCKED | READERS_WAIT),
        12,
        2,
    );
    assert_eq!(
        decode(&polite, 0, FUTEX_WAIT_BITSET),
        Some(readers),
        "a reader that lets the writer go first"
    );
    assert_eq!(
        decode(&changed(polite, 12, 0), 0, FUTEX_WAIT_BITSET),
        None,
        "only that preference sleeps there"
    );
}

#[test]
fn whatever_is_no_consistent_rwlock_has_no_owner() {
    let cases = [
        ("writer is no thread", changed(IN_WRITE, 6, STRANGER), 8),
        ("writer is the waiter", changed(IN_WRITE, 6, WAITER), 8),
        ("nobody wrote his name yet", changed(IN_WRITE, 6, 0), 8),
        (
            "phase and readers disagree",
            changed(IN_WRITE, 0, WRITE_LOCKED),
            8,
        ),
        ("padding is written", changed(IN_WRITE, 4, 1), 8),
        ("elision is written", changed(IN_WRITE, 8, 1), 8),
        ("shared between processes", changed(IN_WRITE, 7, 1), 8),
        ("unknown preference", changed(IN_WRITE, 12, 3), 8),
        ("phase out of range", changed(IN_WRITE, 2, 7), 8),
        (
            "no readers in read phase",
            changed(IN_READ, 0, WRITE_LOCKED),
            8,
        ),
        ("a writer in read phase", changed(IN_READ, 6, OWNER), 8),
    ];
    for (case, words, offset) in cases {
        assert_eq!(decode(&words, offset, FUTEX_WAIT_BITSET), None, "{case}");
    }
    assert_eq!(
        decode(&changed(IN_WRITE, 3, 3), 8, FUTEX_WAIT),
        None,
        "rwlocks wait with a bit set"
    );
}

#[test]
fn a_condition_variable_followed_by_a_held_mutex_has_no_owner() {
    // As in glibc 2.41, where a waiter can expect any value in `__g_signals`, in a container with small thread ids.
    for expected in 0..8 {
        for signals_at in [32_u64, 40] {
            let mut words = [0_u32; 40];
            words[4] = 3;
            words[8] = expected;
            words[9] = expected;
            words[10] = expected;
            words[12..22].copy_from_slice(&[2, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
            for op in [FUTEX_WAIT, FUTEX_WAIT_BITSET] {
                let wait = FutexWait {
                    address: LOCK + signals_at,
                    op,
                    expected,
                };
                let lock = lock_owner(&wait, 3, &Words::new(LOCK, &words), &|tid| tid <= 4);
                assert_eq!(lock, None, "expected {expected} at {signals_at}");
            }
        }
    }
}
