//! The sockets that a process listens on, so that its control connection needs no configuration.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use procfs::net::TcpState;
use procfs::process::FDTarget;

use super::{Process, TargetError, other_namespace, proc_of};

/// Flag of a listening socket in `/proc/net/unix` (`__SO_ACCEPTCON`).
const ACCEPTS: u64 = 0x1_0000;

/// A Unix socket in the file system. Abstract ones are not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixListener {
    /// Its path as the target bound it; relative paths are relative to the working directory of then.
    pub path_in_target: PathBuf,
    /// Its path for us, through the target's root when its mount namespace differs.
    pub path_for_us: PathBuf,
}

/// What a process listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// Unix sockets.
    pub unix: Vec<UnixListener>,
    /// TCP addresses, sorted.
    pub tcp: Vec<SocketAddr>,
    /// The TCP addresses are of another network namespace: we cannot reach them by their numbers.
    pub other_network_namespace: bool,
}

impl Listening {
    /// The TCP addresses as we connect to them on this machine: loopback where the target takes any address.
    pub fn tcp_for_us(&self) -> Vec<SocketAddr> {
        let loopback = |address: &SocketAddr| match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, address.port()).into(),
            IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, address.port()).into(),
            _ => *address,
        };
        self.tcp.iter().map(loopback).collect()
    }
}

impl Process {
    /// The sockets that it listens on.
    pub fn listening(&self) -> Result<Listening, TargetError> {
        let what = "its open files";
        let process = proc_of(self.pid)?;
        let inodes: HashSet<u64> = process
            .fd()
            .map_err(|error| TargetError::proc(self.pid, what, error))?
            .filter_map(|fd| match fd.ok()?.target {
                FDTarget::Socket(inode) => Some(inode),
                _ => None,
            })
            .collect();
        let unix_table = format!("/proc/{}/net/unix", self.pid);
        let unix = fs::read(&unix_table)
            .map_err(|error| TargetError::reading(self.pid, &unix_table, &error))?;
        let unix = unix_listeners(&String::from_utf8_lossy(&unix), &inodes)
            .into_iter()
            .map(|path| UnixListener {
                path_for_us: self.socket_path_for_us(&path),
                path_in_target: path,
            })
            .collect();
        // A kernel without IPv6 has no tcp6 table.
        let tables = [process.tcp(), process.tcp6()];
        let mut tcp: Vec<SocketAddr> = tables
            .into_iter()
            .flatten()
            .flatten()
            .filter(|socket| socket.state == TcpState::Listen && inodes.contains(&socket.inode))
            .map(|socket| socket.local_address)
            .collect();
        tcp.sort_unstable();
        tcp.dedup();
        Ok(Listening {
            unix,
            tcp,
            other_network_namespace: other_namespace(self.pid, "net")?,
        })
    }

    fn socket_path_for_us(&self, path: &std::path::Path) -> PathBuf {
        if path.is_relative() {
            PathBuf::from(format!("/proc/{}/cwd", self.pid)).join(path)
        } else if self.other_mount_namespace {
            self.path_for_us(path)
        } else {
            path.to_owned()
        }
    }
}

/// Paths of the listening sockets of `/proc/PID/net/unix` that are among `inodes`.
fn unix_listeners(table: &str, inodes: &HashSet<u64>) -> Vec<PathBuf> {
    let listener = |line: &str| {
        // Num: RefCount Protocol Flags Type St Inode Path; a path may have spaces.
        let (_, rest) = field(line)?;
        let (_, rest) = field(rest)?;
        let (_, rest) = field(rest)?;
        let (flags, rest) = field(rest)?;
        let (_, rest) = field(rest)?;
        let (_, rest) = field(rest)?;
        let (inode, path) = field(rest)?;
        let flags = u64::from_str_radix(flags, 16).ok()?;
        let inode: u64 = inode.parse().ok()?;
        (flags & ACCEPTS != 0 && inodes.contains(&inode) && !path.starts_with('@'))
            .then(|| PathBuf::from(path))
    };
    table.lines().skip(1).filter_map(listener).collect()
}

/// The first field, and what follows the space behind it.
fn field(line: &str) -> Option<(&str, &str)> {
    line.trim_start_matches(' ').split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_takes_any_address_is_reached_by_loopback() {
        let tcp = ["0.0.0.0:3306", "10.1.2.3:3307", "[::]:3306"];
        let tcp = tcp.map(|address| address.parse().unwrap()).to_vec();
        let listening = Listening {
            tcp,
            ..Listening::default()
        };
        let for_us: Vec<String> = listening
            .tcp_for_us()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(for_us, ["127.0.0.1:3306", "10.1.2.3:3307", "[::1]:3306"]);
    }

    #[test]
    fn only_own_listening_sockets_with_a_path_are_taken() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff8881: 00000002 00000000 00010000 0001 01 20001 /run/mysqld/mysqld.sock\n\
            ffff8882: 00000002 00000000 00010000 0001 01   731 /run/with space.sock\n\
            ffff8883: 00000003 00000000 00000000 0001 03 20002 /run/connected.sock\n\
            ffff8884: 00000002 00000000 00010000 0001 01 20003 @abstract\n\
            ffff8885: 00000002 00000000 00010000 0001 01 20004 /run/of-another.sock\n\
            ffff8886: 00000002 00000000 00010000 0001 01 20005\n\
            broken line\n";
        let inodes = HashSet::from([20001, 731, 20002, 20003, 20005]);
        let paths = unix_listeners(table, &inodes);
        assert_eq!(
            paths,
            [
                PathBuf::from("/run/mysqld/mysqld.sock"),
                PathBuf::from("/run/with space.sock")
            ]
        );
    }
}
