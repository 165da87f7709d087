//! Argument expressions: a base register, then at most [`MAX_STEPS`] steps of add and dereference.

use atropos_common::limits::MAX_STEPS;
use atropos_common::site::{ArgSpec, Base};
use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::programs::ProbeContext;

/// The values of a site's expressions, and whether every page they read was in memory.
pub(crate) struct Arguments<'a> {
    ctx: &'a ProbeContext,
    /// Process id (high half) and thread id, as the target counts them; 0 if unknown.
    ids: u64,
    /// Every value so far is what the target has.
    pub(crate) known: bool,
}

impl<'a> Arguments<'a> {
    #[inline(always)]
    pub(crate) fn of(ctx: &'a ProbeContext, ids: u64) -> Self {
        Self {
            ctx,
            ids,
            known: ids != 0,
        }
    }

    /// The current thread, as the target counts them.
    #[inline(always)]
    pub(crate) fn tid(&self) -> u32 {
        self.ids as u32
    }

    /// The value of an expression; 0, and `known` becomes false, if it reads a page that is not in memory.
    ///
    /// Failure is a flag and not an `Option`, because the verifier refuses the undefined payload of a `None` that the
    /// compiler moves around.
    #[inline(always)]
    pub(crate) fn eval(&mut self, spec: &ArgSpec) -> u64 {
        let mut value = base(self.ctx, self.ids, spec.base);
        for step in 0..MAX_STEPS {
            if step >= spec.steps as usize {
                break;
            }
            value = value.wrapping_add(i64::from(spec.add[step]) as u64);
            if spec.deref & (1 << step) != 0 {
                let last = step + 1 == spec.steps as usize;
                value = self.load(value, if last { spec.size } else { 8 });
            }
        }
        narrow(value, spec.size)
    }

    /// `size` bytes at a user address, zero-extended.
    #[inline(always)]
    fn load(&mut self, address: u64, size: u8) -> u64 {
        let size = match size & !ArgSpec::SIGNED {
            1 => 1,
            2 => 2,
            4 => 4,
            _ => 8,
        };
        let mut value = 0_u64;
        // SAFETY: at most 8 bytes are written to `value`; the helper checks the address itself. x86-64 is little-endian, so
        // a short read fills the low bytes.
        let result =
            unsafe { bpf_probe_read_user((&raw mut value).cast(), size, address as *const _) };
        if result != 0 {
            self.known = false;
        }
        value
    }
}

/// The low bytes of a value, widened again by zeros or by its sign. Shifts, not branches: each branch here would be walked by
/// the verifier for every expression of a site.
#[inline(always)]
fn narrow(value: u64, size: u8) -> u64 {
    let shift = u32::from(8_u8.wrapping_sub(size & !ArgSpec::SIGNED) & 7) * 8;
    let high = value << shift;
    if size & ArgSpec::SIGNED != 0 {
        (high.cast_signed() >> shift).cast_unsigned()
    } else {
        high >> shift
    }
}

/// Where an expression starts.
#[inline(always)]
fn base(ctx: &ProbeContext, ids: u64, base: u8) -> u64 {
    // SAFETY: the kernel passes a valid `pt_regs` to every uprobe program.
    let regs = unsafe { &*ctx.regs };
    match base {
        b if b == Base::Arg0 as u8 => regs.rdi,
        b if b == Base::Arg1 as u8 => regs.rsi,
        b if b == Base::Arg2 as u8 => regs.rdx,
        b if b == Base::Arg3 as u8 => regs.rcx,
        b if b == Base::Arg4 as u8 => regs.r8,
        b if b == Base::Arg5 as u8 => regs.r9,
        b if b == Base::Ret as u8 => regs.rax,
        b if b == Base::Stack as u8 => regs.rsp,
        b if b == Base::Rbx as u8 => regs.rbx,
        b if b == Base::Rbp as u8 => regs.rbp,
        b if b == Base::R10 as u8 => regs.r10,
        b if b == Base::R11 as u8 => regs.r11,
        b if b == Base::R12 as u8 => regs.r12,
        b if b == Base::R13 as u8 => regs.r13,
        b if b == Base::R14 as u8 => regs.r14,
        b if b == Base::R15 as u8 => regs.r15,
        b if b == Base::Site as u8 => regs.rip,
        b if b == Base::Tid as u8 => ids & 0xffff_ffff,
        b if b == Base::Pid as u8 => ids >> 32,
        _ => 0,
    }
}

/// Cookie of the site that was passed.
#[inline(always)]
pub(crate) fn cookie(ctx: &ProbeContext) -> u64 {
    // SAFETY: the context pointer is the one that the kernel passed to this program.
    unsafe { aya_ebpf::helpers::bpf_get_attach_cookie(ctx.as_ptr()) }
}
