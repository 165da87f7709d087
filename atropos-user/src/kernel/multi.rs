//! Many sites of one file by one link.
//!
//! A link for each site makes the kernel wait for each by itself: some grace periods of RCU when it goes, each tens of
//! milliseconds on a busy machine, in which the site is still passed and paid for. A link for many (`uprobe_multi`, Linux 6.6)
//! waits once. Aya has no such link, and the kernel gives one only to a program that was loaded for it.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use aya_obj::generated::{bpf_attach_type, bpf_cmd};

use super::site::SiteLink;
use super::sys::{self, EventLink};

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
    /// The site program, loaded for links of many sites.
    pub(super) fn new(program: OwnedFd) -> Self {
        Self { program }
    }

    /// Attaches it to sites of one file, for every process that maps the file.
    pub(super) fn attach(&self, file: &Path, sites: &[MultiSite]) -> Result<EventLink> {
        let path = CString::new(file.as_os_str().as_bytes()).context("the path has a zero byte")?;
        let of = |number: fn(&MultiSite) -> u64| -> Vec<u64> { sites.iter().map(number).collect() };
        let (offsets, cookies) = (of(|site| site.offset), of(|site| site.cookie));
        let semaphores = of(|site| site.semaphore_offset);
        let mut attr = sys::attr();
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
        let link = sys::open(bpf_cmd::BPF_LINK_CREATE, &mut attr).with_context(|| {
            format!(
                "cannot attach {} sites of {} by one link",
                sites.len(),
                file.display()
            )
        })?;
        Ok(link.into())
    }
}
