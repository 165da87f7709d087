//! The parts of a walk: who holds an instance and who waits for it, read from whoever waits.

use super::{Formula, TextAt};
use crate::engine::input::ResourceId;

/// How holders and waiters of a resource are read from whoever waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Walk {
    /// Which resource.
    pub resource: ResourceId,
    /// Variable that stands for the waiting session's key.
    pub session: String,
    /// Variables worked out in turn, each from those before it.
    pub lets: Vec<(String, Formula)>,
    /// 0 if the session does not wait.
    pub waiting: Formula,
    /// The instance it waits for.
    pub instance: Formula,
    /// The mode it wants.
    pub mode: Option<Formula>,
    /// Each must be true of a session that waits, or the layout is wrong.
    pub checks: Vec<Formula>,
    /// The waiting session's key from the address `futex` that its thread blocks on; several may be possible.
    pub futex: Vec<Formula>,
    /// Who holds the instance; without it nobody can tell, and the walk shows waits alone.
    pub granted: Option<List>,
    /// Who waits for it, first come first.
    pub queued: Option<List>,
    /// Which modes exclude each other; the first whose `when` holds. Empty: all do.
    pub conflicts: Vec<Conflict>,
    /// What the instance is called.
    pub label: Option<Label>,
}

impl Walk {
    /// Variables of the walk's own expressions (`waiting`, `instance`, `mode`, `checks`, `label`, `when` of a conflict,
    /// ends of the lists), by slot: the session, then the lets.
    pub fn scope(&self) -> Vec<&str> {
        std::iter::once(self.session.as_str())
            .chain(self.lets.iter().map(|(name, _)| name.as_str()))
            .collect()
    }

    /// Variables of a list's expressions, by slot: the walk's, then `node`, then the item. An item named like a let hides
    /// it, which [`with_variables`](super::super::expr::Bindings::with_variables) does by itself.
    pub fn list_scope<'a>(&'a self, list: &'a List) -> Vec<&'a str> {
        let mut scope = self.scope();
        scope.extend(["node", list.item.as_str()]);
        scope
    }

    /// Variables of a conflict's masks, by slot: the walk's, then `mode`, the wanted mode.
    pub fn conflict_scope(&self) -> Vec<&str> {
        let mut scope = self.scope();
        scope.push("mode");
        scope
    }
}

/// A list of tickets. `first`, `end` and `modes` know the walk's variables; `next` and `object` also `node`; the rest
/// also the item.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    /// Variable that stands for one entry.
    pub item: String,
    /// First node.
    pub first: Formula,
    /// The node after `node`.
    pub next: Formula,
    /// What stands in the place of a node at the end.
    pub end: Formula,
    /// The entry that `node` belongs to.
    pub object: Formula,
    /// Longest list that is believed.
    pub limit: u32,
    /// Mode held or wanted by the entry.
    pub mode: Option<Formula>,
    /// In its place: all modes held by the entry, bit i for mode i; an entry without any is passed over.
    pub mask: Option<Formula>,
    /// Whoever stands behind the waiter is not in its way.
    pub ordered: bool,
    /// Session key of the entry's owner.
    pub owner: Formula,
    /// Each must be true of every entry, or the layout is wrong.
    pub checks: Vec<Formula>,
    /// The application's own mask of the modes in the list: must equal what was read.
    pub modes: Option<Formula>,
}

/// Which modes exclude each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// When this table holds; always without it.
    pub when: Option<Formula>,
    /// Mask of granted modes that exclude the wanted `mode`.
    pub granted: Formula,
    /// Mask of queued modes that go before the wanted `mode`.
    pub queued: Option<Formula>,
    /// Names of the modes by index.
    pub modes: Vec<String>,
}

/// What an instance is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// Index into the names of namespaces.
    pub namespace: Option<Formula>,
    /// Names of namespaces by index.
    pub namespaces: Vec<String>,
    /// The name itself.
    pub text: Option<TextAt>,
    /// Numbers that the name is made of, joined by dots, behind the text.
    pub numbers: Vec<Formula>,
    /// Each must be true, or the name is not shown.
    pub checks: Vec<Formula>,
}
