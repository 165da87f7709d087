//! What people see.

pub mod check;
pub mod why;
