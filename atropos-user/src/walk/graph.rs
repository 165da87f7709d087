//! The wait-for graph of one resource.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::label::Naming;
use super::list::{Ticket, TicketList};
use super::sessions::SessionView;
use super::{Check, Unbound, WalkError, bind, bind_checks, bind_some};
use crate::config::expr::{Bindings, Bound};
use crate::config::{Conflict, Walk};
use crate::engine::input::{BlockKind, ResourceId};
use crate::memory::Memory;

/// Who waits for what, and who is in the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// The waits, by waiter.
    pub waits: Vec<WaitFor>,
    /// Names of the instances that somebody waits for.
    pub names: BTreeMap<u64, String>,
    /// Names of modes, by instance: instances of one resource can have modes of their own.
    pub modes: BTreeMap<u64, usize>,
}

/// One session that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitFor {
    /// Session key of the waiter.
    pub waiter: u64,
    /// The instance it waits for.
    pub instance: u64,
    /// The mode it wants.
    pub mode: u32,
    /// What it waits on (its ticket): a wait that is given up and begun anew has another.
    pub ticket: u64,
    /// Who is in the way; empty where nobody can tell.
    pub blockers: Vec<Edge>,
}

/// Somebody in the way of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Session key.
    pub session: u64,
    /// Holding, or queued ahead.
    pub kind: BlockKind,
    /// Mode held or wanted.
    pub mode: u32,
}

/// A bound walk.
#[derive(Clone, Debug)]
pub struct LockWalk {
    resource: ResourceId,
    lets: Vec<Bound>,
    waiting: Bound,
    waiting_slots: usize,
    instance: Bound,
    mode: Option<Bound>,
    checks: Vec<Check>,
    futex: Vec<Bound>,
    granted: Option<TicketList>,
    queued: Option<TicketList>,
    conflicts: Vec<Exclusion>,
    label: Option<Naming>,
}

/// A bound table of conflicts.
#[derive(Clone, Debug)]
struct Exclusion {
    when: Option<Bound>,
    granted: Bound,
    queued: Option<Bound>,
    modes: Vec<String>,
}

/// A waiter before its blockers are known.
struct Waiter {
    session: u64,
    variables: Vec<u64>,
    ticket: u64,
    instance: u64,
    mode: u32,
}

impl Waiter {
    fn blocked_by(&self, blockers: Vec<Edge>) -> WaitFor {
        WaitFor {
            waiter: self.session,
            instance: self.instance,
            mode: self.mode,
            ticket: self.ticket,
            blockers,
        }
    }
}

impl LockWalk {
    /// Binds the walk to a process.
    ///
    /// # Errors
    /// When an expression names a symbol or layout number that the process does not have.
    pub fn bind(walk: &Walk, names: &Bindings) -> Result<Self, Unbound> {
        let mut lets = Vec::new();
        let scope = walk.scope();
        for (index, (_, formula)) in walk.lets.iter().enumerate() {
            // A let sees the session and the lets before it.
            lets.push(bind(
                formula,
                &names.with_variables(scope[..=index].iter().copied()),
            )?);
        }
        let whole = names.with_variables(scope.iter().copied());
        let masks = names.with_variables(walk.conflict_scope());
        let conflict = |conflict: &Conflict| {
            let Conflict {
                when,
                granted,
                queued,
                modes,
            } = conflict;
            Ok(Exclusion {
                when: bind_some(when.as_ref(), &whole)?,
                granted: bind(granted, &masks)?,
                queued: bind_some(queued.as_ref(), &masks)?,
                modes: modes.clone(),
            })
        };
        Ok(Self {
            resource: walk.resource,
            lets,
            waiting: bind(&walk.waiting, &whole)?,
            waiting_slots: scope.len(),
            instance: bind(&walk.instance, &whole)?,
            mode: bind_some(walk.mode.as_ref(), &whole)?,
            checks: bind_checks(&walk.checks, &whole)?,
            futex: walk
                .futex
                .iter()
                .map(|formula| bind(formula, &names.with_variables(["futex"])))
                .collect::<Result<_, _>>()?,
            granted: walk
                .granted
                .as_ref()
                .map(|list| TicketList::bind(walk, list, names))
                .transpose()?,
            queued: walk
                .queued
                .as_ref()
                .map(|list| TicketList::bind(walk, list, names))
                .transpose()?,
            conflicts: walk
                .conflicts
                .iter()
                .map(conflict)
                .collect::<Result<_, _>>()?,
            label: walk
                .label
                .as_ref()
                .map(|label| Naming::bind(label, &whole))
                .transpose()?,
        })
    }

