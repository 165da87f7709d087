//! The probe config from outside: what it accepts, what it refuses and how it says so.

mod any_text;
mod expressions;
mod extending;
mod mistakes;
mod objectives;
mod presets;
