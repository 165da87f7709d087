//! A preset meets a process: which file has its symbols, what its layout numbers are, where its probes can sit.
//!
//! Nothing here touches the target. What cannot be resolved is kept with its reason, for `check` and for the sentence that
//! says why a resource is blind.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use atropos_common::site::{ArgSpec, Cond, SiteSpec};

use crate::agent::clock;
use crate::agent::declared::{self, Declared};
use crate::agent::locate::{self, FoundSite};
use crate::agent::version;
use crate::agent::watch::Watcher;
use crate::config::expr::{Bindings, Expr};
use crate::config::{Alternative, Formula, Lookup, Preset, Probe, Problem};
use crate::elf::operand::Start;
use crate::elf::{Image, Site, SymbolPattern};
use crate::engine::input::Blind;
use crate::target::{HeldFiles, MappedFile, Process, ProcessMemory};
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
    /// Places where a thread finds an order, or why each cannot be had; empty if the preset has none.
    pub order_places: Vec<Result<Place, Vec<String>>>,
    /// The files of all those places, as they were when the places were found.
    pub held: HeldFiles,
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
    /// Symbol or USDT probe that was found.
    pub symbol: String,
    /// File to attach to, as a path for us.
    pub file: PathBuf,
    /// Its sites: one, or as many as a USDT probe has. Never empty.
    pub sites: Vec<PlacedSite>,
}

/// One site of a place.
#[derive(Clone, Debug)]
pub struct PlacedSite {
    /// File offset, cost, and how it was chosen.
    pub site: Site,
    /// File offset of the semaphore that must be raised for it.
    pub semaphore_offset: Option<u64>,
    /// What the site means, without flags.
    pub spec: SiteSpec,
}

impl Resolved {
    /// Binds a preset to a process.
    ///
    /// # Errors
    /// When no mapped file has the preset's symbols, or the process cannot be read.
    pub fn new(process: Process, preset: Preset) -> Result<Self> {
        version::is_known(&process, &preset)?;
        let memory = ProcessMemory::open(&process)?;
        let files = process.mapped_files()?;
        let binary = if preset.matching.marks {
            marked(&process, &preset, &files)?
        } else {
            exporting(&process, &preset, &files)?
        };
        let parts = process.file_parts(&binary)?;
        let image = Image::parse(&parts)
            .with_context(|| format!("cannot read {}", binary.path_for_us.display()))?;
        let preset = if preset.matching.marks {
            completed(preset, &image, &binary)?
        } else {
            preset
        };
        let (names, unlearned) = preset.bindings(&Binary {
            image: &image,
            file: &binary,
        });
        let place = |probe: &Probe| place(probe, &process, &files, &binary, &image, &names);
        let probes: Vec<_> = preset
            .probes
            .iter()
            .enumerate()
            .map(|(index, probe)| ResolvedProbe {
                probe: index,
                place: place(probe),
            })
            .collect();
        let exact = preset
            .cancel
            .as_ref()
            .and_then(|cancel| cancel.exact.as_ref());
        let order_places: Vec<_> = exact
            .map(|exact| exact.places.iter().map(place).collect())
            .unwrap_or_default();
        let sessions = preset
            .sessions
            .as_ref()
            .map(|sessions| SessionList::bind(sessions, &names).map_err(|e| e.to_string()));
        let walks = preset
            .walks
            .iter()
            .map(|walk| LockWalk::bind(walk, &names).map_err(|e| e.to_string()))
            .collect();
        let places = probes.iter().map(|probe| &probe.place);
        let places = places.chain(&order_places).flatten();
        let held = HeldFiles::open(places.map(|place| place.file.as_path()))
            .context("cannot open the files to attach to")?;
        Ok(Self {
            preset,
            process,
            memory,
            binary,
            names,
            unlearned,
            probes,
            order_places,
            held,
            sessions,
            walks,
        })
    }

