//! The probe config from outside: what it accepts, what it refuses and how it says so.

#[cfg(test)]
mod any_text;
#[cfg(test)]
mod expressions;
#[cfg(test)]
mod extending;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod objectives;
#[cfg(test)]
mod presets;
