//! The shared types may be copied to and from kernel maps byte by byte.

use crate::namespace::PidNamespace;
use crate::order::{OrderKey, OrderValue};
use crate::record::{
    OpenKey, OpenValue, SessionKey, SessionValue, UnitKey, UnitValue, UsageKey, UsageValue,
};
use crate::scope::Scope;
use crate::site::SiteSpec;
use crate::wake::{WakeKey, WakeValue};

macro_rules! pod {
    ($($shared:ty),+) => {
        $(
            // SAFETY: each type is `repr(C)`, made of integers only, has no padding that is not named (sizes are
            // asserted beside the types), and every bit pattern is a value of it.
            unsafe impl aya::Pod for $shared {}
        )+
    };
}

pod!(
    SiteSpec,
    OpenKey,
    OpenValue,
    SessionKey,
    SessionValue,
    UsageKey,
    UsageValue,
    UnitKey,
    UnitValue,
    Scope,
    PidNamespace,
    OrderKey,
    OrderValue,
    WakeKey,
    WakeValue
);
