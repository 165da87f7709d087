//! The binary `atropos`.
fn main() {}
