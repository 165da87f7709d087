//! `[sessions]`, and texts in the target's memory.

use super::super::fields::Fields;
use super::super::preset::{Sessions, TextAt};
use super::super::schema;
use super::super::scope::Scope;
use super::{Context, MAX_LIST, variable};

/// Reads the section.
pub(super) fn read(root: &Fields<'_>, context: &Context<'_>) -> Option<Sessions> {
    let fields = root.table("sessions", &schema::SESSIONS)?;
    let name = variable(&fields, "name");
    // A name that cannot be used is one mistake, not one in every expression.
    let typed = fields
        .text("name")
        .map(|name| name.value)
        .unwrap_or_default();
    let scope = context.scope.with([typed.as_str()]);
    let one = |key: &str| fields.formula(key, &scope);
    let (first, next, end) = (
        fields.formula("first", &context.scope),
        one("next"),
        fields.formula("end", &context.scope),
    );
    let limit = fields.integer("limit", 1, MAX_LIST);
    let (id, busy) = (one("id"), one("busy"));
    let rest = Sessions {
        checks: fields.formulas("checks", &scope),
        thread: one("thread"),
        request: one("request"),
        in_transaction: one("in_transaction"),
        explicit_locks: one("explicit_locks"),
        started_us: one("started_us"),
        ended_us: one("ended_us"),
        started_epoch_s: one("started_epoch_s"),
        killed: one("killed"),
        progress: one("progress"),
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

/// Reads `{ at, length, parts }`.
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
    Some(TextAt {
        at: at?,
        length,
        parts: u32::try_from(parts).ok()?,
    })
}
