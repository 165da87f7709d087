//! A linked list of tickets: who holds an instance, or who queues for it.

use super::{Check, Unbound, WalkError, bind, bind_checks, bind_some};
use crate::config::expr::{Bindings, Bound};
use crate::config::{List, Walk};
use crate::memory::Memory;

/// Most modes of a resource.
const MODES: u32 = 32;

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
    mask: Option<Bound>,
    ordered: bool,
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
            mask,
            ordered,
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
            mask: bind_some(mask.as_ref(), &inner)?,
            ordered: *ordered,
            owner: bind(owner, &inner)?,
            checks: bind_checks(checks, &inner)?,
            modes: modes
                .as_ref()
                .map(|modes| Check::bind(modes, &outer))
                .transpose()?,
            limit: *limit,
        })
    }

    /// Whether those behind a waiter are not in its way.
    pub(super) fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// The modes of an entry, bit i for mode i.
    fn modes_of(
        &self,
        variables: &[u64],
        ticket: u64,
        memory: &dyn Memory,
    ) -> Result<u64, WalkError> {
        let wrong = |check: String| WalkError::Check {
            check,
            what: "ticket",
            address: ticket,
        };
        if let Some(mask) = &self.mask {
            let mask = mask.eval(variables, memory)?;
            return if mask >> MODES == 0 {
                Ok(mask)
            } else {
                Err(wrong(format!(
                    "the mask {mask:#x} has at most {MODES} modes"
                )))
            };
        }
        let mode = self
            .mode
            .as_ref()
            .map_or(Ok(0), |mode| mode.eval(variables, memory))?;
        if mode >= u64::from(MODES) {
            return Err(wrong(format!("mode {mode} < {MODES}")));
        }
        Ok(1 << mode)
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
        let (mut mask, mut read_count) = (0_u64, 0);
        while node != end {
            if read_count >= self.limit {
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
            let modes = self.modes_of(&variables, ticket, memory)?;
            mask |= modes;
            if modes != 0 {
                let owner = self.owner.eval(&variables, memory)?;
                let of = (0..MODES).filter(|mode| modes >> mode & 1 == 1);
                entries.extend(of.map(|mode| Ticket {
                    ticket,
                    owner,
                    mode,
                }));
            }
            read_count += 1;
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
