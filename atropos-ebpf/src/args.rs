//! Argument expressions: a base register, then at most [`MAX_STEPS`] steps of add and dereference.

use atropos_common::limits::MAX_STEPS;
use atropos_common::site::{ArgSpec, Base};
use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_probe_read_user};
use aya_ebpf::programs::ProbeContext;

/// The value of an expression at this site, or `None` if a page it reads is not in memory.
#[inline(always)]
pub(crate) fn eval(ctx: &ProbeContext, spec: &ArgSpec) -> Option<u64> {
    let mut value = base(ctx, spec.base);
    for step in 0..MAX_STEPS {
        if step >= spec.steps as usize {
            break;
        }
        value = value.wrapping_add(i64::from(spec.add[step]) as u64);
        if spec.deref & (1 << step) != 0 {
            let last = step + 1 == spec.steps as usize;
            value = load(value, if last { spec.size } else { 8 })?;
        }
    }
    Some(value)
}

/// Where an expression starts.
#[inline(always)]
fn base(ctx: &ProbeContext, base: u8) -> u64 {
    // SAFETY: the kernel passes a valid `pt_regs` to every uprobe program.
    let regs = unsafe { &*ctx.regs };
    let pid_tgid = || bpf_get_current_pid_tgid();
    match base {
        b if b == Base::Arg0 as u8 => regs.rdi,
        b if b == Base::Arg1 as u8 => regs.rsi,
        b if b == Base::Arg2 as u8 => regs.rdx,
        b if b == Base::Arg3 as u8 => regs.rcx,
        b if b == Base::Arg4 as u8 => regs.r8,
        b if b == Base::Arg5 as u8 => regs.r9,
        b if b == Base::Ret as u8 => regs.rax,
        b if b == Base::Stack as u8 => regs.rsp,
        b if b == Base::Tid as u8 => pid_tgid() & 0xffff_ffff,
        b if b == Base::Pid as u8 => pid_tgid() >> 32,
        _ => 0,
    }
}

/// `size` bytes at a user address, zero-extended.
#[inline(always)]
fn load(address: u64, size: u8) -> Option<u64> {
    // SAFETY: the helper checks the address itself and fails on one that cannot be read.
    unsafe {
        match size {
            1 => bpf_probe_read_user(address as *const u8).ok().map(u64::from),
            2 => bpf_probe_read_user(address as *const u16).ok().map(u64::from),
            4 => bpf_probe_read_user(address as *const u32).ok().map(u64::from),
            _ => bpf_probe_read_user(address as *const u64).ok(),
        }
    }
}

/// Cookie of the site that was passed.
#[inline(always)]
pub(crate) fn cookie(ctx: &ProbeContext) -> u64 {
    // SAFETY: the context pointer is the one that the kernel passed to this program.
    unsafe { aya_ebpf::helpers::bpf_get_attach_cookie(ctx.as_ptr()) }
}
