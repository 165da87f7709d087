//! The tree as typed -> the preset as meant. All mistakes are reported; a part that has one is left out of the result,
//! which nobody sees then.

mod decide;
mod exact;
mod facts;
mod layout;
mod places;
mod probes;
mod sessions;
mod tasks;
mod walks;

use super::fields::Fields;
use super::preset::{Match, Preset, Resource, Version};
use super::problem::{Problem, Report};
use super::schema;
use super::scope::Scope;
use super::source::{Located, Place};
use super::tree::{Table, Value};
use crate::engine::input::ResourceId;
use crate::engine::settings::Kind;
use crate::governor::Budget;

/// Most modes of a resource: masks of modes have 32 bits.
const MAX_MODES: usize = 32;

/// Longest list that a config can ask for.
const MAX_LIST: i64 = 100_000;

/// Most resources: more than any preset has use for, and few enough to be judged at every tick.
const MAX_RESOURCES: usize = 64;

/// Kinds of resource.
const KINDS: [(&str, Kind); 5] = [
    ("LOCK", Kind::Lock),
    ("MEMORY", Kind::Memory),
    ("QUEUE", Kind::Queue),
    ("CPU", Kind::Cpu),
    ("IO", Kind::Io),
];

/// What every part of the config may refer to.
struct Context<'a> {
    scope: Scope<'a>,
    /// Names and kinds of the resources in their order; a name that could not be read is empty.
    resources: Vec<(String, Option<Kind>)>,
}

impl Context<'_> {
    /// The resource that the key `resource` names.
    fn resource(&self, fields: &Fields<'_>) -> Option<ResourceId> {
        let named = (0u16..)
            .zip(&self.resources)
            .filter(|(_, (name, _))| !name.is_empty());
        let choices: Vec<_> = named
            .map(|(index, (name, _))| (name.as_str(), ResourceId(index)))
            .collect();
        fields.choice("resource", "resource", &choices)
    }

    /// The kind of a resource.
    fn kind(&self, id: ResourceId) -> Option<Kind> {
        self.resources.get(usize::from(id.0))?.1
    }
}

/// Reads a whole config.
pub(super) fn preset(table: &Table, place: &Place, report: &Report) -> Option<Preset> {
    let fields = Fields::open(table, &schema::ROOT, place, report);
    let layout_names = layout::names(table);
    let resources = resources(&fields);
    let context = Context {
        scope: Scope::of_layout(&layout_names),
        resources: resources
            .iter()
            .map(|(name, kind, _)| (name.clone(), *kind))
            .collect(),
    };
    let completed = fields.table("completed", &schema::COMPLETED);
    let budget = fields.table("budget", &schema::BUDGET);
    let (tuning, rerun) = fields
        .table("decide", &schema::DECIDE)
        .map(|decide| decide::read(&decide))
        .unwrap_or_default();
    Some(Preset {
        title: fields
            .text("title")
            .map(|title| title.value)
            .unwrap_or_default(),
        unseen: fields
            .texts("unseen")
            .into_iter()
            .map(|sentence| sentence.value)
            .collect(),
        matching: fields
            .table("match", &schema::MATCH)
            .map(|fields| matching(&fields))
            .unwrap_or_default(),
        layout: layout::read(&fields),
        sessions: sessions::read(&fields, &context),
        completed: completed.and_then(|completed| completed.formula("count", &context.scope)),
        probes: probes::read(&fields, &context),
        walks: walks::read(&fields, &context),
        classes: tasks::classes(&fields),
        cancel: tasks::cancel(&fields, &context.scope),
        budget: budget
            .as_ref()
            .map_or_else(Budget::default, |budget| read_budget(budget)),
        calibrate: budget.is_none_or(|budget| budget.flag("calibrate", true)),
        tuning,
        rerun,
        resources: resources
            .into_iter()
            .filter_map(|(_, _, resource)| resource)
            .collect(),
        name: fields.text("name")?,
    })
}

/// `[budget]`.
fn read_budget(fields: &Fields<'_>) -> Budget {
    let usual = Budget::default();
    Budget {
        calm: fields.share("calm").unwrap_or(usual.calm),
        suspect: fields.share("suspect").unwrap_or(usual.suspect),
    }
}

