//! A simulated server under simulated load, and controllers that try to keep it serving.
//!
//! In: scenarios (files), controllers (by name) and seeds. Out: what the innocents got, as a table, JSON or a plot. The
//! engine under test is the very code that the agent runs, driven by the same inputs; nothing here reads a clock.

mod controllers;
mod library;
mod measure;
mod plan;
mod plot;
mod run;
mod scenario;
mod stats;
mod study;
mod table;
mod view;
mod world;

pub mod cli;
pub mod hindsight;
