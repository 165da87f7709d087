//! One attached site.

use std::path::Path;

use atropos_common::site::SiteSpec;

use super::sys::EventLink;

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
    _link: EventLink,
}

impl From<EventLink> for SiteLink {
    fn from(link: EventLink) -> Self {
        Self { _link: link }
    }
}
