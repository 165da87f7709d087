//! A preset meets a process: which file has its symbols, what its layout numbers are, where its probes can sit.
//!
//! Nothing here touches the target. What cannot be resolved is kept with its reason, for `check` and for the sentence that
//! says why a resource is blind.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use atropos_common::site::{ArgSpec, Cond, SiteSpec};

use crate::agent::clock;
use crate::agent::watch::Watcher;
use crate::config::expr::{Bindings, Expr};
use crate::config::{Alternative, Formula, Location, Lookup, Preset, Probe, Problem};
use crate::elf::{Image, Site, SymbolPattern};
use crate::target::{MappedFile, Process, ProcessMemory};
use crate::walk::{LockWalk, SessionList};

/// A preset bound to one process.
pub struct Resolved {
    /// The preset.
    pub preset: Preset,
    /// The process.
    pub process: Process,
    /// Its memory.
    pub memory: ProcessMemory,
    /// The file that has the preset's symbols.
    pub binary: MappedFile,
    /// Values of layout numbers and symbols.
    pub names: Bindings,
    /// Layout numbers and symbols that this process does not have.
    pub unlearned: Vec<Problem>,
    /// Every probe with the place it can sit at, or why it cannot.
    pub probes: Vec<ResolvedProbe>,
    /// The list of sessions, or why it cannot be read.
    pub sessions: Option<Result<SessionList, String>>,
    /// The walks, or why they cannot be made.
    pub walks: Vec<Result<LockWalk, String>>,
}

/// A probe and where it can sit.
#[derive(Clone, Debug)]
pub struct ResolvedProbe {
    /// Index in the preset.
    pub probe: usize,
    /// The place, or what was tried and why it failed, one line an alternative.
    pub place: Result<Place, Vec<String>>,
}

/// Where a probe can sit.
#[derive(Clone, Debug)]
pub struct Place {
    /// Index of the alternative.
    pub alternative: usize,
    /// Symbol that was found.
    pub symbol: String,
    /// File to attach to, as a path for us.
    pub file: PathBuf,
    /// File offset, cost, and how it was chosen.
    pub site: Site,
    /// What the site means, without flags.
    pub spec: SiteSpec,
}

impl Resolved {
    /// Binds a preset to a process.
    ///
    /// # Errors
    /// When no mapped file has the preset's symbols, or the process cannot be read.
    pub fn new(process: Process, preset: Preset) -> Result<Self> {
        let memory = ProcessMemory::open(&process)?;
        let files = process.mapped_files()?;
        let wanted: Vec<&str> = preset
            .matching
            .symbols
            .iter()
            .map(|symbol| symbol.value.as_str())
            .collect();
        let Some(binary) = process.file_defining(&files, &wanted)? else {
            bail!(
                "process {} ({}) is not what the preset `{}` knows: none of its {} mapped files exports {}; name another \
                 preset with --preset, or see `atropos check --preset {} --pid {}`",
                process.pid(),
                process.comm(),
                preset.name.value,
                files.len(),
                wanted.join(", "),
                preset.name.value,
                process.pid(),
            );
        };
        let binary = binary.clone();
        let bytes = process.file_bytes(&binary)?;
        let image = Image::parse(&bytes)
            .with_context(|| format!("cannot read {}", binary.path_for_us.display()))?;
        let (names, unlearned) = preset.bindings(&Binary {
            image: &image,
            file: &binary,
        });
        let probes = preset
            .probes
            .iter()
            .enumerate()
            .map(|(index, probe)| ResolvedProbe {
                probe: index,
                place: place(probe, &process, &files, &binary, &image, &names),
            })
            .collect();
        let sessions = preset
            .sessions
            .as_ref()
            .map(|sessions| SessionList::bind(sessions, &names).map_err(|e| e.to_string()));
        let walks = preset
            .walks
            .iter()
            .map(|walk| LockWalk::bind(walk, &names).map_err(|e| e.to_string()))
            .collect();
        Ok(Self {
            preset,
            process,
            memory,
            binary,
            names,
            unlearned,
            probes,
            sessions,
            walks,
        })
    }

    /// A watcher of the process.
    ///
    /// # Errors
    /// When the sessions cannot be listed or no walk could be bound: then nothing can be seen.
    pub fn watcher(&self) -> Result<Watcher> {
        let list = match &self.sessions {
            Some(Ok(list)) => list.clone(),
            Some(Err(reason)) => bail!(
                "the sessions of process {} cannot be listed: {reason}",
                self.process.pid()
            ),
            None => bail!(
                "the preset `{}` does not say how to list sessions",
                self.preset.name.value
            ),
        };
        let walks: Vec<LockWalk> = self
            .walks
            .iter()
            .filter_map(|walk| walk.as_ref().ok().cloned())
            .collect();
        if walks.is_empty() {
            let reasons: Vec<&str> = self
                .walks
                .iter()
                .filter_map(|walk| walk.as_ref().err().map(String::as_str))
                .collect();
            bail!(
                "no lock of process {} can be read: {}",
                self.process.pid(),
                reasons.join("; ")
            );
        }
        Ok(Watcher::new(
            list,
            walks,
            self.preset.clone(),
            clock::epoch_minus_monotonic_ns(),
        ))
    }
}

