//! `[[sessions.progress]]` and `[[sessions.note]]`: what a session's memory says of its work and of itself.

use super::super::fields::Fields;
use super::super::preset::{Formula, Note, NoteEnd, Step};
use super::super::schema;
use super::super::scope::Scope;
use super::super::source::Located;
use super::unique;
use super::walks::{let_entries, read_lets};

/// Reads `[[sessions.progress]]`.
pub(super) fn steps(fields: &Fields<'_>, scope: &Scope<'_>) -> Vec<Step> {
    let steps = fields.tables("progress", &schema::STEP);
    steps
        .iter()
        .filter_map(|step| read_step(step, scope))
        .collect()
}

fn read_step(step: &Fields<'_>, scope: &Scope<'_>) -> Option<Step> {
    let share = |key, default| match step.entry(key) {
        Some(_) => step.number(key),
        None => Some(default),
    };
    let when = step.formula("when", scope);
    let entries = let_entries(step);
    let mut own = scope.clone();
    let lets = read_lets(&entries, &mut own, step.report);
    let (done, total) = (step.formula("done", &own), step.formula("total", &own));
    let checks = step.formulas("checks", &own);
    let own_process = step.flag("own_process", false);
    if own_process && checks.is_empty() {
        step.wrong(
            "own_process",
            "nothing proves that the process is the session's",
            "add `checks`, such as `checks = [\"*symbol(MyProc) == proc\"]`",
        );
    }
    let (from, to) = (share("from", 0.0)?, share("to", 1.0)?);
    if !(0.0 <= from && from < to && to <= 1.0) {
        let key = if step.entry("to").is_some() {
            "to"
        } else {
            "from"
        };
        step.wrong(
            key,
            format!("this step goes from {from} to {to}"),
            "both are shares of the whole work, 0 to 1, and `from` is below `to`",
        );
    }
    Some(Step {
        when: when?,
        done: done?,
        total: total?,
        from,
        to,
        is_estimate: step.flag("estimate", false),
        own_process,
        lets,
        checks,
    })
}

/// Reads `[[sessions.note]]`.
pub(super) fn notes(fields: &Fields<'_>, scope: &Scope<'_>) -> Vec<Note> {
    let has_transactions = fields.entry("transaction_us").is_some();
    let read = |(note, name): (&Fields<'_>, Option<Located<String>>)| {
        let value = note.formula("value", scope);
        let least = note.integer("least", 1, i64::MAX);
        let says = note.text("says");
        let may_end = note.formula("may_end", scope);
        let end = end(note, may_end, least, has_transactions);
        Some(Note {
            name: name?.value,
            value: value?,
            least: u64::try_from(least?).ok()?,
            says: says?.value,
            end,
        })
    };
    let notes = fields.tables("note", &schema::NOTE);
    let names: Vec<_> = notes.iter().map(|note| note.text("name")).collect();
    unique(names.iter().flatten(), "note", fields.report);
    notes.iter().zip(names).filter_map(read).collect()
}

/// From when on sessions are ended for it, if they are.
fn end(
    note: &Fields<'_>,
    may_end: Option<Formula>,
    least: Option<i64>,
    has_transactions: bool,
) -> Option<NoteEnd> {
    let (has_above, has_after) = (
        note.entry("end_above").is_some(),
        note.entry("end_after").is_some(),
    );
    if !has_above && !has_after {
        return None;
    }
    let key = if has_above { "end_above" } else { "end_after" };
    if !(has_above && has_after) {
        note.wrong(
            key,
            "`end_above` and `end_after` go together",
            "a session is ended for it when the value is above the first, in a transaction that has been open for longer than the second",
        );
        return None;
    }
    if !has_transactions {
        note.wrong(
            key,
            "nobody can be ended for it: how long a transaction has been open is not known",
            "`[sessions]` needs `transaction_us`",
        );
    }
    // What is not even worth telling is nothing to end somebody for.
    let above = note.integer("end_above", least.unwrap_or(1), i64::MAX);
    let after_ns = note.duration_ns("end_after");
    Some(NoteEnd {
        may_end,
        above: u64::try_from(above?).ok()?,
        after_ns: after_ns?,
    })
}
