//! The only home of aya and of `unsafe`.
