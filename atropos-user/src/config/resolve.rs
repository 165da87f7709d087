//! A preset and one process: layout numbers and symbol addresses for its expressions.

use std::collections::BTreeMap;

use super::expr::{Bindings, NameKind};
use super::preset::{Formula, LayoutValue, List, Note, Preset, Step, TextAt, Walk};
use super::problem::Problem;
use super::source::Place;

/// What a process and its binary can be asked.
pub trait Lookup {
    /// The `nth` displacement off the first argument in a tiny function of the binary; or why there is none.
    fn accessor(&self, function: &str, nth: u32) -> Result<i64, String>;

    /// The run-time address of the variable that the `nth` load of a pointer in the beginning of a function reads; or why
    /// there is none.
    fn global(&self, function: &str, nth: u32) -> Result<u64, String>;

    /// The run-time address of an exported symbol; or why there is none.
    fn symbol(&self, name: &str) -> Result<u64, String>;
}

impl Preset {
    /// Names of the preset's expressions as they are in one process. What cannot be found stays without value, so that
    /// only what needs it is blind; the problems say what that is, and point at the line of the preset.
    pub fn bindings(&self, lookup: &dyn Lookup) -> (Bindings, Vec<Problem>) {
        let (mut names, mut problems) = (Bindings::new(), Vec::new());
        for entry in &self.layout {
            let value = match &entry.value.value {
                LayoutValue::Number(number) => Ok(*number as u64),
                LayoutValue::Accessor { function, nth } => {
                    lookup.accessor(function, *nth).map(|number| number as u64)
                }
                LayoutValue::Global { function, nth } => lookup.global(function, *nth),
                LayoutValue::After { name, add } => match names.layout(name) {
                    Some(base) => Ok(base.wrapping_add_signed(*add)),
                    None => Err(format!("`{name}` has no value")),
                },
            };
            match value {
                Ok(value) => names.add_layout(&entry.name, value),
                Err(reason) => problems.push(Problem::at(
                    &entry.value.place,
                    format!("no value for `@{}`: {reason}", entry.name),
                )),
            }
        }
        for (name, place) in self.symbols() {
            match lookup.symbol(name) {
                Ok(address) => names.add_symbol(name, address),
                Err(reason) => problems.push(Problem::at(
                    &place,
                    format!("no address for `symbol({name})`: {reason}"),
                )),
            }
        }
        (names, problems)
    }

    /// Every symbol whose address an expression uses, with the first such place.
    pub fn symbols(&self) -> BTreeMap<&str, Place> {
        let mut found = BTreeMap::new();
        for formula in self.formulas() {
            for name in formula.names(NameKind::Symbol) {
                let place = || {
                    formula
                        .place
                        .within(formula.text(), name.offset, name.text.len())
                };
                found.entry(name.text.as_str()).or_insert_with(place);
            }
        }
        found
    }

    /// Every expression of the preset.
    fn formulas(&self) -> Vec<&Formula> {
        let mut all: Vec<&Formula> = self.completed.iter().collect();
        if let Some(sessions) = &self.sessions {
            all.extend([
                &sessions.first,
                &sessions.next,
                &sessions.end,
                &sessions.id,
                &sessions.busy,
            ]);
            all.extend(&sessions.checks);
            all.extend(&sessions.times);
            all.extend(sessions.lets.iter().map(|(_, formula)| formula));
            all.extend(&sessions.present);
            let optional = [
                &sessions.thread,
                &sessions.request,
                &sessions.in_transaction,
                &sessions.explicit_locks,
                &sessions.started_us,
                &sessions.transaction_us,
                &sessions.ended_us,
                &sessions.started_epoch_s,
                &sessions.killed,
                &sessions.slots,
                &sessions.takes_slot,
            ];
            all.extend(optional.into_iter().flatten());
            all.extend(sessions.progress.iter().flat_map(of_step));
            all.extend(sessions.notes.iter().flat_map(of_note));
            all.extend(
                [&sessions.text, &sessions.principal]
                    .into_iter()
                    .flatten()
                    .flat_map(of_text),
            );
        }
        let exact = self
            .cancel
            .iter()
            .filter_map(|cancel| cancel.exact.as_ref());
        let order_places = exact.flat_map(|exact| &exact.places);
        let probes = self.probes.iter().chain(order_places);
        for place in probes.flat_map(|probe| &probe.alternatives) {
            all.push(&place.session);
            all.extend([&place.instance, &place.value].into_iter().flatten());
            let guards = place.guard.iter();
            all.extend(guards.flat_map(|guard| [&guard.subject, &guard.value]));
        }
        all.extend(self.walks.iter().flat_map(of_walk));
        all
    }
}

/// The expressions of a step of progress.
fn of_step(step: &Step) -> Vec<&Formula> {
    let lets = step.lets.iter().map(|(_, formula)| formula);
    [&step.when, &step.done, &step.total]
        .into_iter()
        .chain(lets)
        .chain(&step.checks)
        .collect()
}

/// The expressions of a note.
fn of_note(note: &Note) -> Vec<&Formula> {
    let may_end = note.end.as_ref().and_then(|end| end.may_end.as_ref());
    std::iter::once(&note.value).chain(may_end).collect()
}

/// The expressions of a walk.
fn of_walk(walk: &Walk) -> Vec<&Formula> {
    let mut all: Vec<&Formula> = walk.lets.iter().map(|(_, formula)| formula).collect();
    all.extend([&walk.waiting, &walk.instance]);
    all.extend(walk.mode.iter().chain(&walk.checks).chain(&walk.futex));
    all.extend(
        [&walk.granted, &walk.queued]
            .into_iter()
            .flatten()
            .flat_map(of_list),
    );
    for conflict in &walk.conflicts {
        all.push(&conflict.granted);
        all.extend(conflict.when.iter().chain(&conflict.queued));
    }
    if let Some(label) = &walk.label {
        all.extend(
            label
                .namespace
                .iter()
                .chain(&label.checks)
                .chain(&label.numbers)
                .chain(label.text.iter().flat_map(of_text)),
        );
    }
    all
}

/// The expressions of a list.
fn of_list(list: &List) -> Vec<&Formula> {
    let mut all = vec![
        &list.first,
        &list.next,
        &list.end,
        &list.object,
        &list.owner,
    ];
    all.extend(
        list.mode
            .iter()
            .chain(&list.mask)
            .chain(&list.checks)
            .chain(&list.modes),
    );
    all
}

/// The expressions of a text.
fn of_text(text: &TextAt) -> Vec<&Formula> {
    std::iter::once(&text.at)
        .chain(&text.length)
        .chain(&text.index)
        .collect()
}
