//! Attaching one site by hand: aya has no way to have the kernel raise a semaphore for it.
//!
//! The kernel counts a semaphore (`ref_ctr_offset`) up in every process that maps the file, also in those that map it later,
//! and down again when the event goes: by our drop, or with our descriptors however we die.

use std::ffi::CString;
use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::sys::{self, EventLink};

/// Where the kernel tells the type of uprobe events.
const EVENT_TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// Bit of the event's `config` from which on the semaphore's file offset stands. (Told in `format/ref_ctr_offset` of the same
/// folder as "config:32-63" since Linux 4.20.)
const SEMAPHORE_SHIFT: u32 = 32;

/// What to attach.
pub(super) struct Spot<'a> {
    /// Number that the program is told.
    pub(super) cookie: u16,
    /// File, as a path for us.
    pub(super) file: &'a Path,
    /// Offset in the file.
    pub(super) offset: u64,
    /// Offset of the semaphore in the file.
    pub(super) semaphore_offset: Option<u64>,
    /// The one process that counts; without it every process that maps the file.
    pub(super) pid: Option<u32>,
}

/// Attaches a program.
pub(super) fn attach(program: BorrowedFd<'_>, spot: &Spot<'_>) -> Result<EventLink> {
    let what = || {
        let semaphore = spot
            .semaphore_offset
            .map(|offset| format!(" with its semaphore at {offset:#x}"))
            .unwrap_or_default();
        format!(
            "cannot attach site {} at offset {:#x} of {}{semaphore}",
            spot.cookie,
            spot.offset,
            spot.file.display()
        )
    };
    let event = open_event(spot).with_context(what)?;
    EventLink::new(program, event, spot.cookie.into()).with_context(what)
}

/// A perf event that fires whenever a process that counts passes the offset.
fn open_event(spot: &Spot<'_>) -> Result<OwnedFd> {
    let kind = fs::read_to_string(EVENT_TYPE).with_context(|| {
        format!("cannot read {EVENT_TYPE}; the kernel must have CONFIG_UPROBE_EVENTS, and sysfs be mounted")
    })?;
    let kind = kind
        .trim()
        .parse()
        .with_context(|| format!("{EVENT_TYPE} has no number"))?;
    let semaphore_offset = spot.semaphore_offset.unwrap_or(0);
    ensure!(
        semaphore_offset < 1 << 32,
        "the kernel takes semaphores in the first 4 GiB of a file only"
    );
    let path =
        CString::new(spot.file.as_os_str().as_bytes()).context("the path has a zero byte")?;
    let mut attr = sys::event_attr();
    attr.type_ = kind;
    attr.config = semaphore_offset << SEMAPHORE_SHIFT;
    attr.__bindgen_anon_3.config1 = path.as_ptr() as u64;
    attr.__bindgen_anon_4.config2 = spot.offset;
    let process = spot
        .pid
        .map(TryInto::try_into)
        .transpose()
        .context("no process has that number")?;
    sys::open_event(&attr, process)
}
