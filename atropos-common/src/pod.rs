//! The shared types may be copied to and from kernel maps byte by byte.

use crate::record::{OpenKey, OpenValue, SessionKey, SessionValue, Totals};
use crate::scope::Scope;
use crate::site::SiteSpec;

// SAFETY: each type is `repr(C)`, made of integers only, has no implicit padding (sizes are asserted beside the types),
// and every bit pattern is a value of it.
mod imp {
    use super::*;
    unsafe impl aya::Pod for SiteSpec {}
    unsafe impl aya::Pod for OpenKey {}
    unsafe impl aya::Pod for OpenValue {}
    unsafe impl aya::Pod for SessionKey {}
    unsafe impl aya::Pod for SessionValue {}
    unsafe impl aya::Pod for Totals {}
    unsafe impl aya::Pod for Scope {}
}
