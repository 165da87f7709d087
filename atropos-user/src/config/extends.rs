//! From a name or a path to one tree: the file, laid over what it extends. Files are read once, bounded in size, and with
//! a look at whom they belong to.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fields::allowed;
use super::overlay::overlay;
use super::problem::{Problem, Report};
use super::source::{Place, Source};
use super::tree::{self, Table, Value};
use super::{EMBEDDED, trust};

/// The only schema so far.
const SCHEMA: i64 = 1;

/// Largest file that is read. The largest preset has 10 KiB.
const MAX_BYTES: u64 = 256 << 10;

/// Longest chain of files that extend each other.
const MAX_CHAIN: usize = 8;

/// Where a config is.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// In the binary.
    Embedded(&'static str, &'static str),
    /// In a file.
    File(PathBuf),
    /// In memory.
    Text(Arc<Source>),
}

/// A whole config and where its beginning stands; nothing if the report says why.
pub(crate) type Tree = Option<(Table, Place)>;

impl Origin {
    /// What a word on the command line means.
    pub(crate) fn named(name: &str) -> Result<Self, Problem> {
        if is_path(name) {
            return Ok(Self::File(PathBuf::from(name)));
        }
        embedded(name).ok_or_else(|| {
            let problem = Problem::nowhere(format!("there is no preset `{}`", name.escape_debug()));
            let problem = problem.help(known_presets(name));
            if Path::new(name).exists() {
                problem.help(format!("to read the file of that name, write `./{name}`"))
            } else {
                problem
            }
        })
    }

    /// How it is told from others in a chain.
    fn identity(&self) -> String {
        match self {
            Self::Embedded(name, _) => (*name).to_owned(),
            Self::File(path) => path
                .canonicalize()
                .unwrap_or_else(|_| path.clone())
                .display()
                .to_string(),
            Self::Text(source) => source.name().to_owned(),
        }
    }

    /// What `extends = "..."` in this config means.
    fn base(&self, name: &str, place: &Place) -> Result<Self, Problem> {
        if !is_path(name) {
            let unknown = || {
                Problem::at(
                    place,
                    format!("there is no preset `{}`", name.escape_debug()),
                )
                .help(known_presets(name))
            };
            return embedded(name).ok_or_else(unknown);
        }
        match self {
            Self::File(path) => Ok(Self::File(
                path.parent().unwrap_or(Path::new("")).join(name),
            )),
            _ => Err(Problem::at(place, "only a file can extend a file").help(known_presets(name))),
        }
    }
}

/// Whether a word names a file.
fn is_path(name: &str) -> bool {
    name.contains('/')
        || Path::new(name)
            .extension()
            .is_some_and(|extension| extension == "toml")
}

/// An embedded preset by name.
fn embedded(name: &str) -> Option<Origin> {
    EMBEDDED
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(name, text)| Origin::Embedded(name, text))
}

/// The help for a wrong name.
fn known_presets(name: &str) -> String {
    format!(
        "embedded presets: {}; or the path of a file",
        allowed(name, EMBEDDED.iter().map(|(name, _)| *name)).trim_start_matches("allowed: ")
    )
}

/// Reads a config and what it extends.
pub(crate) fn load(origin: &Origin, report: &Report) -> Result<Tree, Problem> {
    load_chain(origin, None, &mut Vec::new(), report)
}

/// Reads one config of a chain; `from` is the place that names it.
fn load_chain(
    origin: &Origin,
    from: Option<&Place>,
    chain: &mut Vec<String>,
    report: &Report,
) -> Result<Tree, Problem> {
    chain.push(origin.identity());
    let (source, owner) = read(origin).map_err(|message| match from {
        Some(place) => Problem::at(place, message),
        None => Problem::nowhere(message),
    })?;
    let Some(table) = tree::parse(&source, report) else {
        return Ok(None);
    };
    let start = Place::new(&source, 0..0);
    if !schema_is_known(&table, &start, report) {
        return Ok(None);
    }
    if let (Some(owner), Some(place)) = (&owner, trust::speaks_of_ending(&table)) {
        for problem in trust::problems(owner, place) {
            report.add(problem);
        }
    }
    let Some((name, place)) = extended(&table, report) else {
        return Ok(Some((table, start)));
    };
    let base = origin.base(&name, &place)?;
    if chain.contains(&base.identity()) {
        let (chain, base) = (chain.join(" -> "), base.identity());
        let message = format!("`extends` goes in a circle: {chain} -> {base}");
        let help = "a config can extend one that does not lead back to it";
        return Err(Problem::at(&place, message).help(help));
    }
    if chain.len() >= MAX_CHAIN {
        let message = format!("{} configs extend each other in a row", chain.len() + 1);
        return Err(Problem::at(&place, message).help(format!("at most {MAX_CHAIN}")));
    }
    let base = load_chain(&base, Some(&place), chain, report)?;
    Ok(base.map(|(base, _)| (overlay(base, table), start)))
}

/// The value of `extends`.
fn extended(table: &Table, report: &Report) -> Option<(String, Place)> {
    let entry = table.get("extends")?;
    match &entry.node.value {
        Value::Text(name) => Some((name.clone(), entry.node.place.clone())),
        other => {
            report.add(Problem::at(
                &entry.node.place,
                format!("`extends` must be a string, not {}", other.kind()),
            ));
            None
        }
    }
}

/// The text of a config, and for a file whom it belongs to.
fn read(origin: &Origin) -> Result<(Arc<Source>, Option<trust::Owner>), String> {
    match origin {
        Origin::Embedded(name, text) => Ok((
            Source::new(format!("presets/{name}/preset.toml"), *text),
            None,
        )),
        Origin::Text(source) if source.text().len() as u64 > MAX_BYTES => {
            Err(too_large(source.name()))
        }
        Origin::Text(source) => Ok((Arc::clone(source), None)),
        Origin::File(path) => {
            let (text, owner) = read_file(path)?;
            Ok((Source::new(path.display().to_string(), text), Some(owner)))
        }
    }
}

/// Reads a file and, through the same descriptor, its owner.
fn read_file(path: &Path) -> Result<(String, trust::Owner), String> {
    let shown = path.display();
    let cannot = |error| format!("cannot read the config {shown}: {error}");
    // Opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(format!(
            "cannot read the config {shown}: it is not a regular file"
        ));
    }
    let file = fs::File::open(path).map_err(cannot)?;
    let owner = trust::Owner::of(path, &file.metadata().map_err(cannot)?);
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(too_large(&shown.to_string()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        format!(
            "cannot read the config {shown}: the byte at offset {} is not UTF-8",
            error.utf8_error().valid_up_to()
        )
    })?;
    Ok((text, owner))
}

/// The message for a config that cannot be one.
fn too_large(name: &str) -> String {
    format!(
        "cannot read the config {name}: it is larger than {} KiB",
        MAX_BYTES >> 10
    )
}

/// Whether the file's schema is ours. A later one would make every other message misleading.
fn schema_is_known(table: &Table, start: &Place, report: &Report) -> bool {
    let Some(entry) = table.get("schema") else {
        report.add(
            Problem::at(start, "the config does not say its schema")
                .help(format!("add `schema = {SCHEMA}` at the top")),
        );
        return true;
    };
    let message = match entry.node.value {
        Value::Integer(SCHEMA) => return true,
        Value::Integer(number) if number > SCHEMA => {
            format!("schema {number} is newer than this program, which knows schema {SCHEMA}")
        }
        _ => "this is no schema".to_owned(),
    };
    report.add(
        Problem::at(&entry.node.place, message)
            .help(format!("allowed: {SCHEMA}; or use a newer atropos")),
    );
    false
}
