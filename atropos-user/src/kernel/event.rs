//! Attaching a site by hand, where aya has no way to say it: with a semaphore raised by the kernel, or by a program of which
//! we have the descriptor alone.
//!
//! The kernel counts a semaphore (`ref_ctr_offset`) up in every process that maps the file, also in those that map it later,
//! and down again when the event goes: by our drop, or with our descriptors however we die.

use std::ffi::CString;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use aya_obj::generated::{
    PERF_FLAG_FD_CLOEXEC, bpf_attach_type, bpf_attr, bpf_cmd, perf_event_attr,
};
use nix::libc;

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

/// An attached site. The link goes before the event.
pub(super) struct EventLink {
    _link: OwnedFd,
    _event: OwnedFd,
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
    let link = create_link(program.as_raw_fd(), event.as_raw_fd(), spot.cookie.into())
        .with_context(what)?;
    Ok(EventLink {
        _link: link,
        _event: event,
    })
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
    // SAFETY: the type is plain numbers, of which all zeros is a value.
    let mut attr: perf_event_attr = unsafe { mem::zeroed() };
    attr.type_ = kind;
    attr.size = u32::try_from(size_of::<perf_event_attr>()).context("perf_event_attr grew")?;
    attr.config = semaphore_offset << SEMAPHORE_SHIFT;
    attr.__bindgen_anon_3.config1 = path.as_ptr() as u64;
    attr.__bindgen_anon_4.config2 = spot.offset;
    // Every process as seen by one CPU, or one process on every CPU: the breakpoint itself knows no CPU.
    let (pid, cpu): (libc::pid_t, libc::c_int) = match spot.pid {
        None => (-1, 0),
        Some(pid) => (pid.try_into().context("no process has that number")?, -1),
    };
    let no_group: libc::c_int = -1;
    // SAFETY: `attr` and `path` outlive the call, and `attr.size` is the size of `attr`.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            pid,
            cpu,
            no_group,
            libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC),
        )
    };
    owned(fd).context("perf_event_open (are CAP_PERFMON and CAP_SYS_ADMIN there?)")
}

/// A link that runs the program at the event, with the cookie.
fn create_link(program: RawFd, event: RawFd, cookie: u64) -> Result<OwnedFd> {
    // SAFETY: the type is a union of plain numbers, of which all zeros is a value.
    let mut attr: bpf_attr = unsafe { mem::zeroed() };
    attr.link_create.__bindgen_anon_1.prog_fd = program.cast_unsigned();
    attr.link_create.__bindgen_anon_2.target_fd = event.cast_unsigned();
    attr.link_create.attach_type = bpf_attach_type::BPF_PERF_EVENT as u32;
    attr.link_create.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    // SAFETY: `attr` outlives the call, and the size is its own.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            bpf_cmd::BPF_LINK_CREATE as libc::c_long,
            &raw mut attr,
            size_of::<bpf_attr>(),
        )
    };
    owned(fd).context("BPF_LINK_CREATE (Linux 5.15 or newer is needed)")
}

/// The descriptor that a system call gave, or its error.
pub(super) fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