    /// Resources whose walk cannot be made in this process.
    pub fn never_seen(&self) -> Vec<Blind> {
        let walks = self.preset.walks.iter().zip(&self.walks);
        let blind = walks.filter_map(|(walk, bound)| {
            let reason = bound.as_ref().err()?.clone();
            Some(Blind {
                resource: walk.resource,
                reason,
            })
        });
        blind.collect()
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
            None if self.preset.matching.marks => bail!(
                "the preset `{}` knows only what the application tells by its marks while it is watched: `atropos run --pid {}`",
                self.preset.name.value,
                self.process.pid()
            ),
            None => bail!(
                "the preset `{}` does not say how to list sessions; give it a [sessions] table (docs/config.md)",
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

/// The mapped file that exports the preset's symbols.
fn exporting(process: &Process, preset: &Preset, files: &[MappedFile]) -> Result<MappedFile> {
    let wanted: Vec<&str> = preset
        .matching
        .symbols
        .iter()
        .map(|symbol| symbol.value.as_str())
        .collect();
    let Some(binary) = process.file_defining(files, &wanted)? else {
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
    Ok(binary.clone())
}

/// The mapped file that carries marks.
fn marked(process: &Process, preset: &Preset, files: &[MappedFile]) -> Result<MappedFile> {
    let carrier = declared::carrier(process, files)?.with_context(|| {
        format!(
            "process {} ({}) is not what the preset `{}` knows: none of its {} mapped files carries the marks of usdt-probes; \
             name another preset with --preset",
            process.pid(),
            process.comm(),
            preset.name.value,
            files.len(),
        )
    })?;
    Ok(carrier.clone())
}

/// A preset with what the application declares of itself.
fn completed(preset: Preset, image: &Image<'_>, file: &MappedFile) -> Result<Preset> {
    let complete = || -> Result<Preset, String> {
        let notes = image.usdt().map_err(|error| error.to_string())?;
        Declared::read(&notes)?.complete(preset)
    };
    complete().map_err(|reason| anyhow!("cannot watch {}: {reason}", file.path_in_target.display()))
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

    fn global(&self, function: &str, nth: u32) -> Result<u64, String> {
        self.image
            .global(function, nth as usize)
            .map(|vaddr| self.file.address_of(vaddr))
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
            None => locate::in_image(alternative, image, binary).map(|found| (found, binary)),
            Some(library) => locate::in_library(alternative, library, process, files),
        };
        let placed = found.and_then(|(found, file)| {
            let sites = found
                .sites
                .iter()
                .map(|site| placed_site(probe, alternative, names, &found.symbol, file, site))
                .collect::<Result<_, _>>()?;
            Ok(Place {
                alternative: index,
                symbol: found.symbol.clone(),
                file: file.path_for_us.clone(),
                sites,
            })
        });
        match placed {
            Ok(place) => return Ok(place),
            Err(reason) => tried.push(reason),
        }
    }
    Err(tried)
}

/// A site with its meaning, unless it costs too much or its arguments cannot be evaluated.
fn placed_site(
    probe: &Probe,
    alternative: &Alternative,
    names: &Bindings,
    symbol: &str,
    file: &MappedFile,
    found: &FoundSite,
) -> Result<PlacedSite, String> {
    let site = &found.site;
    if !site.cost.is_emulated() && !probe.allow_expensive {
        return Err(format!(
            "{symbol}: {} (allow it with `expensive = \"allow\"`)",
            site.why
        ));
    }
    let spec = spec(
        probe,
        alternative,
        names,
        file.address_of(site.vaddr),
        found.operands.as_deref(),
    )
    .map_err(|reason| match found.operands {
        Some(_) => format!("{symbol} at {:#x}: {reason}", site.vaddr),
        None => reason,
    })?;
    Ok(PlacedSite {
        site: site.clone(),
        semaphore_offset: found.semaphore_offset,
        spec,
    })
}

/// What a site means; with operands if it is one of a USDT probe.
fn spec(
    probe: &Probe,
    alternative: &Alternative,
    names: &Bindings,
    site_address: u64,
    operands: Option<&[Result<Start, String>]>,
) -> Result<SiteSpec, String> {
    let names = names.with_variables(crate::config::expr::USDT_VARIABLES);
    let compile = |expr: &Expr| -> Result<ArgSpec, String> {
        let bound = expr.bind(&names).map_err(|error| error.to_string())?;
        bound.compile_near(site_address, operands)
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
