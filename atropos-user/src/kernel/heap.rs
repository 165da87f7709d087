//! Gives memory back to the kernel after the start.

/// Returns free pages of the heap. Reading a server's symbols and the kernel's types takes some 15 MB for a moment, which
/// the C library would keep for ever.
pub fn give_back_heap() {
    // SAFETY: `malloc_trim` takes no pointer and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}
