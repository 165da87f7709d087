//! Attaching a USDT site, with its semaphore raised by the kernel.
//!
//! Aya has no way to name a semaphore (`ref_ctr_offset`), so the perf event and the link to it are made here. The kernel
//! counts the semaphore up in every process that maps the file, also in those that map it later, and down again when the
//! event goes: by our drop, or with our descriptors however we die.

use std::ffi::CString;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use aya::programs::UProbe;
use aya_obj::generated::{
    PERF_FLAG_FD_CLOEXEC, bpf_attach_type, bpf_attr, bpf_cmd, perf_event_attr,
};
use nix::libc;

/// Where the kernel tells the type of uprobe events.
const EVENT_TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// Bit of the event's `config` from which on the semaphore's file offset stands. (Told in `format/ref_ctr_offset` of the same
/// folder as "config:32-63" since Linux 4.20.)
const SEMAPHORE_SHIFT: u32 = 32;

/// An attached site. The link goes before the event.
pub(super) struct UsdtLink {
    _link: OwnedFd,
    _event: OwnedFd,
}

/// Attaches the program to a file offset under the site's cookie, for every process that maps the file, and raises the
/// semaphore at another offset of the file.
pub(super) fn attach(
    program: &UProbe,
    cookie: u16,
    file: &Path,
    offset: u64,
    semaphore_offset: u64,
) -> Result<UsdtLink> {
    let what = || {
        format!(
            "cannot attach site {cookie} at offset {offset:#x} of {} with its semaphore at {semaphore_offset:#x}",
            file.display()
        )
    };
    let program = program.fd().context("program site is not loaded")?;
    let event = open_event(file, offset, semaphore_offset).with_context(what)?;
    let link = create_link(
        program.as_fd().as_raw_fd(),
        event.as_raw_fd(),
        u64::from(cookie),
    )
    .with_context(what)?;
    Ok(UsdtLink {
        _link: link,
        _event: event,
    })
}

/// A perf event that fires whenever any process passes the offset.
fn open_event(file: &Path, offset: u64, semaphore_offset: u64) -> Result<OwnedFd> {
    let kind = fs::read_to_string(EVENT_TYPE).with_context(|| {
        format!("cannot read {EVENT_TYPE}; the kernel must have CONFIG_UPROBE_EVENTS, and sysfs be mounted")
    })?;
    let kind = kind
        .trim()
        .parse()
        .with_context(|| format!("{EVENT_TYPE} has no number"))?;
    ensure!(
        semaphore_offset < 1 << 32,
        "the kernel takes semaphores in the first 4 GiB of a file only"
    );
    let path = CString::new(file.as_os_str().as_bytes()).context("the path has a zero byte")?;
    // SAFETY: the type is plain numbers, of which all zeros is a value.
    let mut attr: perf_event_attr = unsafe { mem::zeroed() };
    attr.type_ = kind;
    attr.size = u32::try_from(size_of::<perf_event_attr>()).context("perf_event_attr grew")?;
    attr.config = semaphore_offset << SEMAPHORE_SHIFT;
    attr.__bindgen_anon_3.config1 = path.as_ptr() as u64;
    attr.__bindgen_anon_4.config2 = offset;
    let (every_process, cpu, group): (libc::pid_t, libc::c_int, libc::c_int) = (-1, 0, -1);
    // SAFETY: `attr` and `path` outlive the call, and `attr.size` is the size of `attr`.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            every_process,
            cpu,
            group,
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
