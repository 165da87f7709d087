//! What a look costs in system calls.

use std::cell::Cell;

use atropos::memory::{Fault, Memory};

use crate::common::clock_ns;
use crate::scene::{preset, resolve, server};

/// Memory that counts the calls that reach it. A batch is one, as long as it has fewer places than one call takes.
struct Counted<'a> {
    memory: &'a dyn Memory,
    calls: Cell<usize>,
    places: Cell<usize>,
}

impl Memory for Counted<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.calls.set(self.calls.get() + 1);
        self.memory.read(address, into)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), Fault>> {
        self.calls.set(self.calls.get() + 1);
        self.places.set(self.places.get() + reads.len());
        self.memory.read_many(reads)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_at_sixty_sessions_takes_a_handful_of_calls() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let mut clients = Vec::new();
    for _ in 0..60 {
        clients.push(server.connect().await);
    }
    let mut watcher = resolved.watcher().unwrap();
    let mut looks = Vec::new();
    for _ in 0..8 {
        let memory = Counted {
            memory: &resolved.memory,
            calls: Cell::new(0),
            places: Cell::new(0),
        };
        let view = watcher.look(&memory, clock_ns(), &[]);
        if view.session_count > 60 {
            looks.push((memory.calls.get(), memory.places.get()));
        }
    }
    // The first looks learn what the later ones need not read, and one that meets a change reads twice.
    let few = |&(calls, places): &(usize, usize)| calls <= 4 && places <= 100;
    assert!(looks.iter().any(few), "calls and places: {looks:?}");
}