    /// Which resource the walk is about.
    pub fn resource(&self) -> ResourceId {
        self.resource
    }

    /// Nobody can tell who is in the way: the walk shows who waits, and no edge.
    pub fn is_unowned(&self) -> bool {
        self.granted.is_none()
    }

    /// Session keys that a thread which blocks on this futex may belong to.
    pub fn sessions_of_futex(&self, futex: u64, memory: &dyn Memory) -> Vec<u64> {
        self.futex
            .iter()
            .filter_map(|bound| bound.eval(&[futex], memory).ok())
            .collect()
    }

    /// Name of a mode of an instance.
    pub fn mode_name(&self, graph: &Graph, instance: u64, mode: u32) -> String {
        let table = graph
            .modes
            .get(&instance)
            .and_then(|index| self.conflicts.get(*index));
        table
            .and_then(|table| table.modes.get(mode as usize))
            .cloned()
            .unwrap_or_else(|| format!("mode {mode}"))
    }

    /// The wait-for graph at this moment. Sessions are the target's list; an owner that is not in it must prove that it is
    /// one by `is_session`, or the walk fails: background work holds locks as well, and is listed by nobody. What lies in
    /// the sessions is read through `near`, locks and tickets through `memory`.
    ///
    /// # Errors
    /// The first check that does not hold. Torn views do that; take it again.
    pub fn graph(
        &self,
        sessions: &[SessionView],
        near: &dyn Memory,
        memory: &dyn Memory,
        is_session: &dyn Fn(u64) -> bool,
    ) -> Result<Graph, WalkError> {
        let mut waiters = Vec::new();
        // Idle ones too: `busy` may be what is wrong, and a walk that sees no wait must not pass for a server without one.
        for session in sessions {
            waiters.extend(self.waiter(session.key, near)?);
        }
        let listed: BTreeSet<u64> = sessions.iter().map(|session| session.key).collect();
        let known = |owner: u64| listed.contains(&owner) || is_session(owner);
        let mut graph = Graph::default();
        let mut lists: BTreeMap<u64, (Vec<Ticket>, Vec<Ticket>)> = BTreeMap::new();
        for waiter in &waiters {
            if self.is_unowned() {
                self.name(waiter, &mut graph, memory)?;
                graph.waits.push(waiter.blocked_by(Vec::new()));
                continue;
            }
            let (granted, queued) = match lists.entry(waiter.instance) {
                Entry::Occupied(read) => &*read.into_mut(),
                Entry::Vacant(unread) => &*unread.insert(self.tickets(waiter, &known, memory)?),
            };
            self.add(waiter, granted, queued, &mut graph, memory)?;
        }
        Ok(graph)
    }

    /// The session as a waiter, if it waits.
    fn waiter(&self, session: u64, memory: &dyn Memory) -> Result<Option<Waiter>, WalkError> {
        let mut variables = Vec::with_capacity(self.waiting_slots);
        variables.push(session);
        // Lets behind the ticket make no sense for a session that does not wait: they count as 0 until `waiting` is known.
        for bound in &self.lets {
            variables.push(bound.eval(&variables, memory).unwrap_or(0));
        }
        let ticket = self.waiting.eval(&variables, memory)?;
        if ticket == 0 {
            return Ok(None);
        }
        variables.truncate(1);
        for bound in &self.lets {
            variables.push(bound.eval(&variables, memory)?);
        }
        for check in &self.checks {
            check.hold(&variables, memory, "waiting session", session)?;
        }
        let mode = self
            .mode
            .as_ref()
            .map_or(Ok(0), |mode| mode.eval(&variables, memory))?;
        let instance = self.instance.eval(&variables, memory)?;
        if mode >= 32 {
            return Err(WalkError::Check {
                check: format!("mode {mode} < 32"),
                what: "waiting session",
                address: session,
            });
        }
        Ok(Some(Waiter {
            session,
            variables,
            ticket,
            instance,
            mode: mode as u32,
        }))
    }

