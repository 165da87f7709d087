//! Sessions in an array with empty places, wall clocks, masks of modes, and queues in which only those ahead count.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

#[cfg(feature = "ebpf")]
use atropos::agent::feed::{Eyes, Feed};
#[cfg(feature = "ebpf")]
use atropos::agent::probes::Harvest;
use atropos::agent::watch::Watcher;
use atropos::config::{self, Lookup, Preset};
#[cfg(feature = "ebpf")]
use atropos::engine::input::Input;
use atropos::engine::input::{BlockKind, SessionState};
use atropos::memory::{Fault, Memory};
use atropos::walk::{Graph, LockWalk, SessionList, SessionView, Times, WalkError};

/// An array of four places of 64 bytes at 0x1000; a lock at 0x8000 with entries and a queue.
const CONFIG: &str = r#"
schema = 1
name = "arrays"

[sessions]
name = "slot"
first = "0x1000"
next = "slot + 64"
end = "0x1100"
limit = 10
present = "u32(slot) != 0"
let = [{ number = "u32(slot)" }, { status = "*(slot + 8)" }]
clock = "since_2000"
checks = ["status != 0"]
id = "number"
busy = "u32(status) == 2"
started_us = "u64(status + 8)"
principal = { at = "status + 16", index = "u32(status + 4)", names = ["launcher"] }

[[resource]]
name = "lock"
kind = "LOCK"
modes = ["none", "read", "write"]

[[walk]]
resource = "lock"
session = "slot"
let = [{ lock = "*(slot + 16)" }]
waiting = "(lock != 0) * slot"
instance = "lock"
mode = "u32(slot + 24)"

[walk.granted]
item = "entry"
first = "*lock"
next = "*node"
end = "lock"
object = "node"
limit = 10
mask = "u64(entry + 8)"
owner = "*(entry + 16)"
modes = "u32(lock + 16)"

[walk.queued]
item = "waiter"
first = "*(lock + 8)"
next = "*node"
end = "lock + 8"
object = "node - 32"
limit = 10
mode = "u32(waiter + 24)"
owner = "waiter"
ordered = true

[[walk.conflict]]
granted = "(mode == 1) * 4 + (mode == 2) * 6"
queued = "(mode == 1) * 4 + (mode == 2) * 6"
modes = ["none", "read", "write"]

[walk.label]
numbers = ["7", "u32(lock + 16)", "0"]
"#;

/// Memory that is zero but for what was put there; the first page is not mapped.
#[derive(Default)]
struct Table(BTreeMap<u64, u8>);

impl Table {
    fn put(&mut self, address: u64, number: u64) {
        for (at, byte) in (address..).zip(number.to_le_bytes()) {
            self.0.insert(at, byte);
        }
    }
}

impl Memory for Table {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        if address < 0x1000 {
            return Err(Fault { address });
        }
        for (at, byte) in (address..).zip(into) {
            *byte = self.0.get(&at).copied().unwrap_or(0);
        }
        Ok(())
    }
}

struct Nothing;

impl Lookup for Nothing {
    fn accessor(&self, _: &str, _: u32) -> Result<i64, String> {
        Err("none".to_owned())
    }

    fn global(&self, _: &str, _: u32) -> Result<u64, String> {
        Err("none".to_owned())
    }

    fn symbol(&self, _: &str) -> Result<u64, String> {
        Err("none".to_owned())
    }
}

const LOCK: u64 = 0x8000;

/// Address of a place.
fn slot(index: u64) -> u64 {
    0x1000 + 64 * index
}

/// Places 0, 2 and 3 are taken, by numbers 10, 12 and 13; place 1 is empty.
fn table() -> Table {
    let mut table = Table::default();
    for index in [0, 2, 3] {
        table.put(slot(index), 10 + index);
        table.put(slot(index) + 8, 0x4000 + 64 * index);
        table.put(0x4000 + 64 * index, 2);
    }
    table
}

/// Place 0 holds reading and writing, 2 and 3 wait for these modes, in this order; an entry of 3 holds nothing yet.
fn locked(first: u64, second: u64) -> Table {
    let mut table = table();
    for (node, mask, owner, next) in [(0x9000, 6, slot(0), 0x9100), (0x9100, 0, slot(3), LOCK)] {
        table.put(node, next);
        table.put(node + 8, mask);
        table.put(node + 16, owner);
    }
    table.put(LOCK, 0x9000);
    table.put(LOCK + 8, slot(2) + 32);
    table.put(LOCK + 16, 6);
    table.put(slot(2) + 32, slot(3) + 32);
    table.put(slot(3) + 32, LOCK + 8);
    for (index, mode) in [(2, first), (3, second)] {
        table.put(slot(index) + 16, LOCK);
        table.put(slot(index) + 24, mode);
    }
    table
}

