//! A linked list of tickets: who holds an instance, or who queues for it.

use super::{Check, Unbound, WalkError, bind, bind_checks, bind_some};
use crate::config::expr::{Bindings, Bound};
use crate::config::{List, Walk};
use crate::memory::Memory;

/// One ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its address.
    pub ticket: u64,
    /// Session key of its owner.
    pub owner: u64,
    /// Mode held or wanted.
    pub mode: u32,
}

/// A bound list.
#[derive(Clone, Debug)]
pub(super) struct TicketList {
    first: Bound,
    next: Bound,
    end: Bound,
    object: Bound,
    mode: Option<Bound>,
    owner: Bound,
    checks: Vec<Check>,
    modes: Option<Check>,
    limit: u32,
}

impl TicketList {
    pub(super) fn bind(walk: &Walk, list: &List, names: &Bindings) -> Result<Self, Unbound> {
        let List {
            item: _,
            first,
            next,
            end,
            object,
            limit,
            mode,
            owner,
            checks,
            modes,
        } = list;
        let outer = names.with_variables(walk.scope());
        let inner = names.with_variables(walk.list_scope(list));
        Ok(Self {
            first: bind(first, &outer)?,
            next: bind(next, &inner)?,
            end: bind(end, &outer)?,
            object: bind(object, &inner)?,
            mode: bind_some(mode.as_ref(), &inner)?,
            owner: bind(owner, &inner)?,
            checks: bind_checks(checks, &inner)?,
            modes: modes
                .as_ref()
                .map(|modes| Check::bind(modes, &outer))
                .transpose()?,
            limit: *limit,
        })
    }

    /// Reads the list. `outer` are the walk's variables.
    pub(super) fn read(
        &self,
        outer: &[u64],
        memory: &dyn Memory,
    ) -> Result<Vec<Ticket>, WalkError> {
        let end = self.end.eval(outer, memory)?;
        let mut node = self.first.eval(outer, memory)?;
        let mut variables = outer.to_vec();
        variables.extend([0, 0]);
        let (node_slot, item_slot) = (outer.len(), outer.len() + 1);
        let mut entries = Vec::new();
        let mut mask = 0_u64;
        while node != end {
            if entries.len() >= self.limit as usize {
                return Err(WalkError::TooLong {
                    head: end,
                    limit: self.limit,
                });
            }
            variables[node_slot] = node;
            let ticket = self.object.eval(&variables, memory)?;
            variables[item_slot] = ticket;
            for check in &self.checks {
                check.hold(&variables, memory, "ticket", ticket)?;
            }
            let mode = self
                .mode
                .as_ref()
                .map_or(Ok(0), |mode| mode.eval(&variables, memory))?;
            if mode >= 32 {
                return Err(WalkError::Check {
                    check: format!("mode {mode} < 32"),
                    what: "ticket",
                    address: ticket,
                });
            }
            mask |= 1 << mode;
            entries.push(Ticket {
                ticket,
                owner: self.owner.eval(&variables, memory)?,
                mode: mode as u32,
            });
            node = self.next.eval(&variables, memory)?;
        }
        if let Some(modes) = &self.modes {
            let told = modes.bound.eval(outer, memory)?;
            if told != mask {
                let check = format!(
                    "modes in the list ({mask:#x}) == {} ({told:#x})",
                    modes.text
                );
                return Err(WalkError::Check {
                    check,
                    what: "list",
                    address: end,
                });
            }
        }
        Ok(entries)
    }
}
