//! How lost time flows along the wait-for graph, from the waiters to the roots.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use smallvec::SmallVec;

use super::graph::Graph;
use super::window::seconds;

/// Somebody in the way of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocking {
    /// Its place in the graph.
    pub(super) place: usize,
    /// Time since it has been in the way in which the target moved, nanoseconds.
    pub(super) moving_ns: u64,
    /// Ending it could end the wait.
    pub(super) can_end: bool,
}

/// One wait with those in its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link<'a> {
    pub(super) resource: usize,
    /// Time that the wait has lost in the window, nanoseconds.
    pub(super) lost_ns: u64,
    /// Among so many the wait's time is shared, whether all of them are still there or not.
    pub(super) parts: usize,
    pub(super) to: &'a [Blocking],
}

/// Marks circles and charges everybody. `links` are by place; who does not wait has none.
pub(super) fn flow(graph: &mut Graph, links: &[Option<Link<'_>>], resource_count: usize) {
    let order = order(graph, links);
    let mut flow = Flow {
        resource_count,
        carried: vec![0.0; links.len() * resource_count],
        behind_s: vec![0.0; links.len()],
        inflow: vec![0.0; resource_count],
    };
    for node in &mut graph.nodes {
        node.blamed_s = SmallVec::from_elem(0.0, resource_count);
    }
    for place in order {
        if let Some(link) = links[place].filter(|link| !link.to.is_empty()) {
            flow.pass(graph, place, link);
        }
    }
}

struct Flow {
    resource_count: usize,
    /// What each has got from those behind it, seconds by resource.
    carried: Vec<f64>,
    /// The longest wait directly or indirectly behind each, seconds.
    behind_s: Vec<f64>,
    /// What the one in question has got.
    inflow: Vec<f64>,
}

impl Flow {
    /// A waiter's own loss and what it got goes to those in its way.
    fn pass(&mut self, graph: &mut Graph, place: usize, link: Link<'_>) {
        let from = place * self.resource_count;
        self.inflow
            .copy_from_slice(&self.carried[from..from + self.resource_count]);
        let has_inflow = self.inflow.iter().any(|amount| *amount > 0.0);
        let longest_s = seconds(link.lost_ns).max(self.behind_s[place]);
        let parts = link.parts as f64;
        for blocking in link.to {
            let charged_s = seconds(charged_ns(link.lost_ns, blocking.moving_ns));
            let longest_behind = &mut self.behind_s[blocking.place];
            *longest_behind = longest_behind.max(charged_s);
            let own = charged_s / parts;
            let mut add = |r: usize, amount: f64| {
                self.carried[blocking.place * self.resource_count + r] += amount;
                if blocking.can_end {
                    graph.nodes[blocking.place].blamed_s[r] += amount;
                }
            };
            if !has_inflow {
                add(link.resource, own);
                continue;
            }
            let share = if longest_s > 0.0 {
                charged_s / longest_s / parts
            } else {
                0.0
            };
            for (r, amount) in self.inflow.iter().enumerate() {
                let own = if r == link.resource { own } else { 0.0 };
                add(r, amount * share + own);
            }
        }
    }
}

/// A blocker is charged for no longer than it has been in the way.
fn charged_ns(lost_ns: u64, moving_ns: u64) -> u64 {
    lost_ns.min(moving_ns)
}

/// Every session before those that it waits for; marks circles, which are cut at their smallest key.
fn order(graph: &mut Graph, links: &[Option<Link<'_>>]) -> Vec<usize> {
    let waiters = Waiters::of(links);
    let to = |place: usize| links[place].map_or(&[][..], |link| link.to);
    let blockers_of = |place: usize| to(place).iter().map(|blocking| blocking.place);
    let waiters_of = |place: usize| waiters.of_place(place).iter().copied();
    let all = 0..links.len();
    let waiting: Vec<usize> = all.clone().map(|place| waiters_of(place).len()).collect();
    let blocking: Vec<usize> = all.clone().map(|place| to(place).len()).collect();
    // What cannot be peeled off from either end lies on a circle, or between two.
    let none = BTreeSet::new();
    let (order, from_waiters) = peel(blockers_of, waiting.clone(), none.clone());
    if order.len() == links.len() {
        return order;
    }
    let (_, from_roots) = peel(waiters_of, blocking, none);
    let mut circles = BTreeSet::new();
    for place in all {
        if !from_waiters[place] && !from_roots[place] {
            graph.nodes[place].in_cycle = true;
            circles.insert(place);
        }
    }
    peel(blockers_of, waiting, circles).0
}

/// Takes nodes off that nobody left points at, the smallest first; when there are none, cuts the circles at their smallest
/// member. `pending` is how many point at each. Who points at nobody goes as soon as it may, whatever its size: for nobody
/// anything depends on when. Returns them in that order, and which were taken off.
fn peel<I: Iterator<Item = usize>>(
    out: impl Fn(usize) -> I,
    mut pending: Vec<usize>,
    mut cuts: BTreeSet<usize>,
) -> (Vec<usize>, Vec<bool>) {
    let is_end = |place: usize| out(place).next().is_none();
    let free = (0..pending.len()).filter(|place| pending[*place] == 0);
    let (mut order, free): (Vec<usize>, Vec<usize>) = free.partition(|place| is_end(*place));
    let mut ready: BinaryHeap<Reverse<usize>> = free.into_iter().map(Reverse).collect();
    let mut is_off = vec![false; pending.len()];
    for end in &order {
        is_off[*end] = true;
    }
    while let Some(place) = ready
        .pop()
        .map(|Reverse(place)| place)
        .or_else(|| cuts.pop_first())
    {
        cuts.remove(&place);
        if std::mem::replace(&mut is_off[place], true) {
            continue;
        }
        order.push(place);
        for next in out(place) {
            if is_off[next] {
                continue;
            }
            pending[next] -= 1;
            if pending[next] == 0 && is_end(next) {
                is_off[next] = true;
                order.push(next);
            } else if pending[next] == 0 {
                ready.push(Reverse(next));
            }
        }
    }
    (order, is_off)
}

/// Who waits for each, by place.
struct Waiters {
    firsts: Vec<usize>,
    waiters: Vec<usize>,
}

impl Waiters {
    fn of(links: &[Option<Link<'_>>]) -> Self {
        let edges = || {
            let waits = links.iter().enumerate();
            waits.flat_map(|(waiter, link)| {
                let to = link.map_or(&[][..], |link| link.to);
                to.iter().map(move |blocking| (waiter, blocking.place))
            })
        };
        let mut firsts = vec![0; links.len() + 1];
        for (_, blocker) in edges() {
            firsts[blocker + 1] += 1;
        }
        for place in 0..links.len() {
            firsts[place + 1] += firsts[place];
        }
        let mut next = firsts.clone();
        let mut waiters = vec![0; firsts[links.len()]];
        for (waiter, blocker) in edges() {
            waiters[next[blocker]] = waiter;
            next[blocker] += 1;
        }
        Self { firsts, waiters }
    }

    fn of_place(&self, place: usize) -> &[usize] {
        &self.waiters[self.firsts[place]..self.firsts[place + 1]]
    }
}
