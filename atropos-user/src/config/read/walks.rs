//! `[[walk]]`: how holders and waiters are read from whoever waits.

use super::super::fields::{Fields, formula};
use super::super::preset::{Conflict, Formula, Label, List, Walk};
use super::super::problem::{Problem, Report};
use super::super::schema;
use super::super::scope::Scope;
use super::super::source::Located;
use super::super::tree::Node;
use super::sessions::text_at;
use super::{Context, MAX_LIST, as_table, enabled, is_variable, modes, unique, variable};

/// Most variables of a walk.
const MAX_LETS: usize = 64;

/// Reads all walks.
pub(super) fn read(root: &Fields<'_>, context: &Context<'_>) -> Vec<Walk> {
    let tables = root.tables("walk", &schema::WALK);
    let names: Vec<_> = tables
        .iter()
        .filter_map(|fields| fields.text("resource"))
        .collect();
    unique(&names, "walk of resource", root.report);
    let read = |fields: &Fields<'_>| {
        let walk = walk(fields, context);
        if enabled(fields) { walk } else { None }
    };
    tables.iter().filter_map(read).collect()
}

/// One walk.
fn walk(fields: &Fields<'_>, context: &Context<'_>) -> Option<Walk> {
    let resource = context.resource(fields);
    let session = variable(fields, "session");
    let session_name = fields
        .text("session")
        .map(|name| name.value)
        .unwrap_or_default();
    let entries = let_entries(fields);
    let mut scope = context.scope.with([session_name.as_str()]);
    let lets = read_lets(&entries, &mut scope, fields.report);
    let one = |key: &str| fields.formula(key, &scope);
    let (waiting, instance, mode) = (one("waiting"), one("instance"), one("mode"));
    let checks = fields.formulas("checks", &scope);
    let futex = fields.formulas("futex", &context.scope.with(["futex"]));
    let granted = fields
        .table("granted", &schema::LIST)
        .and_then(|list| read_list(&list, &scope));
    let queued = fields
        .table("queued", &schema::LIST)
        .and_then(|list| read_list(&list, &scope));
    let conflicts: Vec<_> = fields
        .tables("conflict", &schema::CONFLICT)
        .iter()
        .filter_map(|conflict| read_conflict(conflict, &scope))
        .collect();
    modes_are_known(fields, mode.as_ref(), granted.as_ref(), queued.as_ref());
    holders_are_known(fields);
    let label = fields
        .table("label", &schema::LABEL)
        .and_then(|label| read_label(&label, &scope));
    Some(Walk {
        resource: resource?,
        session: session?.value,
        lets,
        waiting: waiting?,
        instance: instance?,
        mode,
        checks,
        futex,
        granted: match fields.entry("granted") {
            Some(_) => Some(granted?),
            None => None,
        },
        queued,
        conflicts,
        label,
    })
}

/// The entries of `let`. A name that cannot be used is kept: what uses it is not wrong for that.
pub(super) fn let_entries<'a>(fields: &Fields<'a>) -> Vec<(Located<String>, &'a Node)> {
    let mut entries = Vec::new();
    for node in fields.items("let") {
        let table = as_table(&node.value).map_or(&[][..], |table| &table.entries);
        if table.len() != 1 {
            let message = "each entry of `let` is a table with one name and one expression";
            let help = "write `{ lock = \"*(ticket + 64)\" }`";
            fields
                .report
                .add(Problem::at(&node.place, message).help(help));
        }
        for entry in table {
            let name = Located {
                value: entry.key.clone(),
                place: entry.key_place.clone(),
            };
            is_variable(&name, fields.report);
            entries.push((name, &entry.node));
        }
    }
    if entries.len() > MAX_LETS {
        let message = format!("{} entries of `let`", entries.len());
        fields.wrong("let", message, format!("at most {MAX_LETS}"));
        entries.truncate(MAX_LETS);
    }
    entries
}

/// The variables in turn, each in the scope of those before it; all are in scope afterwards.
pub(super) fn read_lets<'a>(
    entries: &'a [(Located<String>, &Node)],
    scope: &mut Scope<'a>,
    report: &Report,
) -> Vec<(String, Formula)> {
    let mut lets = Vec::new();
    for (name, node) in entries {
        if scope.variables.contains(&name.as_str()) {
            let message = format!("`{}` is there already", name.value);
            report.add(Problem::at(&name.place, message).help("choose another name"));
        }
        let formula = formula(node, name, scope, report);
        lets.extend(formula.map(|formula| (name.value.clone(), formula)));
        // The name counts from here on even if its expression is wrong: that is one mistake, not many.
        scope.variables.push(&name.value);
    }
    lets
}

