//! What this machine has and lacks for Atropos, and how to get what is missing.
//!
//! Reads only. What `atropos` needs to run decides the exit code; what building, tests and demo need is listed beside it.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use crate::process::{find, is_root};
use crate::setup::{postgresql_is_there, server_is_there};
use crate::toolchain::{LINKER_VERSION, Toolchain, linker};

/// Capability numbers of linux/capability.h.
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// One thing looked at.
struct Check {
    what: String,
    found: Result<String, &'static str>,
    needed_to: Need,
}

#[derive(Clone, Copy, PartialEq)]
enum Need {
    Run,
    Build,
    Test,
}

/// Prints every check; an error if Atropos cannot run here.
pub(crate) fn doctor() -> Result<()> {
    let mut checks = kernel();
    checks.push(privileges(
        &status_text(),
        is_root(),
        find("sudo").is_some(),
    ));
    checks.extend(building());
    for check in &checks {
        println!("{}", line(check));
    }
    let missing = checks
        .iter()
        .filter(|check| check.needed_to == Need::Run && check.found.is_err())
        .count();
    if missing > 0 {
        bail!(
            "atropos cannot run here: {missing} of the things it needs are missing (see `MISSING` above)"
        );
    }
    println!("atropos can run here");
    Ok(())
}

fn line(check: &Check) -> String {
    let need = match check.needed_to {
        Need::Run => "run",
        Need::Build => "build",
        Need::Test => "test",
    };
    match &check.found {
        Ok(found) => format!("ok       {need:<6}{}: {found}", check.what),
        Err(cure) => format!("MISSING  {need:<6}{}: {cure}", check.what),
    }
}

fn check(
    needed_to: Need,
    what: impl Into<String>,
    found: Option<String>,
    cure: &'static str,
) -> Check {
    Check {
        what: what.into(),
        found: found.ok_or(cure),
        needed_to,
    }
}

fn kernel() -> Vec<Check> {
    let release = read("/proc/sys/kernel/osrelease");
    let version = kernel_version(&release);
    let there = |path: &str| Path::new(path).exists().then(|| path.to_owned());
    let since = |wanted| {
        version
            .filter(|version| *version >= wanted)
            .map(|_| format!("kernel {}", release.trim()))
    };
    let lockdown = read("/sys/kernel/security/lockdown");
    let open = !lockdown.contains("[confidentiality]");
    vec![
        check(
            Need::Run,
            "ring buffer (5.8)",
            since((5, 8)),
            "this kernel is too old: 5.15 or newer is needed",
        ),
        check(
            Need::Run,
            "attach cookies (5.15)",
            since((5, 15)),
            "this kernel is too old: 5.15 or newer is needed",
        ),
        check(
            Need::Run,
            "uprobes",
            there("/sys/bus/event_source/devices/uprobe/type"),
            "boot a kernel built with CONFIG_UPROBE_EVENTS=y; in a container, mount /sys",
        ),
        check(
            Need::Run,
            "tracefs",
            tracefs(&read("/proc/mounts")),
            "as root: mount -t tracefs tracefs /sys/kernel/tracing (`cargo xtask setup` does)",
        ),
        check(
            Need::Run,
            "no lockdown of kernel memory",
            open.then(|| "BPF may read memory".to_owned()),
            "the kernel is locked down for confidentiality, which forbids BPF to read memory: turn secure boot's lockdown off",
        ),
    ]
}

/// Where tracefs is mounted; by the list of mounts, since only root may look inside.
pub(crate) fn tracefs(mounts: &str) -> Option<String> {
    mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&"tracefs"))
        .and_then(|fields| fields.get(1).map(|folder| (*folder).to_owned()))
}

/// Major and minor of `6.18.44-something`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn status_text() -> String {
    read("/proc/self/status")
}

/// Whether this user, as is or through sudo, has what the agent needs. Root in a container may lack it.
fn privileges(status: &str, root: bool, sudo: bool) -> Check {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    let has = |capability: u32| effective >> capability & 1 == 1;
    let bpf = has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON));
    let found = if bpf && has(CAP_SYS_PTRACE) {
        Some(
            if root {
                "root"
            } else {
                "CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE"
            }
            .to_owned(),
        )
    } else if sudo && !root {
        Some("through sudo".to_owned())
    } else {
        None
    };
    let cure = if root {
        "root here lacks CAP_BPF, CAP_PERFMON or CAP_SYS_PTRACE: start the container with --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE"
    } else {
        "run as root, install sudo, or give the binary CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE (setcap)"
    };
    check(Need::Run, "privileges", found, cure)
}

fn building() -> Vec<Check> {
    let chosen = Toolchain::chosen();
    let compiler = chosen.map(|chosen| format!("{} ({:?})", chosen.rustc, chosen.source));
    vec![
        check(
            Need::Build,
            "compiler of the kernel half",
            compiler,
            "cargo xtask setup",
        ),
        check(
            Need::Build,
            format!("bpf-linker {LINKER_VERSION}"),
            linker().map(|file| file.display().to_string()),
            "cargo xtask setup",
        ),
        check(
            Need::Test,
            "MariaDB server",
            server_is_there().then(|| "mariadbd, mariadb-install-db".to_owned()),
            "cargo xtask setup, or install mariadb-server",
        ),
        check(
            Need::Test,
            "PostgreSQL server",
            postgresql_is_there().then(|| "/usr/lib/postgresql".to_owned()),
            "cargo xtask setup, or install postgresql",
        ),
        check(
            Need::Test,
            "sysbench",
            find("sysbench").map(|file| file.display().to_string()),
            "cargo xtask setup, or install sysbench",
        ),
    ]
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_version_is_read_from_any_distributions_release() {
        assert_eq!(kernel_version("6.18.44-fc-v595\n"), Some((6, 18)));
        assert_eq!(kernel_version("5.15.0-91-generic"), Some((5, 15)));
        assert_eq!(kernel_version("6.1-rc3"), Some((6, 1)));
        assert_eq!(kernel_version(""), None);
    }

    #[test]
    fn tracefs_is_found_among_the_mounts() {
        let mounts = "sysfs /sys sysfs rw 0 0\ntracefs /sys/kernel/tracing tracefs rw 0 0\n";
        assert_eq!(tracefs(mounts).as_deref(), Some("/sys/kernel/tracing"));
        assert_eq!(tracefs("sysfs /sys sysfs rw 0 0\n"), None);
    }

    #[test]
    fn root_without_capabilities_cannot_run_it_and_a_user_with_sudo_can() {
        let none = "CapEff:\t0000000000000000\n";
        let all = "CapEff:\t000001ffffffffff\n";
        assert!(privileges(none, true, true).found.is_err());
        assert!(privileges(all, true, false).found.is_ok());
        assert!(privileges(none, false, true).found.is_ok());
        assert!(privileges(none, false, false).found.is_err());
    }

    #[test]
    fn bpf_and_perfmon_and_ptrace_together_are_enough() {
        let mask = |bits: &[u32]| {
            format!(
                "CapEff:\t{:016x}\n",
                bits.iter().map(|bit| 1_u64 << bit).sum::<u64>()
            )
        };
        assert!(
            privileges(&mask(&[CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE]), false, false)
                .found
                .is_ok()
        );
        assert!(
            privileges(&mask(&[CAP_BPF, CAP_PERFMON]), false, false)
                .found
                .is_err()
        );
    }
}
