//! Marks for an application that wants to tell Atropos about its tasks and resources.
//!
//! Each function is a USDT probe `atropos:NAME` with its arguments in order. While nobody watches, a call is a load of two bytes
//! (maybe one of their address, too) and a branch; the arguments are passed only while a watcher has raised the probe's
//! semaphore. However often a mark is inlined, its probe has one site, a function of its own that is a five-byte `nop` and a
//! return: under a probe the kernel takes its fastest path there, and nothing of the caller lies where that path writes.
//!
//! `session` is any number or address that stands for whoever does the work, from `task_begin` to `session_end`: a connection, a
//! thread, a job. `resource` is a number that the application gives each of its resources, `instance` one lock, page or queue of
//! them, and `mode` how it is held: 1 is shared with others who say 1, anything else excludes everybody. On processors other than x86-64 and aarch64 marks do nothing.
//!
//! Of a resource of kind MEMORY (a cache, a buffer pool) `instance` names one unit and is never 0. `wait_begin` and `wait_end`
//! stand around bringing a unit in; between them, `use_units` says that it is there, and `evict` who had to make room.
//!
//! ```
//! use usdt_probes::mark;
//!
//! const TABLE_LOCK: u64 = 0;
//! let (session, table) = (7, 42);
//! mark::task_begin(session);
//! mark::wait_begin(session, TABLE_LOCK, table, 1);
//! mark::wait_end(session, TABLE_LOCK, table);
//! mark::acquire(session, TABLE_LOCK, table, 1);
//! mark::work(session, 50_000);
//! mark::progress(session, 10_000);
//! mark::release(session, TABLE_LOCK, table);
//! mark::task_end(session);
//! ```

/// The site, the note and the semaphore of one probe in assembly. `$operands` says where the calling convention puts arguments.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! probe {
    ($name:literal, $nop:literal, $operands:expr) => {
        std::arch::global_asm!(
            ".pushsection .text.atropos_probes,\"ax\",@progbits",
            concat!(".globl atropos_rust_", $name),
            concat!(".hidden atropos_rust_", $name),
            concat!(".type atropos_rust_", $name, ",@function"),
            concat!("atropos_rust_", $name, ":"),
            concat!("990: ", $nop),
            "ret",
            concat!(".size atropos_rust_", $name, ", . - atropos_rust_", $name),
            ".popsection",
            ".pushsection .probes,\"aw\",@progbits",
            ".balign 2",
            concat!(".globl atropos_rust_", $name, "_semaphore"),
            concat!(".hidden atropos_rust_", $name, "_semaphore"),
            concat!(".type atropos_rust_", $name, "_semaphore,@object"),
            concat!("atropos_rust_", $name, "_semaphore: .2byte 0"),
            concat!(".size atropos_rust_", $name, "_semaphore, 2"),
            ".popsection",
            ".ifndef _.stapsdt.base",
            ".pushsection .stapsdt.base,\"aG\",@progbits,.stapsdt.base,comdat",
            ".weak _.stapsdt.base",
            ".hidden _.stapsdt.base",
            "_.stapsdt.base: .space 1",
            ".size _.stapsdt.base, 1",
            ".popsection",
            ".endif",
            ".pushsection .note.stapsdt,\"\",@note",
            ".balign 4",
            ".4byte 992f - 991f, 994f - 993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            concat!(
                "993: .8byte 990b, _.stapsdt.base, atropos_rust_",
                $name,
                "_semaphore"
            ),
            concat!(".asciz \"atropos\", \"", $name, "\", \"", $operands, "\""),
            "994: .balign 4",
            ".popsection",
        );
    };
}

