//! The kernel half as its object file has it: maps made in the kernel, programs that are loaded when they are wanted.
//!
//! It is put together here, out of the parts that aya's own loader is made of, because that loader first reads the types of the
//! whole kernel: some 25 MB for a moment, twice the memory that the agent has otherwise. None of the programs here looks into
//! a structure of the kernel's, so nobody would ask for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use aya::maps::{Map, MapData};
use aya_obj::generated::{bpf_attach_type, bpf_cmd, bpf_insn, bpf_map_type, bpf_prog_type};
use aya_obj::{Object, ProgramSection};

use super::sys;

/// Room for what the verifier says of a program that it refuses.
const LOG_BYTES: usize = 1 << 20;

/// Lines of it that are told: the last ones say why.
const LOG_LINES: usize = 20;

/// Attached in the way that its kind of program always is.
const PLAIN: u32 = 0;

/// Maps and programs.
pub(super) struct Half {
    /// All of them, also those that were taken: the programs name them by these descriptors until they are loaded.
    maps: BTreeMap<String, MapData>,
    taken: BTreeSet<&'static str>,
    codes: BTreeMap<String, Code>,
    /// By name and way of attaching.
    loaded: BTreeMap<(&'static str, u32), OwnedFd>,
}

/// A program that the kernel has not seen yet.
struct Code {
    kind: bpf_prog_type,
    license: CString,
    instructions: Vec<bpf_insn>,
}

/// Size of one program as the verifier counted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStat {
    /// Its name.
    pub name: String,
    /// Instructions that the verifier walked, over all paths.
    pub verified_instructions: u32,
}

impl Half {
    /// Makes the maps of an object file; no program is loaded yet.
    ///
    /// # Errors
    /// When the file is not what the agent's build makes, or the kernel refuses a map.
    pub(super) fn new(file: &[u8]) -> Result<Self> {
        let mut object = Object::parse(file).context("cannot read the kernel half")?;
        let definitions: Vec<_> = object.maps.drain().collect();
        let mut maps = BTreeMap::new();
        for (name, definition) in &definitions {
            let map = make(name, definition)
                .with_context(|| format!("cannot make map {name} of the kernel half"))?;
            maps.insert(name.clone(), map);
        }
        let fd_of = |name: &str| -> RawFd { maps[name].fd().as_fd().as_raw_fd() };
        let sections = object
            .functions
            .keys()
            .map(|(section, _)| *section)
            .collect();
        object
            .relocate_maps(
                definitions
                    .iter()
                    .map(|(name, definition)| (name.as_str(), fd_of(name), definition)),
                &sections,
            )
            .context("cannot put the maps into the programs of the kernel half")?;
        object
            .relocate_calls(&sections)
            .context("cannot join the functions of the kernel half")?;
        let codes = object
            .programs
            .iter()
            .map(|(name, program)| Ok((name.clone(), Code::of(name, program, &object)?)))
            .collect::<Result<_>>()?;
        Ok(Self {
            maps,
            taken: BTreeSet::new(),
            codes,
            loaded: BTreeMap::new(),
        })
    }

    /// A map, once.
    ///
    /// # Errors
    /// When there is none of that name, or it was taken before.
    pub(super) fn take_map(&mut self, name: &'static str) -> Result<Map> {
        ensure!(self.taken.insert(name), "the map {name} was taken before");
        let take = || -> Result<Map> {
            let map = self
                .maps
                .get(name)
                .context("the kernel half has none of that name")?;
            let fd = map.fd().as_fd().try_clone_to_owned()?;
            Ok(Map::from_map_data(MapData::from_fd(fd)?)?)
        };
        take().with_context(|| format!("cannot take map {name}"))
    }

