//! One attached site.

use std::path::Path;

use anyhow::{Context as _, Result};
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};

use super::event::EventLink;

/// An attached site; dropping it detaches the probe, which waits for an RCU grace period (some milliseconds).
pub struct SiteLink {
    _link: Link,
}

/// How the site is attached.
enum Link {
    /// By aya.
    Plain { _link: UProbeLink },
    /// By hand.
    Event { _link: EventLink },
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