/// Marks with one to four arguments.
macro_rules! marks {
    ($($(#[$doc:meta])* fn $mark:ident($($argument:ident),+) = $name:literal, $site:ident, $semaphore:ident, $count:tt;)+) => {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        mod sites {
            use std::sync::atomic::AtomicU16;
            $(
                #[cfg(target_arch = "x86_64")]
                probe!($name, ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00", operands!(x86 $count));
                #[cfg(target_arch = "aarch64")]
                probe!($name, "nop", operands!(arm $count));
            )+
            // SAFETY: the assembly above defines each function by the C convention, and each semaphore as two aligned bytes that
            // are 0 until the kernel counts them up.
            unsafe extern "C" {
                $(
                    #[link_name = concat!("atropos_rust_", $name)]
                    pub(super) safe fn $site($($argument: u64),+);
                    #[link_name = concat!("atropos_rust_", $name, "_semaphore")]
                    pub(super) safe static $semaphore: AtomicU16;
                )+
            }
        }
        $(
            $(#[$doc])*
            #[inline(always)]
            #[allow(clippy::inline_always, reason = "the guard must cost no call while nobody watches")]
            pub fn $mark($($argument: u64),+) {
                #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
                if sites::$semaphore.load(std::sync::atomic::Ordering::Relaxed) != 0 {
                    sites::$site($($argument),+);
                }
                #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
                let _ = ($($argument),+);
            }
        )+
    };
}

/// Where the first arguments of a call lie.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! operands {
    (x86 1) => {
        "8@%rdi"
    };
    (x86 2) => {
        "8@%rdi 8@%rsi"
    };
    (x86 3) => {
        "8@%rdi 8@%rsi 8@%rdx"
    };
    (x86 4) => {
        "8@%rdi 8@%rsi 8@%rdx 8@%rcx"
    };
    (arm 1) => {
        "8@x0"
    };
    (arm 2) => {
        "8@x0 8@x1"
    };
    (arm 3) => {
        "8@x0 8@x1 8@x2"
    };
    (arm 4) => {
        "8@x0 8@x1 8@x2 8@x3"
    };
}

marks! {
    /// The session starts a task: a request, a statement, a job.
    fn task_begin(session) = "task_begin", task_begin_site, TASK_BEGIN, 1;
    /// The session's task is over.
    fn task_end(session) = "task_end", task_end_site, TASK_END, 1;
    /// The session is gone with everything it held.
    fn session_end(session) = "session_end", session_end_site, SESSION_END, 1;
    /// The session starts to wait for an instance.
    fn wait_begin(session, resource, instance, mode) = "wait_begin", wait_begin_site, WAIT_BEGIN, 4;
    /// The session waits no longer, whether it got the instance or gave up.
    fn wait_end(session, resource, instance) = "wait_end", wait_end_site, WAIT_END, 3;
    /// The session holds an instance from here on.
    fn acquire(session, resource, instance, mode) = "acquire", acquire_site, ACQUIRE, 4;
    /// The session lets go of an instance.
    fn release(session, resource, instance) = "release", release_site, RELEASE, 3;
    /// The session's task enters a queue.
    fn enqueue(session, resource, instance) = "enqueue", enqueue_site, ENQUEUE, 3;
    /// The session's task leaves the queue and runs.
    fn dequeue(session, resource, instance) = "dequeue", dequeue_site, DEQUEUE, 3;
    /// The session brings units (pages, bytes, entries) into a shared store.
    fn use_units(session, resource, instance, amount) = "use", use_site, USE, 4;
    /// The session throws a unit of a shared store out.
    fn evict(session, resource, instance, amount) = "evict", evict_site, EVICT, 4;
    /// What the session is doing from here on, in words: the address of a text that ends with a zero byte and stays where it is
    /// while the session does that. Whoever watches reads it some 50 ms later; statements lose their literals then.
    fn label(session, text) = "label", label_site, LABEL, 2;
    /// Work that the session's task has done so far, in any unit.
    fn progress(session, done) = "progress", progress_site, PROGRESS, 2;
    /// Work that the session's task will take in all, in the unit of `progress`. Whoever watches may have come just now, so it
    /// is said again with each progress.
    fn work(session, total) = "work", work_site, WORK, 2;
}
