//! What a site means: the value of the `SITES` map.

use crate::limits::MAX_STEPS;

/// Where an argument expression starts: a register of x86-64 (those of the System V calling convention by their role), or what
/// the kernel says of the current thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Base {
    /// No expression: the value is 0.
    None = 0,
    /// First argument register (`rdi`).
    Arg0 = 1,
    /// Second argument register (`rsi`).
    Arg1 = 2,
    /// Third argument register (`rdx`).
    Arg2 = 3,
    /// Fourth argument register (`rcx`).
    Arg3 = 4,
    /// Fifth argument register (`r8`).
    Arg4 = 5,
    /// Sixth argument register (`r9`).
    Arg5 = 6,
    /// Return register (`rax`).
    Ret = 7,
    /// Kernel thread id of the current thread.
    Tid = 8,
    /// Process id (thread group id) of the current thread.
    Pid = 9,
    /// Stack pointer (`rsp`): stack arguments and the return address.
    Stack = 10,
    /// `rbx`.
    Rbx = 11,
    /// `rbp`.
    Rbp = 12,
    /// `r10`.
    R10 = 13,
    /// `r11`.
    R11 = 14,
    /// `r12`.
    R12 = 15,
    /// `r13`.
    R13 = 16,
    /// `r14`.
    R14 = 17,
    /// `r15`.
    R15 = 18,
    /// Address of the site itself (`rip`): what lies at a fixed distance from the code, wherever that was loaded.
    Site = 19,
}

/// An argument expression compiled to bounded steps: `value = base; for step: value += add; if deref: value = *value`. At the
/// end only the low `size` bytes count; those above are zero, or copies of the sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ArgSpec {
    /// Displacement added before each step's dereference.
    pub add: [i32; MAX_STEPS],
    /// A [`Base`].
    pub base: u8,
    /// How many steps of `add` count.
    pub steps: u8,
    /// Bit i: step i dereferences after adding.
    pub deref: u8,
    /// Bytes of the value, 1, 2, 4 or 8, with or without [`ArgSpec::SIGNED`]. A dereference that is the last step reads that
    /// many; all others read 8.
    pub size: u8,
}

impl ArgSpec {
    /// In `size`: the value is signed, its sign fills the bytes above.
    pub const SIGNED: u8 = 0x80;

    /// The expression whose value is 0.
    pub const NONE: Self = Self {
        add: [0; MAX_STEPS],
        base: Base::None as u8,
        steps: 0,
        deref: 0,
        size: 8,
    };
}

/// How a comparison that guards a site is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cond {
    /// No guard.
    Always = 0,
    /// The guard expression equals the value.
    Equal = 1,
    /// The guard expression differs from the value.
    NotEqual = 2,
}

/// What one site means. 96 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SiteSpec {
    /// Who passes the site: the session key.
    pub session: ArgSpec,
    /// Which instance of the resource.
    pub instance: ArgSpec,
    /// Mode, amount or progress, by operation.
    pub value: ArgSpec,
    /// Guard expression: the site counts only if it compares as [`SiteSpec::cond`] says.
    pub guard: ArgSpec,
    /// What the guard is compared with.
    pub guard_value: u64,
    /// Index of the resource in the preset.
    pub resource: u16,
    /// An [`crate::op::Op`].
    pub op: u8,
    /// A [`Cond`].
    pub cond: u8,
    /// [`SiteSpec::EMIT`] and other flags.
    pub flags: u32,
}

impl SiteSpec {
    /// Send each passing to the ring, not only to the maps.
    pub const EMIT: u32 = 1;
    /// The slot is in use.
    pub const ACTIVE: u32 = 2;
    /// Keep the wait or hold that begins or ends here in the map `OPEN`: nobody else can tell of it.
    pub const KEEP: u32 = 4;
}

const _: () = assert!(core::mem::size_of::<ArgSpec>() == 20);
const _: () = assert!(core::mem::size_of::<SiteSpec>() == 96);
