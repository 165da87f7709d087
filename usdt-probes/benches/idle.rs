//! What a mark costs while nobody watches: the same work with and without marks, in interleaved pairs.
//!
//! The work is a short chain of multiplications (about as long as a hash of one word), once bare, once with a mark of four
//! arguments behind it; then nothing at all, so that a mark has nothing to hide behind. Printed is the median of the pairs'
//! differences with the middle half of them as the spread.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and prints"
)]

use std::hint::black_box;
use std::time::Instant;

use usdt_probes::mark;

const PASSES: u64 = 20_000_000;
const PAIRS: usize = 25;

/// The work that both variants do.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "both loops must have the work in line"
)]
fn work(state: u64) -> u64 {
    let mixed = (state ^ (state >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[inline(never)]
fn bare(seed: u64) -> u64 {
    let mut state = seed;
    for _ in 0..PASSES {
        state = black_box(work(state));
    }
    state
}

#[inline(never)]
fn marked(seed: u64) -> u64 {
    let mut state = seed;
    for pass in 0..PASSES {
        state = black_box(work(state));
        mark::acquire(state, 3, pass, 1);
    }
    state
}

#[inline(never)]
fn nothing(seed: u64) -> u64 {
    for pass in 0..PASSES {
        black_box(pass);
    }
    seed
}

#[inline(never)]
fn nothing_marked(seed: u64) -> u64 {
    for pass in 0..PASSES {
        black_box(pass);
        mark::acquire(seed, 3, pass, 1);
    }
    seed
}

/// Nanoseconds a pass.
fn time(run: fn(u64) -> u64) -> f64 {
    let begun = Instant::now();
    black_box(run(black_box(1)));
    begun.elapsed().as_secs_f64() * 1e9 / PASSES as f64
}

/// Measures one pair of variants and prints what the mark adds.
fn compare(what: &str, bare: fn(u64) -> u64, marked: fn(u64) -> u64) {
    let (mut without, mut with, mut difference) = (Vec::new(), Vec::new(), Vec::new());
    time(bare);
    time(marked);
    for pair in 0..PAIRS {
        // Neither variant is always the second.
        let (a, b) = if pair % 2 == 0 {
            let a = time(bare);
            (a, time(marked))
        } else {
            let b = time(marked);
            (time(bare), b)
        };
        without.push(a);
        with.push(b);
        difference.push(b - a);
    }
    let quartile = |values: &mut Vec<f64>, quarter: usize| {
        values.sort_by(f64::total_cmp);
        values[(values.len() - 1) * quarter / 4]
    };
    println!(
        "{what}, {PAIRS} pairs of {PASSES} passes: {:.2} ns without a mark, {:.2} ns with one",
        quartile(&mut without, 2),
        quartile(&mut with, 2)
    );
    println!(
        "    a mark that nobody watches: {:+.2} ns ({:+.2} to {:+.2})",
        quartile(&mut difference, 2),
        quartile(&mut difference, 1),
        quartile(&mut difference, 3)
    );
}

fn main() {
    compare("a little work", bare, marked);
    compare("no work", nothing, nothing_marked);
}
