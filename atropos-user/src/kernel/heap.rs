//! Keeps what the start needs for a moment out of the memory that stays.

/// Returns free pages of the heap. Reading a server's symbols takes some megabytes for a moment, which the C library would
/// keep for ever.
pub fn give_back_heap() {
    // SAFETY: `malloc_trim` takes no pointer and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}