/// What the preset's names are looked up in.
struct Binary<'a> {
    image: &'a Image<'a>,
    file: &'a MappedFile,
}

impl Lookup for Binary<'_> {
    fn accessor(&self, function: &str, nth: u32) -> Result<i64, String> {
        self.image
            .accessor(function, nth as usize)
            .map_err(|error| error.to_string())
    }

    fn symbol(&self, name: &str) -> Result<u64, String> {
        let data = self.image.data_symbol(name);
        let symbol = data
            .or_else(|_| self.image.find(&SymbolPattern::new(name)))
            .map_err(|error| error.to_string())?;
        Ok(self.file.symbol_address(&symbol))
    }
}

/// The first alternative of a probe that can be had, or what was tried.
fn place(
    probe: &Probe,
    process: &Process,
    files: &[MappedFile],
    binary: &MappedFile,
    image: &Image<'_>,
    names: &Bindings,
) -> Result<Place, Vec<String>> {
    let mut tried = Vec::new();
    for (index, alternative) in probe.alternatives.iter().enumerate() {
        let found = match &alternative.library {
            None => locate(alternative, image, binary).map(|(symbol, site)| (symbol, site, binary)),
            Some(library) => in_library(alternative, library, process, files),
        };
        let placed = found.and_then(|(symbol, site, file)| {
            if !site.cost.is_emulated() && !probe.allow_expensive {
                return Err(format!(
                    "{symbol}: {} (allow it with `expensive = \"allow\"`)",
                    site.why
                ));
            }
            let spec = spec(probe, alternative, names)?;
            Ok(Place {
                alternative: index,
                symbol,
                file: file.path_for_us.clone(),
                site,
                spec,
            })
        });
        match placed {
            Ok(place) => return Ok(place),
            Err(reason) => tried.push(reason),
        }
    }
    Err(tried)
}

/// The alternative in a library that the process maps.
fn in_library<'a>(
    alternative: &Alternative,
    library: &str,
    process: &Process,
    files: &'a [MappedFile],
) -> Result<(String, Site, &'a MappedFile), String> {
    let file = files
        .iter()
        .find(|file| {
            file.path_in_target
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(library))
        })
        .ok_or_else(|| format!("the process maps no library {library}"))?;
    let bytes = process
        .file_bytes(file)
        .map_err(|error| error.to_string())?;
    let image = Image::parse(&bytes).map_err(|error| error.to_string())?;
    locate(alternative, &image, file).map(|(symbol, site)| (symbol, site, file))
}

/// Symbol and site of an alternative in one file.
fn locate(
    alternative: &Alternative,
    image: &Image<'_>,
    file: &MappedFile,
) -> Result<(String, Site), String> {
    match &alternative.location.value {
        Location::Symbol { pattern, offset } => {
            let symbol = image
                .find(&SymbolPattern::new(pattern))
                .map_err(|error| error.to_string())?;
            let site = image
                .site(symbol.vaddr + offset)
                .map_err(|error| format!("{}: {error}", symbol.name))?;
            Ok((symbol.name, site))
        }
        Location::Address { address, build_id } => {
            let actual = file
                .build_id
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            if !actual.starts_with(build_id.as_str()) {
                return Err(format!(
                    "the address {address:#x} is of build {build_id}, this is build {actual}"
                ));
            }
            let site = image
                .site(*address)
                .map_err(|error| format!("{address:#x}: {error}"))?;
            Ok((format!("{address:#x}"), site))
        }
    }
}

/// What a site means.
fn spec(probe: &Probe, alternative: &Alternative, names: &Bindings) -> Result<SiteSpec, String> {
    let names = names.with_variables(crate::config::expr::PROBE_VARIABLES);
    let compile = |expr: &Expr| -> Result<ArgSpec, String> {
        expr.bind(&names)
            .map_err(|error| error.to_string())?
            .compile()
    };
    let optional =
        |formula: &Option<Formula>| formula.as_ref().map_or(Ok(ArgSpec::NONE), |f| compile(f));
    let (guard, guard_value, cond) = match &alternative.guard {
        None => (ArgSpec::NONE, 0, Cond::Always),
        Some(guard) => {
            let value = guard
                .value
                .bind(&names)
                .map_err(|error| error.to_string())?;
            let value = value
                .constant()
                .ok_or("what a guard compares with must not depend on the call")?;
            (
                compile(&guard.subject)?,
                value,
                if guard.equal {
                    Cond::Equal
                } else {
                    Cond::NotEqual
                },
            )
        }
    };
    Ok(SiteSpec {
        session: compile(&alternative.session)?,
        instance: optional(&alternative.instance)?,
        value: optional(&alternative.value)?,
        guard,
        guard_value,
        resource: probe.resource.map_or(u16::MAX, |resource| resource.0),
        op: probe.op as u8,
        cond: cond as u8,
        flags: 0,
    })
}
