//! Tests of the wait-for graph and the flow of blame.

use super::super::input::SessionKey;
use super::super::testkit::{busy, granted, ledger, queued, snapshot, wait};
use super::assign;
use crate::graph::Graph;

fn blamed_s(graph: &Graph, key: u64) -> f64 {
    graph
        .get(SessionKey(key))
        .map_or(0.0, |node| node.blamed_s[0])
}

fn assert_close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn two_holders_share_the_loss_of_a_waiter_in_equal_parts() {
    let ledger = ledger(
        1000,
        vec![wait(3, 7, 800, &[granted(1, 0), granted(2, 0)])],
        vec![busy(3, 800)],
    );
    let graph = assign(&ledger);
    assert_close(blamed_s(&graph, 1), 0.1);
    assert_close(blamed_s(&graph, 2), 0.1);
    assert_close(blamed_s(&graph, 3), 0.0);
}

#[test]
fn those_who_name_the_same_are_charged_for_as_if_each_had_a_list_of_its_own() {
    let holders = [granted(1, 0), granted(2, 0)];
    // The second of them names itself as well: it wants more of what it holds.
    let waits = vec![
        wait(3, 7, 800, &holders),
        wait(1, 7, 700, &holders),
        wait(4, 7, 900, &holders),
    ];
    let graph = assign(&ledger(1000, waits, vec![]));
    let node = |key| &graph[&SessionKey(key)];
    assert_close(blamed_s(&graph, 1), 0.15);
    // What 1 got it passes on, since it waits for 2 alone.
    assert_close(blamed_s(&graph, 2), 0.15 + 0.3 + 0.15);
    assert_eq!(
        (node(1).in_way[0].waiters, node(2).in_way[0].waiters),
        (2, 3)
    );
    let waiting = node(1).waiting.as_ref().expect("it waits");
    assert_eq!(*waiting.blockers, [SessionKey(2)]);
}

#[test]
fn a_holder_is_not_charged_for_the_time_in_which_it_waited_itself() {
    let behind = wait(3, 8, 600, &[granted(2, 500)]);
    let both = vec![wait(2, 7, 600, &[granted(1, 0)]), behind.clone()];
    let mut ledger = ledger(900, both, vec![]);
    // It has been let on.
    ledger.snapshot(&snapshot(1000, vec![behind]));
    assert_close(blamed_s(&assign(&ledger), 2), 0.2);
}

#[test]
fn a_wait_counts_at_most_one_window() {
    let ledger = ledger(60_000, vec![wait(3, 7, 0, &[granted(1, 0)])], vec![]);
    assert_close(blamed_s(&assign(&ledger), 1), 0.5);
}

#[test]
fn the_root_is_charged_with_the_whole_tree_and_the_middle_keeps_its_share() {
    let waits = vec![
        wait(2, 7, 700, &[granted(1, 0)]),
        wait(3, 7, 800, &[queued(2, 700)]),
        wait(4, 7, 900, &[queued(2, 700)]),
    ];
    let graph = assign(&ledger(1000, waits, vec![]));
    assert_close(blamed_s(&graph, 2), 0.2 + 0.1);
    assert_close(blamed_s(&graph, 1), 0.3 + 0.2 + 0.1);
    assert_eq!(graph.waiting_behind(SessionKey(1)), 3);
    assert_eq!(graph.waiting_behind(SessionKey(2)), 2);
}

#[test]
fn the_loss_flows_on_through_a_victim_that_holds_something_else() {
    let waits = vec![
        wait(2, 7, 500, &[granted(1, 0)]),
        wait(3, 8, 600, &[granted(2, 0)]),
    ];
    let graph = assign(&ledger(1000, waits, vec![]));
    assert_close(blamed_s(&graph, 1), 0.5 + 0.4);
    assert_close(blamed_s(&graph, 2), 0.4);
    assert!(!graph[&SessionKey(2)].waits_in_line());
}

#[test]
fn a_blocker_passes_on_only_the_part_of_the_time_that_it_has_been_waiting_itself() {
    let waits = vec![
        wait(2, 7, 900, &[granted(1, 0)]),
        wait(3, 8, 500, &[granted(2, 0)]),
    ];
    let graph = assign(&ledger(1000, waits, vec![]));
    assert_close(blamed_s(&graph, 2), 0.5);
    assert_close(blamed_s(&graph, 1), 0.1 + 0.5 * 0.1 / 0.5);
}

#[test]
fn a_blocker_is_charged_for_no_longer_than_it_has_been_in_the_way() {
    let graph = assign(&ledger(
        1000,
        vec![wait(3, 7, 500, &[granted(1, 940)])],
        vec![],
    ));
    assert_close(blamed_s(&graph, 1), 0.06);
}

#[test]
fn leaving_a_queue_frees_nobody_whom_a_holder_blocks_as_well() {
    let waits = vec![
        wait(2, 7, 600, &[granted(1, 0)]),
        wait(3, 7, 700, &[granted(1, 0), queued(2, 600)]),
        wait(4, 7, 800, &[granted(1, 0), queued(2, 600), queued(3, 700)]),
    ];
    let graph = assign(&ledger(1000, waits, vec![]));
    assert_close(blamed_s(&graph, 2), 0.0);
    assert_close(blamed_s(&graph, 3), 0.0);
    assert_close(blamed_s(&graph, 1), 0.4 + 0.3 + 0.2);
}

#[test]
fn a_session_that_is_in_nobodys_way_is_charged_with_nothing() {
    let waits = vec![
        wait(2, 7, 0, &[granted(1, 0)]),
        wait(3, 7, 0, &[granted(1, 0)]),
    ];
    let graph = assign(&ledger(60_000, waits, vec![busy(9, 0)]));
    assert!(!graph[&SessionKey(2)].is_blamed() && !graph[&SessionKey(3)].is_blamed());
    assert!(graph.get(SessionKey(9)).is_none());
}

#[test]
fn a_circle_is_marked_and_what_waits_behind_it_or_is_waited_for_by_it_is_not() {
    let waits = vec![
        wait(1, 7, 500, &[granted(2, 0)]),
        wait(2, 8, 500, &[granted(1, 0), granted(4, 0)]),
        wait(3, 7, 500, &[granted(2, 0)]),
    ];
    let graph = assign(&ledger(1000, waits, vec![]));
    let in_cycle: Vec<bool> = (1..=4)
        .map(|key| graph[&SessionKey(key)].in_cycle)
        .collect();
    assert_eq!(in_cycle, [true, true, false, false]);
    assert!(blamed_s(&graph, 4) > 0.0);
}

#[test]
fn the_agents_own_waits_are_not_held_against_anybody() {
    let mut own = busy(3, 500);
    own.own = true;
    let graph = assign(&ledger(
        1000,
        vec![wait(3, 7, 500, &[granted(1, 0)])],
        vec![own],
    ));
    assert_eq!(graph.len(), 0);
}

#[test]
fn a_session_that_blocks_by_what_it_holds_and_by_what_it_wants_is_one_blocker() {
    let waits = vec![
        wait(2, 7, 600, &[granted(1, 0)]),
        wait(3, 7, 700, &[granted(2, 500), queued(2, 600), granted(1, 0)]),
    ];
    let graph = assign(&ledger(1000, waits, vec![]));
    assert_close(blamed_s(&graph, 2), 0.15);
    assert_eq!(graph[&SessionKey(2)].in_way.len(), 2);
    assert!(graph[&SessionKey(2)].waits_in_line());
}