fn bound() -> (SessionList, LockWalk) {
    let (list, walk, _) = bound_to(CONFIG);
    (list, walk)
}

fn bound_to(config: &str) -> (SessionList, LockWalk, Preset) {
    let preset = config::parse("arrays.toml", config).unwrap_or_else(|p| panic!("{p}"));
    let (names, problems) = preset.bindings(&Nothing);
    assert!(problems.is_empty());
    (
        SessionList::bind(preset.sessions.as_ref().unwrap(), &names).unwrap(),
        LockWalk::bind(&preset.walks[0], &names).unwrap(),
        preset,
    )
}

/// The same with a check of times: a request begins before the session's last change.
fn timed() -> (SessionList, LockWalk, Preset) {
    let times = "times = [\"u64(status + 8) <= u64(status + 32)\"]\nprincipal =";
    bound_to(&CONFIG.replace("principal =", times))
}

/// Sets when a place's request began and when it last changed, microseconds since 2000.
fn put_times(table: &mut Table, index: u64, began_us: u64, changed_us: u64) {
    table.put(0x4000 + 64 * index + 8, began_us);
    table.put(0x4000 + 64 * index + 32, changed_us);
}

fn watcher() -> Watcher {
    let (list, walk, preset) = timed();
    Watcher::new(list, vec![walk], preset, 0)
}

/// Sessions as the engine is told of them.
fn told(watcher: &mut Watcher, table: &Table, now_ns: u64) -> Vec<SessionState> {
    let view = watcher.look(table, now_ns, &[]);
    assert!(!view.unseen);
    view.sessions
}

fn ids(sessions: &[SessionState]) -> Vec<u64> {
    sessions.iter().map(|state| state.id).collect()
}

fn sessions(table: &Table, epoch_minus_monotonic_ns: i64) -> Vec<SessionView> {
    bound().0.read(table, epoch_minus_monotonic_ns).unwrap()
}

fn graph(table: &Table) -> Result<Graph, WalkError> {
    bound()
        .1
        .graph(&sessions(table, 0), table, table, &|_| false)
}

/// Blockers of a place: place, mode, and whether it is queued.
fn blockers(graph: &Graph, index: u64) -> Vec<(u64, u32, bool)> {
    let wait = graph.waits.iter().find(|wait| wait.waiter == slot(index));
    let edges = wait.unwrap().blockers.iter();
    edges
        .map(|edge| {
            (
                (edge.session - 0x1000) / 64,
                edge.mode,
                edge.kind == BlockKind::Queued,
            )
        })
        .collect()
}

#[test]
fn empty_places_are_passed_over_and_what_lies_there_is_not_looked_at() {
    let ids: Vec<u64> = sessions(&table(), 0).iter().map(|view| view.id).collect();
    assert_eq!(ids, [10, 12, 13]);
}

#[test]
fn a_check_over_a_variable_of_the_session_fails_the_list() {
    let mut table = table();
    table.put(slot(2) + 8, 0);
    let (list, _) = bound();
    assert!(list.read(&table, 0).is_err());
}

#[test]
fn a_time_by_the_wall_clock_becomes_one_by_the_monotonic_clock() {
    let mut table = table();
    let (since_2000_s, up_s) = (851_904_000_u64, 3_600_u64);
    table.put(0x4008, since_2000_s * 1_000_000 + 5);
    let wall_s = since_2000_s + 946_684_800;
    let offset_ns = ((wall_s - up_s) * 1_000_000_000).cast_signed();
    let views = sessions(&table, offset_ns);
    assert_eq!(views[0].started_ns, up_s * 1_000_000_000 + 5_000);
    assert_eq!(views[1].started_ns, 0, "unknown stays unknown");
}

#[test]
fn a_session_that_began_before_the_machine_did_has_a_start_all_the_same() {
    let mut table = table();
    table.put(0x4008, 1);
    assert_eq!(sessions(&table, i64::MAX)[0].started_ns, 1);
}

#[test]
fn a_text_is_a_name_by_its_index_or_what_lies_there() {
    let mut table = table();
    table.put(0x4004, 5);
    table.put(0x4010, u64::from_le_bytes(*b"web\0\0\0\0\0"));
    let (list, _) = bound();
    assert_eq!(list.principal(slot(0), &table), "web");
    assert_eq!(list.principal(slot(2), &table), "launcher");
}

#[test]
fn each_mode_of_a_mask_is_held_and_an_entry_without_any_holds_nothing() {
    let graph = graph(&locked(2, 1)).unwrap();
    assert_eq!(blockers(&graph, 2), [(0, 1, false), (0, 2, false)]);
}

