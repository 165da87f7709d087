//! The kernel half of Atropos: six programs that know mechanisms and operations, never applications.
//!
//! [`site`] runs at every probed address; the cookie names the [`SiteSpec`](atropos_common::site::SiteSpec) that says what
//! passing it means. [`order`] runs only where and while an order waits for the thread that passes, [`waking`] only while
//! somebody asks who wakes whom. [`task_exit`] and [`task_new`] keep the set of watched processes true. [`nothing`] is what the
//! others are measured by. No program loops over anything but a constant, allocates, or touches a process that is not in `SCOPE`.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(
    internal_features,
    reason = "atomic_xadd is the only atomic that the BPF target offers"
)]
#![allow(
    clippy::inline_always,
    reason = "one program, one function: calls would cost stack, of which there are 512 bytes, and verifier states"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "the shape of an entry function is the macro's"
)]
#![allow(
    clippy::needless_borrows_for_generic_args,
    reason = "keys and values go to the kernel by address; a copy would cost stack"
)]

mod args;
mod counters;
mod maps;
mod numbers;
mod ops;
mod orders;
mod ring;
mod tasks;
mod usage;
mod wakes;

use aya_ebpf::macros::{raw_tracepoint, tracepoint, uprobe};
use aya_ebpf::programs::{ProbeContext, RawTracePointContext, TracePointContext};

/// A probed address was passed.
#[uprobe]
fn site(ctx: ProbeContext) {
    let _ = ops::pass(&ctx);
}

/// A place was passed where a thread finds the order that waits for it.
#[uprobe]
fn order(ctx: ProbeContext) {
    let _ = orders::find(&ctx);
}

/// What a probe costs by itself, for a benchmark; the agent never loads it.
#[uprobe]
fn nothing(_ctx: ProbeContext) {}

/// `sched_process_exit`: a thread is about to go; `current` is that thread.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn task_exit(_ctx: RawTracePointContext) {
    let _ = tasks::exit();
}

/// `task:task_newtask`: a thread or process was made; `current` is its parent.
#[tracepoint]
fn task_new(ctx: TracePointContext) {
    let _ = tasks::new(&ctx);
}

/// `sched:sched_waking`: the current thread wakes another.
#[tracepoint]
fn waking(ctx: TracePointContext) {
    let _ = wakes::waking(&ctx);
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Never reached: the programs have no panicking path, and a surviving one would not verify.
    loop {}
}

/// The kernel wants a GPL-compatible licence for the helpers that read memory.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
