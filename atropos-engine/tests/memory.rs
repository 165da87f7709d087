//! What the engine allocates: nothing for an event once it is warm, and room in proportion to what is alive.

#[path = "../benches/stream/mod.rs"]
mod stream;

use allocation_counter::measure;
use stream::{EVENTS_PER_TICK, feed, warm};

#[test]
fn an_event_allocates_nothing_once_the_engine_is_warm() {
    for (sessions, instances) in [(24, 10), (24, 1_000), (1_000, 100)] {
        let (mut engine, mut stream) = warm(sessions, instances, 40);
        let events = stream.events(EVENTS_PER_TICK);
        let allocated = measure(|| feed(&mut engine, &events));
        // An instance may see more holders than ever before, a table more entries: 10,000 events, and a few times that.
        let first_times = 5;
        assert!(
            allocated.count_total <= first_times,
            "{sessions} sessions, {instances} instances: {allocated:?}"
        );
    }
}

#[test]
fn memory_grows_with_what_is_alive_and_with_nothing_else() {
    let bytes = |sessions: usize, ticks: u64| {
        let mut footprint = None;
        let allocated = measure(|| {
            let (engine, stream) = warm(sessions, sessions as u64, ticks);
            drop(stream);
            footprint = Some(engine.footprint());
            // Kept beyond the end of the count.
            std::mem::forget(engine);
        });
        let footprint = footprint.expect("it was taken");
        let alive = footprint.sessions + footprint.waits + footprint.holds;
        assert!(alive >= sessions, "{footprint:?}");
        allocated.bytes_current as f64 / alive as f64
    };
    // Bytes for each session, wait and hold: about the same for five times as many, and for twice as long. What is usual is
    // remembered for five seconds, so these are 100 ticks at least.
    let few = bytes(600, 100);
    let many = bytes(3_000, 100);
    let long = bytes(600, 200);
    assert!(many < 1.5 * few && few < 1_000.0, "{few} {many}");
    assert!(long < 1.25 * few, "{few} {long}");
}

#[test]
fn what_is_over_gives_its_memory_back() {
    let (mut engine, stream) = warm(10_000, 1_000, 20);
    let before = engine.footprint();
    let allocated = measure(|| {
        // Nothing is listed, and all that was held is let go.
        feed(&mut engine, &stream.end());
    });
    let after = engine.footprint();
    assert!(
        before.sessions > 5_000 && before.holds > 5_000,
        "{before:?}"
    );
    assert_eq!(
        (after.sessions, after.waits, after.holds, after.instances),
        (0, 0, 0, 0)
    );
    assert!(allocated.bytes_current < -1_000_000, "{allocated:?}");
}
