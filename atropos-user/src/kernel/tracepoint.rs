//! Attaching programs to the kernel's own tracepoints.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use anyhow::{Context as _, Result};
use aya_obj::generated::{bpf_cmd, perf_type_id};

use super::sys::{self, EventLink};

/// Where tracefs is mounted: at its own place, or where it was before Linux 4.1.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Attaches a program to a tracepoint whose record it reads; needs tracefs.
pub(super) fn attach(program: BorrowedFd<'_>, category: &str, name: &str) -> Result<EventLink> {
    let attach = || -> Result<EventLink> {
        let mut attr = sys::event_attr();
        attr.type_ = perf_type_id::PERF_TYPE_TRACEPOINT as u32;
        attr.config = id(category, name)?;
        let event = sys::open_event(&attr, None)?;
        EventLink::new(program, event, 0)
    };
    attach().with_context(|| format!("cannot attach to the tracepoint {category}:{name}"))
}

/// Attaches a program to a tracepoint of which it wants nothing but the moment.
pub(super) fn attach_raw(program: BorrowedFd<'_>, name: &CStr) -> Result<EventLink> {
    let mut attr = sys::attr();
    attr.raw_tracepoint.name = name.as_ptr() as u64;
    attr.raw_tracepoint.prog_fd = program.as_raw_fd().cast_unsigned();
    sys::open(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr)
        .map(EventLink::from)
        .with_context(|| format!("cannot attach to the tracepoint {}", name.to_string_lossy()))
}

/// The number by which the kernel knows a tracepoint.
fn id(category: &str, name: &str) -> Result<u64> {
    let text = TRACEFS
        .iter()
        .find_map(|root| fs::read_to_string(format!("{root}/events/{category}/{name}/id")).ok())
        .with_context(|| {
            format!(
                "cannot read events/{category}/{name}/id in {}; is tracefs mounted? (mount -t tracefs tracefs {})",
                TRACEFS.join(" or "),
                TRACEFS[0]
            )
        })?;
    text.trim()
        .parse()
        .with_context(|| format!("the number of {category}:{name} is none: {text:?}"))
}
