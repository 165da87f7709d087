//! How the target counts processes and threads: the value of the `NAMESPACE` map.

/// A PID namespace, as `stat` of `/proc/PID/ns/pid` tells it. With inode 0: the machine's own, in which the kernel counts anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PidNamespace {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}
