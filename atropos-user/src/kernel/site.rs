//! One attached site.

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context as _, Result};
use atropos_common::site::SiteSpec;
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};

use super::event::EventLink;

/// A site and what passing it means.
#[derive(Clone, Copy, Debug)]
pub struct SiteAt<'a> {
    /// Its cookie.
    pub cookie: u16,
    /// What passing it means.
    pub spec: SiteSpec,
    /// File.
    pub file: &'a Path,
    /// File offset.
    pub offset: u64,
    /// File offset of the semaphore that must be raised for it.
    pub semaphore_offset: Option<u64>,
}

/// An attached site, or several of one file; dropping it detaches the probes, which waits for the kernel (some milliseconds,
/// tens of them on a busy machine).
pub struct SiteLink {
    _link: Link,
}

/// How the site is attached.
enum Link {
    /// By aya.
    Plain { _link: UProbeLink },
    /// By hand.
    Event { _link: EventLink },
    /// By hand, many at once.
    Multi { _link: OwnedFd },
}

impl From<OwnedFd> for SiteLink {
    fn from(link: OwnedFd) -> Self {
        Self {
            _link: Link::Multi { _link: link },
        }
    }
}

impl From<EventLink> for SiteLink {
    fn from(link: EventLink) -> Self {
        Self {
            _link: Link::Event { _link: link },
        }
    }
}

/// Attaches the program to a file offset under the site's cookie, for every process that maps the file: the kernel half
/// checks the scope itself, so that forked children count at once.
pub(super) fn attach(
    program: &mut UProbe,
    cookie: u16,
    file: &Path,
    offset: u64,
) -> Result<SiteLink> {
    let point = UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(offset),
        cookie: Some(u64::from(cookie)),
    };
    let id = program
        .attach(point, file, UProbeScope::AllProcesses)
        .with_context(|| {
            format!(
                "cannot attach site {cookie} at offset {offset:#x} of {}",
                file.display()
            )
        })?;
    let link = program
        .take_link(id)
        .context("the kernel half lost a link it had just made")?;
    Ok(SiteLink {
        _link: Link::Plain { _link: link },
    })
}
