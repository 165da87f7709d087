//! The few calls of the kernel that are made by hand, and the descriptors that they give.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use anyhow::{Context as _, Result};
use aya_obj::generated::{
    PERF_FLAG_FD_CLOEXEC, bpf_attach_type, bpf_attr, bpf_cmd, bpf_prog_info, perf_event_attr,
};
use nix::libc;

/// An attribute block of which everything that is not said is zero, as the kernel wants it.
pub(super) fn attr() -> bpf_attr {
    // SAFETY: the type is a union of plain numbers, of which all zeros is a value.
    unsafe { mem::zeroed() }
}

/// A call that gives a descriptor.
pub(super) fn open(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    owned(call(command, attr))
}

/// A call that gives nothing.
pub(super) fn tell(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<()> {
    match call(command, attr) {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn call(command: bpf_cmd, attr: &mut bpf_attr) -> libc::c_long {
    // SAFETY: whoever fills `attr` keeps what it points to for the time of the call; the size is its own.
    unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            &raw mut *attr,
            size_of::<bpf_attr>(),
        )
    }
}

/// The descriptor that a system call gave, or its error.
pub(super) fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A perf event without a purpose yet.
pub(super) fn event_attr() -> perf_event_attr {
    // SAFETY: the type is plain numbers, of which all zeros is a value.
    let mut attr: perf_event_attr = unsafe { mem::zeroed() };
    attr.size = size_of::<perf_event_attr>() as u32;
    attr
}

/// Opens a perf event: of one process on every CPU or, without one, of every process as seen by one CPU. A program at the
/// event runs on whatever CPU all the same.
pub(super) fn open_event(attr: &perf_event_attr, process: Option<libc::pid_t>) -> Result<OwnedFd> {
    let (pid, cpu): (libc::pid_t, libc::c_int) = process.map_or((-1, 0), |pid| (pid, -1));
    let no_group: libc::c_int = -1;
    // SAFETY: whoever fills `attr` keeps what it points to for the time of the call; `attr.size` is its size.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attr,
            pid,
            cpu,
            no_group,
            libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC),
        )
    };
    owned(fd).context("perf_event_open (are CAP_PERFMON and CAP_SYS_ADMIN there?)")
}

/// A program at an event; dropping it detaches the program. The link goes before the event, where there is one apart from it.
pub(super) struct EventLink {
    _link: OwnedFd,
    _event: Option<OwnedFd>,
}

impl From<OwnedFd> for EventLink {
    fn from(link: OwnedFd) -> Self {
        Self {
            _link: link,
            _event: None,
        }
    }
}

impl EventLink {
    /// Runs the program whenever the event fires, and tells it the cookie.
    pub(super) fn new(program: BorrowedFd<'_>, event: OwnedFd, cookie: u64) -> Result<Self> {
        let mut attr = attr();
        attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
        attr.link_create.__bindgen_anon_2.target_fd = event.as_raw_fd().cast_unsigned();
        attr.link_create.attach_type = bpf_attach_type::BPF_PERF_EVENT as u32;
        attr.link_create.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
        let link = open(bpf_cmd::BPF_LINK_CREATE, &mut attr)
            .context("BPF_LINK_CREATE (Linux 5.15 or newer is needed)")?;
        Ok(Self {
            _link: link,
            _event: Some(event),
        })
    }
}

/// What the kernel knows of a loaded program.
pub(super) fn program_info(program: BorrowedFd<'_>) -> io::Result<bpf_prog_info> {
    // SAFETY: the type is plain numbers, of which all zeros is a value.
    let mut info: bpf_prog_info = unsafe { mem::zeroed() };
    let mut attr = attr();
    attr.info.bpf_fd = program.as_raw_fd().cast_unsigned();
    attr.info.info = (&raw mut info) as u64;
    attr.info.info_len = size_of::<bpf_prog_info>() as u32;
    tell(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info)
}
