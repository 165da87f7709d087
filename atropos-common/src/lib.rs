//! The contract between the kernel half and the agent.
//!
//! Everything here is `repr(C)`, has no padding that is not named, and means the same on both sides.
//! The kernel half knows mechanisms (sites, arguments, operations), never applications: what a site
//! means is said by the [`SiteSpec`] that the agent puts into the `SITES` map under the site's cookie.
#![no_std]

pub mod histogram;
pub mod limits;
pub mod namespace;
pub mod op;
pub mod order;
pub mod record;
pub mod scope;
pub mod site;
pub mod wake;

#[cfg(feature = "user")]
mod pod;
