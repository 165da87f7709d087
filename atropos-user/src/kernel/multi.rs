//! Many sites of one file by one link.
//!
//! A link for each site makes the kernel wait for each by itself: some grace periods of RCU when it goes, each tens of
//! milliseconds on a busy machine, in which the site is still passed and paid for. A link for many (`uprobe_multi`, Linux 6.6)
//! waits once. Aya has no such link, and the kernel gives one only to a program that was loaded for it, so the site program is
//! loaded here once more, over the same maps.

use std::collections::HashMap;
use std::ffi::CString;
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use aya::Ebpf;
use aya::maps::Map;
use aya_obj::Object;
use aya_obj::generated::{bpf_attach_type, bpf_attr, bpf_cmd, bpf_prog_type};
use nix::libc;

use super::event::owned;
use super::site::SiteLink;

/// The site program.
const PROGRAM: &str = "site";

/// The site program, loaded for links of many sites.
pub(super) struct MultiProgram {
    program: OwnedFd,
}

/// Sites that are said and not yet attached: attaching waits for the kernel, and may do so on any thread.
pub struct Prepared {
    pub(super) program: Arc<MultiProgram>,
    pub(super) files: Vec<(PathBuf, Vec<MultiSite>)>,
}

impl Prepared {
    /// Attaches them, those of one file by one link.
    ///
    /// # Errors
    /// When the kernel refuses one of them; then none of them stays.
    pub fn attach(self) -> Result<Vec<SiteLink>> {
        let links = self
            .files
            .iter()
            .map(|(file, sites)| self.program.attach(file, sites).map(SiteLink::from));
        links.collect()
    }
}

/// One site of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct MultiSite {
    pub(super) offset: u64,
    /// Of its semaphore; 0 for none.
    pub(super) semaphore_offset: u64,
    pub(super) cookie: u64,
}

impl MultiProgram {
    /// Loads it over the maps that were made for the same object.
    pub(super) fn load(object: &[u8], ebpf: &Ebpf) -> Result<Self> {
        let mut object = Object::parse(object).context("cannot read the kernel half")?;
        let fds: HashMap<&str, RawFd> = ebpf
            .maps()
            .filter_map(|(name, map)| Some((name, fd_of(map)?)))
            .collect();
        let maps: Vec<(String, RawFd, aya_obj::Map)> = object
            .maps
            .iter()
            .map(|(name, map)| {
                let fd = fds.get(name.as_str()).copied();
                let fd =
                    fd.with_context(|| format!("map {name} is of a type that is not known here"))?;
                Ok((name.clone(), fd, map.clone()))
            })
            .collect::<Result<_>>()?;
        let sections = object.functions.keys().map(|(index, _)| *index).collect();
        object
            .relocate_maps(
                maps.iter().map(|(name, fd, map)| (name.as_str(), *fd, map)),
                &sections,
            )
            .context("cannot put the maps into program site")?;
        object
            .relocate_calls(&sections)
            .context("cannot join the functions of program site")?;
        let program = object
            .programs
            .get(PROGRAM)
            .context("the kernel half has no program site")?;
        let function = object
            .functions
            .get(&program.function_key())
            .context("program site has no code")?;
        // SAFETY: the type is a union of plain numbers, of which all zeros is a value.
        let mut attr: bpf_attr = unsafe { mem::zeroed() };
        // SAFETY: writing to a member of a union of plain numbers.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        load.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
        load.expected_attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
        load.insns = function.instructions.as_ptr() as u64;
        load.insn_cnt = u32::try_from(function.instructions.len())?;
        load.license = program.license.as_ptr() as u64;
        for (to, from) in load.prog_name.iter_mut().zip(PROGRAM.bytes()) {
            *to = from.cast_signed();
        }
        let program = bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr).context(
            "BPF_PROG_LOAD of program site for many sites (Linux 6.6 or newer is needed)",
        )?;
        Ok(Self { program })
    }

    /// Attaches it to sites of one file, for every process that maps the file.
    pub(super) fn attach(&self, file: &Path, sites: &[MultiSite]) -> Result<OwnedFd> {
        let path = CString::new(file.as_os_str().as_bytes()).context("the path has a zero byte")?;
        let of = |number: fn(&MultiSite) -> u64| -> Vec<u64> { sites.iter().map(number).collect() };
        let (offsets, cookies) = (of(|site| site.offset), of(|site| site.cookie));
        let semaphores = of(|site| site.semaphore_offset);
        // SAFETY: the type is a union of plain numbers, of which all zeros is a value.
        let mut attr: bpf_attr = unsafe { mem::zeroed() };
        attr.link_create.__bindgen_anon_1.prog_fd =
            self.program.as_fd().as_raw_fd().cast_unsigned();
        attr.link_create.attach_type = bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32;
        // Field by field: the kernel wants the bytes behind the last one to be zero.
        // SAFETY: writing to members of a union of plain numbers.
        let link = unsafe { &mut attr.link_create.__bindgen_anon_3.uprobe_multi };
        link.path = path.as_ptr() as u64;
        link.offsets = offsets.as_ptr() as u64;
        link.ref_ctr_offsets = semaphores.as_ptr() as u64;
        link.cookies = cookies.as_ptr() as u64;
        link.cnt = u32::try_from(sites.len())?;
        bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr).with_context(|| {
            format!(
                "cannot attach {} sites of {} by one link",
                sites.len(),
                file.display()
            )
        })
    }
}

fn fd_of(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::RingBuf(data) => Some(data.fd().as_fd().as_raw_fd()),
        _ => None,
    }
}

/// A call that gives a descriptor.
fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> Result<OwnedFd> {
    // SAFETY: `attr` and everything that it points to outlive the call, and the size is its own.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            &raw mut *attr,
            size_of::<bpf_attr>(),
        )
    };
    Ok(owned(fd)?)
}