/// `[match]`.
fn matching(fields: &Fields<'_>) -> Match {
    let programs = fields.texts("programs");
    for program in programs.iter().filter(|program| program.contains('/')) {
        let message = format!("`{}` is a path", program.value);
        fields.report.add(
            Problem::at(&program.place, message)
                .help("write the file name alone, such as `mariadbd`"),
        );
    }
    Match {
        programs: programs.into_iter().map(|program| program.value).collect(),
        symbols: fields.texts("symbols"),
        forks: fields.flag("forks", false),
        marks: fields.flag("marks", false),
        version: version(fields),
    }
}

/// `[match.version]`.
fn version(fields: &Fields<'_>) -> Option<Version> {
    let version = fields.table("version", &schema::VERSION)?;
    let (file, known) = (version.text("file"), version.texts("known"));
    let file = file?.value;
    if file.contains('/') {
        version.wrong(
            "file",
            format!("`{file}` is a path"),
            "write the name of a file in the directory that the process works in",
        );
    }
    Some(Version {
        file,
        known: known.into_iter().map(|known| known.value).collect(),
    })
}

/// `[[resource]]`: name and kind as far as they could be read, and the whole if all of it could.
fn resources(root: &Fields<'_>) -> Vec<(String, Option<Kind>, Option<Resource>)> {
    let mut tables = root.tables("resource", &schema::RESOURCE);
    if tables.len() > MAX_RESOURCES {
        root.wrong(
            "resource",
            format!("{} resources", tables.len()),
            format!("at most {MAX_RESOURCES}"),
        );
        tables.truncate(MAX_RESOURCES);
    }
    let names: Vec<_> = tables.iter().map(|fields| fields.text("name")).collect();
    unique(names.iter().flatten(), "resource", root.report);
    let read = |(fields, name): (&Fields<'_>, Option<Located<String>>)| {
        let kind = fields.choice("kind", "kind", &KINDS);
        let title = fields
            .text("title")
            .map(|title| title.value)
            .unwrap_or_default();
        let modes = modes(fields);
        let shown = name
            .as_ref()
            .map(|name| name.value.clone())
            .unwrap_or_default();
        let resource = name.zip(kind).map(|(name, kind)| Resource {
            name,
            kind,
            title,
            modes,
        });
        (shown, kind, resource)
    };
    tables.iter().zip(names).map(read).collect()
}

/// Names of modes.
fn modes(fields: &Fields<'_>) -> Vec<String> {
    let modes = fields.texts("modes");
    if modes.len() > MAX_MODES {
        fields.wrong(
            "modes",
            format!("{} modes", modes.len()),
            format!("at most {MAX_MODES}: a set of modes is a mask of 32 bits"),
        );
    }
    unique(&modes, "mode", fields.report);
    modes.into_iter().map(|mode| mode.value).collect()
}

/// Notes names that come twice.
fn unique<'a>(names: impl IntoIterator<Item = &'a Located<String>>, what: &str, report: &Report) {
    let mut seen: Vec<&Located<String>> = Vec::new();
    for name in names {
        match seen.iter().find(|earlier| earlier.value == name.value) {
            Some(earlier) => {
                let message = format!("there are two of {what} `{}`", name.value);
                report.add(
                    Problem::at(&name.place, message)
                        .help(format!("the first is at {}", earlier.place)),
                );
            }
            None => seen.push(name),
        }
    }
}

/// Whether a table is switched on.
fn enabled(fields: &Fields<'_>) -> bool {
    fields.flag("enabled", true)
}

/// A name that can stand in expressions: a word that means nothing else there.
fn variable(fields: &Fields<'_>, key: &str) -> Option<Located<String>> {
    let name = fields.text(key)?;
    is_variable(&name, fields.report).then_some(name)
}

/// Notes a name that cannot stand in expressions.
fn is_variable(name: &Located<String>, report: &Report) -> bool {
    const TAKEN: [&str; 10] = [
        "u8", "u16", "u32", "u64", "i32", "f64", "symbol", "node", "mode", "futex",
    ];
    let message = if TAKEN.contains(&name.as_str()) {
        format!("`{}` already means something in expressions", name.value)
    } else if is_word(name) {
        return true;
    } else {
        format!(
            "`{}` cannot stand in expressions",
            name.value.escape_debug()
        )
    };
    report.add(
        Problem::at(&name.place, message)
            .help("a name is made of letters, digits and `_`, and begins with a letter"),
    );
    false
}

/// Whether a name is made of letters, digits and `_`, and begins with a letter or `_`.
fn is_word(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A text of a value, for keys whose names are free.
fn as_table(value: &Value) -> Option<&Table> {
    match value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}
