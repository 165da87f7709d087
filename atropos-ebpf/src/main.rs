//! Under construction.
#![no_std]
#![no_main]
