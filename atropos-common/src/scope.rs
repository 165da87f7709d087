//! Which processes count: the value of the `SCOPE` map, keyed by process id.

/// How a process came into scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Scope {
    /// [`Scope::FOLLOW_FORKS`] and other flags.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

impl Scope {
    /// Children of this process come into scope as well.
    pub const FOLLOW_FORKS: u32 = 1;

    /// A process without its children.
    pub const ALONE: Self = Self {
        flags: 0,
        reserved: 0,
    };
}
