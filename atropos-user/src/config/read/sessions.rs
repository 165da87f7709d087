//! `[sessions]`, and texts in the target's memory.

use super::super::fields::Fields;
use super::super::preset::{SessionClock, Sessions, TextAt};
use super::super::problem::Problem;
use super::super::schema;
use super::super::scope::Scope;
use super::facts::{notes, steps};
use super::walks::{let_entries, read_lets};
use super::{Context, MAX_LIST, variable};

/// Clocks of a session's times.
const CLOCKS: [(&str, SessionClock); 3] = [
    ("monotonic", SessionClock::Monotonic),
    ("since_1970", SessionClock::Since1970),
    ("since_2000", SessionClock::Since2000),
];

/// Reads the section.
pub(super) fn read(root: &Fields<'_>, context: &Context<'_>) -> Option<Sessions> {
    let fields = root.table("sessions", &schema::SESSIONS)?;
    let name = variable(&fields, "name");
    // A name that cannot be used is one mistake, not one in every expression.
    let typed = fields
        .text("name")
        .map(|name| name.value)
        .unwrap_or_default();
    let of_key = context.scope.with([typed.as_str()]);
    let present = fields.formula("present", &of_key);
    let entries = let_entries(&fields);
    let mut scope = of_key.clone();
    let lets = read_lets(&entries, &mut scope, fields.report);
    let one = |key: &str| fields.formula(key, &scope);
    let (first, next, end) = (
        fields.formula("first", &context.scope),
        fields.formula("next", &of_key),
        fields.formula("end", &context.scope),
    );
    let limit = fields.integer("limit", 1, MAX_LIST);
    let (id, busy) = (one("id"), one("busy"));
    let clock = fields
        .entry("clock")
        .map_or(Some(SessionClock::Monotonic), |_| {
            fields.choice("clock", "clock", &CLOCKS)
        });
    let probes_tell_id = fields.entry("at_probes").map_or(Some(false), |_| {
        fields.choice(
            "at_probes",
            "name of a session",
            &[("key", false), ("id", true)],
        )
    });
    let rest = Sessions {
        present,
        lets,
        clock: clock?,
        probes_tell_id: probes_tell_id?,
        checks: fields.formulas("checks", &scope),
        thread: one("thread"),
        request: one("request"),
        in_transaction: one("in_transaction"),
        explicit_locks: one("explicit_locks"),
        started_us: one("started_us"),
        transaction_us: one("transaction_us"),
        ended_us: one("ended_us"),
        started_epoch_s: one("started_epoch_s"),
        times: fields.formulas("times", &scope),
        killed: one("killed"),
        progress: steps(&fields, &scope),
        notes: notes(&fields, &scope),
        slots: fields.formula("slots", &context.scope),
        takes_slot: one("takes_slot"),
        text: text_at(&fields, "text", &scope),
        principal: text_at(&fields, "principal", &scope),
        name: name?.value,
        first: first?,
        next: next?,
        end: end?,
        limit: u32::try_from(limit?).ok()?,
        id: id?,
        busy: busy?,
    };
    Some(rest)
}

/// Reads `{ at, length, parts, index, names }`.
pub(super) fn text_at(fields: &Fields<'_>, key: &str, scope: &Scope<'_>) -> Option<TextAt> {
    let text = fields.table(key, &schema::TEXT)?;
    let (at, length) = (text.formula("at", scope), text.formula("length", scope));
    let parts = text
        .entry("parts")
        .map_or(Some(1), |_| text.integer("parts", 1, 8))?;
    if parts > 1 && text.entry("length").is_none() {
        text.wrong(
            "parts",
            "several parts need a `length`",
            "without it the text ends at the first zero byte",
        );
    }
    let names = text.texts("names");
    if names.is_empty() != text.entry("index").is_none() {
        let message = "`index` and `names` go together";
        text.report.add(
            Problem::at(text.place, message).help("the first is the index, the second the names"),
        );
    }
    Some(TextAt {
        at: at?,
        length,
        index: text.formula("index", scope),
        names: names.into_iter().map(|name| name.value).collect(),
        parts: u32::try_from(parts).ok()?,
    })
}
