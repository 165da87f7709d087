//! How many events a second the engine takes in on one core, what a tick costs, and what either allocates.
//!
//! `cargo bench -p atropos-engine`; docs/benchmarks.md says how to read it.

#[path = "stream/mod.rs"]
mod stream;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};

use stream::{EVENTS_PER_TICK, feed, warm};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// Sessions, and instances of the lock.
const SIZES: [(usize, u64); 3] = [(24, 10), (1_000, 100), (10_000, 1_000)];

/// Ten seconds.
const WARM_TICKS: u64 = 200;

fn main() {
    divan::main();
}

/// Events between two ticks.
#[divan::bench(args = SIZES)]
fn events(bencher: Bencher<'_, '_>, size: (usize, u64)) {
    let (mut engine, mut stream) = warm(size.0, size.1, WARM_TICKS);
    bencher
        .counter(ItemsCount::new(EVENTS_PER_TICK))
        .with_inputs(|| stream.events(EVENTS_PER_TICK))
        .bench_local_refs(|events| feed(&mut engine, events));
}

/// As a recording is replayed: events, and each 50 ms a snapshot and a tick.
#[divan::bench(args = SIZES)]
fn replay(bencher: Bencher<'_, '_>, size: (usize, u64)) {
    let (mut engine, mut stream) = warm(size.0, size.1, WARM_TICKS);
    bencher
        .counter(ItemsCount::new(EVENTS_PER_TICK))
        .with_inputs(|| stream.ticks(1))
        .bench_local_refs(|inputs| feed(&mut engine, inputs));
}
