//! Circular lists of leaked structures that begin with a [`Node`]. Callers hold the mutex that guards the list.

use std::ptr;
use std::sync::atomic::Ordering;

use crate::visible::{Node, Ticket};

/// Puts a node at the end of a list.
pub(crate) fn append(head: &'static Node, node: &'static Node) {
    let (head_at, at) = (
        ptr::from_ref(head).cast_mut(),
        ptr::from_ref(node).cast_mut(),
    );
    let last = head.prev.load(Ordering::Relaxed);
    node.prev.store(last, Ordering::Relaxed);
    node.next.store(head_at, Ordering::Relaxed);
    // Linked last, so that a reader from outside never follows a link out of the list.
    neighbour(last).next.store(at, Ordering::Release);
    head.prev.store(at, Ordering::Release);
}

/// Takes a node out of its list. Its own links stay as they are: a reader who stands on it still finds the way.
pub(crate) fn remove(node: &'static Node) {
    let (next, prev) = (
        node.next.load(Ordering::Relaxed),
        node.prev.load(Ordering::Relaxed),
    );
    neighbour(prev).next.store(next, Ordering::Release);
    neighbour(next).prev.store(prev, Ordering::Release);
}

/// The tickets of a list, in order. The one that was returned last may be removed before the next is asked for.
pub(crate) fn tickets(head: &'static Node) -> impl Iterator<Item = &'static Ticket> {
    let mut at = head.next.load(Ordering::Relaxed);
    std::iter::from_fn(move || {
        if ptr::eq(at, head) {
            return None;
        }
        let node = neighbour(at);
        at = node.next.load(Ordering::Relaxed);
        // SAFETY: only `append(head, &ticket.node)` of `crate::locks` fills the lists that are read here, `node` is the first
        // member of the `repr(C)` ticket, and tickets are leaked.
        Some(unsafe { &*ptr::from_ref(node).cast::<Ticket>() })
    })
}

/// The node behind a link.
fn neighbour(link: *mut Node) -> &'static Node {
    // SAFETY: links are made by `append` and `Node::head` alone, out of `&'static Node`.
    unsafe { &*link }
}
