//! What people see.

pub mod why;