    /// A program, loaded if it is not yet.
    ///
    /// # Errors
    /// When the kernel refuses it; the message carries the end of the verifier's log.
    pub(super) fn program(&mut self, name: &'static str) -> Result<BorrowedFd<'_>> {
        self.load(name, PLAIN)
    }

    /// The same for links of many sites.
    ///
    /// # Errors
    /// As [`Self::program`], and on kernels that have no such links.
    pub(super) fn program_for_many(&mut self, name: &'static str) -> Result<BorrowedFd<'_>> {
        self.load(name, bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32)
    }

    fn load(&mut self, name: &'static str, attached: u32) -> Result<BorrowedFd<'_>> {
        let code = self
            .codes
            .get(name)
            .ok_or_else(|| anyhow!("the kernel half has no program {name}"))?;
        let loaded: &OwnedFd = match self.loaded.entry((name, attached)) {
            std::collections::btree_map::Entry::Occupied(loaded) => loaded.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(code.load(name, attached)?)
            }
        };
        Ok(loaded.as_fd())
    }

    /// Sizes of the programs that are loaded, by name.
    pub(super) fn stats(&self) -> Vec<ProgramStat> {
        let stat = |((name, _), program): (&(&'static str, u32), &OwnedFd)| {
            let info = sys::program_info(program.as_fd()).ok()?;
            Some(ProgramStat {
                name: (*name).to_owned(),
                verified_instructions: info.verified_insns,
            })
        };
        self.loaded.iter().filter_map(stat).collect()
    }
}

impl Code {
    fn of(name: &str, program: &aya_obj::Program, object: &Object) -> Result<Self> {
        let kind = match program.section {
            ProgramSection::UProbe { sleepable: false } => bpf_prog_type::BPF_PROG_TYPE_KPROBE,
            ProgramSection::TracePoint => bpf_prog_type::BPF_PROG_TYPE_TRACEPOINT,
            ProgramSection::RawTracePoint => bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT,
            ref other => bail!("program {name} is of a kind that is not known here: {other:?}"),
        };
        let function = object
            .functions
            .get(&program.function_key())
            .with_context(|| format!("program {name} has no code"))?;
        Ok(Self {
            kind,
            license: program.license.clone(),
            instructions: function.instructions.clone(),
        })
    }

    fn load(&self, name: &str, attached: u32) -> Result<OwnedFd> {
        match self.give(name, attached, &mut []) {
            Ok(program) => Ok(program),
            Err(first) => {
                let mut log = vec![0; LOG_BYTES];
                // Once more, to hear why; it may well go through the second time, say when memory was short.
                if let Ok(program) = self.give(name, attached, &mut log) {
                    return Ok(program);
                }
                let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
                Err(refused(name, &first, &String::from_utf8_lossy(said)))
            }
        }
    }

    /// Gives the program to the kernel. With room for a log the verifier says what it does.
    fn give(&self, name: &str, attached: u32, log: &mut [u8]) -> std::io::Result<OwnedFd> {
        let Self {
            kind,
            license,
            instructions,
        } = self;
        let mut attr = sys::attr();
        // SAFETY: writing to a member of a union of plain numbers.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        load.prog_type = *kind as u32;
        load.expected_attach_type = attached;
        load.insns = instructions.as_ptr() as u64;
        load.insn_cnt = instructions.len() as u32;
        load.license = license.as_ptr() as u64;
        if !log.is_empty() {
            load.log_level = 1;
            load.log_size = log.len() as u32;
            load.log_buf = log.as_mut_ptr() as u64;
        }
        // One byte less than there is room for: the name ends with a zero.
        let room = load.prog_name.len() - 1;
        for (to, from) in load.prog_name[..room].iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        sys::open(bpf_cmd::BPF_PROG_LOAD, &mut attr)
    }
}

/// Makes a map. What the object says of its types is left out: it is of use to those who print maps.
fn make(name: &str, definition: &aya_obj::Map) -> Result<MapData> {
    let kind = definition.map_type();
    let value_bytes = if kind == bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32 {
        0
    } else {
        definition.value_size()
    };
    let plain = aya_obj::Map::new_from_params(
        kind,
        definition.key_size(),
        value_bytes,
        definition.max_entries(),
        definition.map_flags(),
    );
    let map = MapData::create(plain, name, None)?;
    if !definition.data().is_empty() {
        fill(&map, definition.data()).context("cannot write what it begins with")?;
    }
    Ok(map)
}

/// Writes the only value of a map that stands for a section of data.
fn fill(map: &MapData, value: &[u8]) -> std::io::Result<()> {
    let key: u32 = 0;
    let mut attr = sys::attr();
    attr.__bindgen_anon_2.map_fd = map.fd().as_fd().as_raw_fd().cast_unsigned();
    attr.__bindgen_anon_2.key = (&raw const key) as u64;
    attr.__bindgen_anon_2.__bindgen_anon_1.value = value.as_ptr() as u64;
    sys::tell(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr)
}

/// The error of a refused program: the cause, and the last lines of the verifier's log.
fn refused(name: &str, error: &std::io::Error, log: &str) -> anyhow::Error {
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    anyhow!("the kernel refused program {name}: {error}\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_the_end_is_told() {
        let lines: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
        let log = lines.join("\n") + "\n";
        let error = std::io::Error::from_raw_os_error(nix::libc::EACCES);
        let told = refused("site", &error, &log).to_string();
        assert!(
            told.starts_with("the kernel refused program site: Permission denied"),
            "{told}"
        );
        assert!(
            told.contains("line 80\n") && told.ends_with("line 99"),
            "{told}"
        );
        assert!(!told.contains("line 79"), "{told}");
    }
}