#[test]
fn whoever_stands_behind_in_an_ordered_queue_is_in_nobodys_way() {
    let graph = graph(&locked(2, 1)).unwrap();
    assert!(blockers(&graph, 2).iter().all(|(_, _, queued)| !queued));
    assert_eq!(blockers(&graph, 3), [(0, 2, false), (2, 2, true)]);
    let graph = self::graph(&locked(1, 1)).unwrap();
    assert_eq!(blockers(&graph, 3), [(0, 2, false)], "readers go together");
}

#[test]
fn a_mask_that_the_lock_does_not_confirm_fails_the_walk() {
    let mut table = locked(2, 1);
    table.put(LOCK + 16, 2);
    assert!(graph(&table).unwrap_err().to_string().contains("modes"));
    let mut table = locked(2, 1);
    table.put(0x9008, 1 << 40);
    assert!(graph(&table).unwrap_err().to_string().contains("mask"));
}

#[test]
fn a_name_is_made_of_numbers_without_the_zeros_at_its_end() {
    assert_eq!(graph(&locked(2, 1)).unwrap().names[&LOCK], "7.6");
}

#[test]
fn times_that_disagree_in_one_session_are_its_own_affair_and_in_all_of_them_a_wrong_layout() {
    let (list, ..) = timed();
    let mut table = table();
    for index in [0, 2, 3] {
        put_times(&mut table, index, 5, 9);
    }
    put_times(&mut table, 2, 9, 5);
    let views = list.read(&table, 0).unwrap();
    let times: Vec<Times> = views.iter().map(|view| view.times).collect();
    assert_eq!(times, [Times::Agree, Times::Differ, Times::Agree]);
    assert_eq!(views[1].started_ns, 0, "what cannot be believed is unknown");
    for index in [0, 3] {
        put_times(&mut table, index, 9, 5);
    }
    let error = list.read(&table, 0).unwrap_err().to_string();
    assert!(error.contains("in some session"), "{error}");
    for index in [0, 2, 3] {
        put_times(&mut table, index, 0, 0);
    }
    let views = list.read(&table, 0).unwrap();
    assert!(views.iter().all(|view| view.times == Times::Unchecked));
}

#[test]
fn a_clock_that_is_set_hides_who_was_at_work_and_nobody_who_comes_after() {
    let mut watcher = watcher();
    let mut table = table();
    for index in [0, 2, 3] {
        put_times(&mut table, index, 5, 9);
    }
    assert_eq!(ids(&told(&mut watcher, &table, 1)), [10, 12, 13]);
    for index in [0, 2, 3] {
        put_times(&mut table, index, 9, 5);
    }
    assert!(told(&mut watcher, &table, 2).is_empty(), "all were at work");
    put_times(&mut table, 0, 2, 3);
    assert_eq!(ids(&told(&mut watcher, &table, 3)), [10]);
}

#[test]
fn a_wall_clock_that_steps_is_followed_and_one_that_trembles_is_not() {
    let mut watcher = watcher();
    let mut table = table();
    let (began_s, since_2000_s) = (1_000_000, 946_684_800_u64);
    put_times(&mut table, 0, began_s * 1_000_000, began_s * 1_000_000);
    let since_ns =
        |watcher: &mut Watcher, table: &Table| told(watcher, table, u64::MAX)[0].since_ns;
    let (wall_ns, hour_ns) = ((began_s + since_2000_s) * 1_000_000_000, 3_600_000_000_000);
    assert_eq!(since_ns(&mut watcher, &table), wall_ns);
    watcher.follow_clock(hour_ns);
    let followed_ns = wall_ns - hour_ns.unsigned_abs();
    assert_eq!(since_ns(&mut watcher, &table), followed_ns);
    watcher.follow_clock(hour_ns + 1_000_000);
    assert_eq!(
        since_ns(&mut watcher, &table),
        followed_ns,
        "one start is one start"
    );
}

#[cfg(feature = "ebpf")]
#[test]
fn a_list_that_cannot_be_read_is_told_as_unseen_from_the_first_time_on() {
    let mut feed = Feed::new(Eyes::Memory(Box::new(watcher())), None, Vec::new());
    let harvest = Harvest {
        latency: vec![(3, 7)],
        ..Harvest::default()
    };
    let mut table = table();
    let (inputs, _) = feed.inputs(&harvest, &table, 1, &[]);
    assert!(matches!(inputs.as_slice(), [Input::Tick(tick)] if tick.sessions.len() == 3));
    table.put(slot(2) + 8, 0);
    let (inputs, view) = feed.inputs(&harvest, &table, 2, &[]);
    let [Input::Unseen(unseen)] = inputs.as_slice() else {
        panic!("{inputs:?}");
    };
    assert_eq!(
        (unseen.at_ns, &unseen.requests.latency),
        (2, &harvest.latency)
    );
    assert!(
        view.unseen && view.blind.is_empty(),
        "one torn look is no news for a person"
    );
}
