//! Process and thread ids as the target itself counts them: what stands in its memory when it runs in a container.

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::helpers::generated::bpf_get_ns_current_pid_tgid;

use crate::maps::NAMESPACE;

/// Process id (high half) and thread id of the current thread in the target's PID namespace; `pid_tgid` is what the kernel
/// counts. 0 if the thread is in another namespace.
#[inline(always)]
pub(crate) fn in_target(pid_tgid: u64) -> u64 {
    let Some(namespace) = NAMESPACE.get(0) else {
        return 0;
    };
    if namespace.inode == 0 {
        return pid_tgid;
    }
    let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
    // SAFETY: the helper writes to `ids`, whose size it is told, and nowhere else.
    let failed = unsafe {
        bpf_get_ns_current_pid_tgid(
            namespace.device,
            namespace.inode,
            &raw mut ids,
            size_of::<bpf_pidns_info>() as u32,
        )
    } != 0;
    if failed {
        return 0;
    }
    u64::from(ids.tgid) << 32 | u64::from(ids.pid)
}
