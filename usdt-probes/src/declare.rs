//! What an application says of itself once, in its binary and not while it runs: its resources, and the signals that end its
//! work. An agent that comes late knows it all the same.
//!
//! Each declaration is a USDT note of provider `atropos` without a site; it takes no memory and no time in the program.
//!
//! ```
//! usdt_probes::resource!(0, LOCK, "table_lock");
//! usdt_probes::resource!(1, QUEUE, "workers");
//! usdt_probes::cancels_task!(SIGUSR1);
//! usdt_probes::ends_session!(SIGUSR2);
//! # fn main() {}
//! ```

/// Declares a resource: the number that the marks give it, its kind (`LOCK`, `QUEUE`, `MEMORY`, `CPU` or `IO`) and its name, made
/// of letters, digits and single `_`. At the level of items.
#[macro_export]
macro_rules! resource {
    ($number:literal, $kind:ident, $name:literal) => {
        $crate::declaration!(concat!(
            "resource__",
            $number,
            "__",
            stringify!($kind),
            "__",
            $name
        ));
    };
}

/// Declares the signal that, sent to the thread that began a task, cancels the task and leaves its session. The handler must do
/// nothing to a thread that is between two tasks. At the level of items.
#[macro_export]
macro_rules! cancels_task {
    ($signal:ident) => {
        $crate::declaration!(concat!("cancel__task__", stringify!($signal)));
    };
}

/// Declares the signal that, sent to the thread that began a session's last task, ends the session with everything it holds. At
/// the level of items.
#[macro_export]
macro_rules! ends_session {
    ($signal:ident) => {
        $crate::declaration!(concat!("cancel__session__", stringify!($signal)));
    };
}

/// A note without a site.
#[doc(hidden)]
#[macro_export]
macro_rules! declaration {
    ($name:expr) => {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        ::std::arch::global_asm!(
            ".pushsection .note.stapsdt,\"\",@note",
            ".balign 4",
            ".4byte 992f - 991f, 994f - 993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            "993: .8byte 0, 0, 0",
            concat!(".asciz \"atropos\", \"", $name, "\", \"\""),
            "994: .balign 4",
            ".popsection",
        );
    };
}