/// Conflicts compare modes, so every side must have one.
fn modes_are_known(
    fields: &Fields<'_>,
    mode: Option<&Formula>,
    granted: Option<&List>,
    queued: Option<&List>,
) {
    if fields.entry("conflict").is_none() {
        return;
    }
    let missing = [
        (fields.entry("mode").is_none() && mode.is_none(), "the walk"),
        (
            granted.is_some_and(|list| list.mode.is_none() && list.mask.is_none()),
            "`walk.granted`",
        ),
        (
            queued.is_some_and(|list| list.mode.is_none() && list.mask.is_none()),
            "`walk.queued`",
        ),
    ];
    for (_, whose) in missing.iter().filter(|(missing, _)| *missing) {
        fields.wrong(
            "conflict",
            format!("conflicts compare modes, and {whose} has no `mode`"),
            "add `mode = ...` there",
        );
    }
}

/// A queue and conflicts say who of several is in the way, which means nothing where nobody is known to hold anything.
fn holders_are_known(fields: &Fields<'_>) {
    if fields.entry("granted").is_some() {
        return;
    }
    for key in ["queued", "conflict"] {
        if fields.entry(key).is_some() {
            fields.wrong(
                key,
                format!("`{key}` in a walk without `granted`"),
                "a walk without `granted` shows who waits, and never who is in the way",
            );
        }
    }
}

/// A list of tickets.
fn read_list(fields: &Fields<'_>, outer: &Scope<'_>) -> Option<List> {
    let item = variable(fields, "item");
    let item_name = fields
        .text("item")
        .map(|name| name.value)
        .unwrap_or_default();
    let of_node = outer.with(["node"]);
    let of_item = of_node.with([item_name.as_str()]);
    let (first, end) = (fields.formula("first", outer), fields.formula("end", outer));
    let (next, object) = (
        fields.formula("next", &of_node),
        fields.formula("object", &of_node),
    );
    let owner = fields.formula("owner", &of_item);
    let limit = fields.integer("limit", 1, MAX_LIST);
    if fields.entry("mask").is_some() && fields.entry("mode").is_some() {
        fields.wrong(
            "mask",
            "an entry has either one `mode` or a `mask` of modes",
            "leave one of them out",
        );
    }
    Some(List {
        mode: fields.formula("mode", &of_item),
        mask: fields.formula("mask", &of_item),
        ordered: fields.flag("ordered", false),
        checks: fields.formulas("checks", &of_item),
        modes: fields.formula("modes", outer),
        item: item?.value,
        first: first?,
        next: next?,
        end: end?,
        object: object?,
        limit: u32::try_from(limit?).ok()?,
        owner: owner?,
    })
}

/// A table of modes that exclude each other.
fn read_conflict(fields: &Fields<'_>, outer: &Scope<'_>) -> Option<Conflict> {
    let of_mode = outer.with(["mode"]);
    let granted = fields.formula("granted", &of_mode);
    Some(Conflict {
        when: fields.formula("when", outer),
        queued: fields.formula("queued", &of_mode),
        modes: modes(fields),
        granted: granted?,
    })
}

/// What an instance is called.
fn read_label(fields: &Fields<'_>, scope: &Scope<'_>) -> Option<Label> {
    let namespaces = fields.texts("namespaces");
    if namespaces.is_empty() != fields.entry("namespace").is_none() {
        let message = "`namespace` and `namespaces` go together";
        fields.report.add(
            Problem::at(fields.place, message).help("the first is the index, the second the names"),
        );
    }
    if fields.entry("text").is_none() && fields.entry("numbers").is_none() {
        fields.report.add(
            Problem::at(fields.place, "this label names nothing")
                .help("add `text = { at = ... }` or `numbers = [...]`"),
        );
        return None;
    }
    let text = match fields.entry("text") {
        Some(_) => Some(text_at(fields, "text", scope)?),
        None => None,
    };
    Some(Label {
        namespace: fields.formula("namespace", scope),
        namespaces: namespaces.into_iter().map(|name| name.value).collect(),
        checks: fields.formulas("checks", scope),
        numbers: fields.formulas("numbers", scope),
        text,
    })
}
