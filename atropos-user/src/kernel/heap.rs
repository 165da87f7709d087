//! Keeps what the start needs for a moment out of the memory that stays.

use std::panic::resume_unwind;

/// Returns free pages of the heap. Reading a server's symbols and the kernel's types takes some 25 MB for a moment, which
/// the C library would keep for ever.
pub fn give_back_heap() {
    // SAFETY: `malloc_trim` takes no pointer and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Does work that needs much memory for a moment on a thread of its own. The C library allocates for each thread elsewhere:
/// what lives on is not scattered over the gaps that this work leaves behind, which would bring page after page of them back.
pub(super) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let done = scope.spawn(work).join();
        done.unwrap_or_else(|panic| resume_unwind(panic))
    })
}