    /// Both lists of the instance that the waiter waits for; every owner must be a known session.
    fn tickets(
        &self,
        waiter: &Waiter,
        known: &dyn Fn(u64) -> bool,
        memory: &dyn Memory,
    ) -> Result<(Vec<Ticket>, Vec<Ticket>), WalkError> {
        let read = |list: &Option<TicketList>| {
            list.as_ref()
                .map_or(Ok(Vec::new()), |list| list.read(&waiter.variables, memory))
        };
        let (granted, queued) = (read(&self.granted)?, read(&self.queued)?);
        for entry in granted.iter().chain(&queued) {
            if !known(entry.owner) {
                let check = "the owner of every ticket is a session".to_owned();
                return Err(WalkError::Check {
                    check,
                    what: "ticket",
                    address: entry.ticket,
                });
            }
        }
        Ok((granted, queued))
    }

    /// Adds a waiter with its blockers.
    fn add(
        &self,
        waiter: &Waiter,
        granted: &[Ticket],
        queued: &[Ticket],
        graph: &mut Graph,
        memory: &dyn Memory,
    ) -> Result<(), WalkError> {
        let failed = |check: &str| WalkError::Check {
            check: check.to_owned(),
            what: "waiting session",
            address: waiter.session,
        };
        if self.queued.is_some()
            && !queued
                .iter()
                .any(|e| e.ticket == waiter.ticket && e.mode == waiter.mode)
        {
            return Err(failed(
                "whoever waits is in the queue, with the mode it wants",
            ));
        }
        let ahead = self.ahead(waiter, queued);
        let (table, granted_mask, queued_mask) = self.masks(waiter, memory)?;
        let blocks = |entry: &&Ticket, mask: u64| {
            entry.owner != waiter.session && mask >> entry.mode & 1 == 1
        };
        let edge = |kind| {
            move |entry: &Ticket| Edge {
                session: entry.owner,
                kind,
                mode: entry.mode,
            }
        };
        let mut blockers: Vec<Edge> = granted
            .iter()
            .filter(|entry| blocks(entry, granted_mask))
            .map(edge(BlockKind::Granted))
            .chain(
                ahead
                    .iter()
                    .filter(|entry| blocks(entry, queued_mask))
                    .map(edge(BlockKind::Queued)),
            )
            .collect();
        blockers.sort_unstable();
        blockers.dedup();
        if blockers.is_empty() {
            return Err(failed("whoever waits is blocked by somebody"));
        }
        self.name(waiter, graph, memory)?;
        if let Some(table) = table {
            graph.modes.insert(waiter.instance, table);
        }
        graph.waits.push(waiter.blocked_by(blockers));
        Ok(())
    }

    /// Those of the queue that a waiter may have to let go first: in an ordered queue, whoever stands before it.
    fn ahead<'a>(&self, waiter: &Waiter, queued: &'a [Ticket]) -> &'a [Ticket] {
        let ordered = self.queued.as_ref().is_some_and(TicketList::is_ordered);
        let place = queued
            .iter()
            .position(|entry| ordered && entry.ticket == waiter.ticket);
        &queued[..place.unwrap_or(queued.len())]
    }

    /// Index of the conflict table that holds for the waiter's instance, and the masks of granted and of queued modes
    /// that are in its way.
    fn masks(
        &self,
        waiter: &Waiter,
        memory: &dyn Memory,
    ) -> Result<(Option<usize>, u64, u64), WalkError> {
        let mut variables = waiter.variables.clone();
        for (index, table) in self.conflicts.iter().enumerate() {
            let holds = table
                .when
                .as_ref()
                .map_or(Ok(1), |when| when.eval(&variables, memory))?
                != 0;
            if holds {
                variables.push(u64::from(waiter.mode));
                let granted = table.granted.eval(&variables, memory)?;
                let queued = table
                    .queued
                    .as_ref()
                    .map_or(Ok(0), |queued| queued.eval(&variables, memory))?;
                return Ok((Some(index), granted, queued));
            }
        }
        // No table: every holder excludes everybody, and nobody overtakes in the queue.
        Ok((None, u64::MAX, 0))
    }

    /// Names the waiter's instance in the graph.
    fn name(
        &self,
        waiter: &Waiter,
        graph: &mut Graph,
        memory: &dyn Memory,
    ) -> Result<(), WalkError> {
        if let Entry::Vacant(entry) = graph.names.entry(waiter.instance) {
            let (of, instance) = (&waiter.variables, waiter.instance);
            let name = self
                .label
                .as_ref()
                .map(|label| label.name(of, instance, memory));
            entry.insert(name.unwrap_or_else(|| Ok(format!("{instance:#x}")))?);
        }
        Ok(())
    }
}
