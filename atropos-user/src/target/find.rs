//! Finding the process: by its executable, by its systemd service, and what may have been meant when there is none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use procfs::process::{Stat, all_processes};

use super::{Process, TargetError, maps};

const CLOSEST_COUNT: usize = 3;
const CLOSE_ENOUGH: f64 = 0.6;

/// The process that runs an executable: a path, or a file name alone. Of a process tree it is the root.
pub fn find_by_exe(exe: &Path) -> Result<Process, TargetError> {
    let by_name = exe.components().count() == 1;
    let wanted = if by_name {
        exe.to_owned()
    } else {
        fs::canonicalize(exe).unwrap_or_else(|_| exe.to_owned())
    };
    let matches = |pid: u32| {
        let Ok(link) = fs::read_link(format!("/proc/{pid}/exe")) else {
            return false;
        };
        let (running, _) = maps::without_deleted(&link);
        if by_name {
            running.file_name() == wanted.file_name()
        } else {
            running == wanted
        }
    };
    let stats = running();
    let pids: Vec<u32> = stats
        .iter()
        .map(pid_of)
        .filter(|&pid| matches(pid))
        .collect();
    let what = format!("`{}`", exe.display());
    let name = exe
        .file_name()
        .unwrap_or(exe.as_os_str())
        .to_string_lossy()
        .into_owned();
    one_root(&pids, &parents_of(&stats), what, || {
        names_like(&name, &stats)
    })
}

/// The main process of a systemd service, with or without `.service`.
pub fn find_by_service(service: &str) -> Result<Process, TargetError> {
    let unit = if service.contains('.') {
        service.to_owned()
    } else {
        format!("{service}.service")
    };
    let stats = running();
    let what = format!("the service `{unit}`");
    let like = || names_like(service.trim_end_matches(".service"), &stats);
    if unit.contains('/') {
        return Err(TargetError::NoneRunning {
            wanted: what,
            closest: like(),
        });
    }
    if let Some(pid) = main_pid(&unit) {
        return Process::open(pid);
    }
    // Without systemd's answer (in a container), its control group still tells which processes belong together.
    let pids: Vec<u32> = [
        "/sys/fs/cgroup/system.slice",
        "/sys/fs/cgroup/systemd/system.slice",
    ]
    .iter()
    .find_map(|slice| fs::read_to_string(format!("{slice}/{unit}/cgroup.procs")).ok())
    .map(|text| text.lines().filter_map(|line| line.parse().ok()).collect())
    .unwrap_or_default();
    one_root(&pids, &parents_of(&stats), what, like)
}

fn main_pid(unit: &str) -> Option<u32> {
    let shown = Command::new("systemctl")
        .args(["show", "--property=MainPID", "--value", "--", unit])
        .output()
        .ok()?;
    let pid = String::from_utf8_lossy(&shown.stdout).trim().parse().ok()?;
    (shown.status.success() && pid != 0).then_some(pid)
}

fn one_root(
    pids: &[u32],
    parents: &HashMap<u32, u32>,
    wanted: String,
    closest: impl FnOnce() -> Vec<String>,
) -> Result<Process, TargetError> {
    match roots(pids, parents).as_slice() {
        [] => Err(TargetError::NoneRunning {
            wanted,
            closest: closest(),
        }),
        [pid] => Process::open(*pid),
        several => Err(TargetError::SeveralRunning {
            wanted,
            pids: several.to_vec(),
        }),
    }
}

/// Those of `pids` that have no ancestor among them, ascending.
fn roots(pids: &[u32], parents: &HashMap<u32, u32>) -> Vec<u32> {
    let mut roots: Vec<u32> = pids
        .iter()
        .copied()
        .filter(|&pid| !ancestors(pid, parents).any(|ancestor| pids.contains(&ancestor)))
        .collect();
    roots.sort_unstable();
    roots
}

fn ancestors(pid: u32, parents: &HashMap<u32, u32>) -> impl Iterator<Item = u32> {
    // The table is read process by process, so reused ids could make a ring of it: bound the climb.
    std::iter::successors(parents.get(&pid).copied(), |pid| parents.get(pid).copied())
        .take(parents.len())
}

/// Descendants of a process, nearest first.
pub(super) fn descendants(pid: u32, parents: &HashMap<u32, u32>) -> Vec<u32> {
    let mut children: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (child, of) in parents.iter().filter(|(child, _)| **child != pid) {
        children.entry(*of).or_default().insert(*child);
    }
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        // Taken out, each once: reused ids could make a ring of the table.
        found.extend(children.remove(parent).unwrap_or_default());
        at += 1;
    }
    found.remove(0);
    found
}

/// Parent of every process.
pub(super) fn parents() -> HashMap<u32, u32> {
    parents_of(&running())
}

fn parents_of(stats: &[Stat]) -> HashMap<u32, u32> {
    stats
        .iter()
        .map(|stat| (pid_of(stat), stat.ppid.cast_unsigned()))
        .collect()
}

fn pid_of(stat: &Stat) -> u32 {
    stat.pid.cast_unsigned()
}

fn running() -> Vec<Stat> {
    let Ok(all) = all_processes() else {
        return Vec::new();
    };
    all.filter_map(|process| process.ok()?.stat().ok())
        .filter(|stat| stat.state != 'Z')
        .collect()
}

fn names_like(name: &str, stats: &[Stat]) -> Vec<String> {
    let mut scored: Vec<(f64, String)> = stats
        .iter()
        .filter(|stat| stat.flags & super::PF_KTHREAD == 0)
        .map(|stat| {
            (
                strsim::jaro_winkler(name, &stat.comm),
                format!("{} ({})", stat.comm, stat.pid),
            )
        })
        .filter(|&(score, _)| score >= CLOSE_ENOUGH)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored
        .into_iter()
        .take(CLOSEST_COUNT)
        .map(|(_, text)| text)
        .collect()
}

/// Running programs whose id is one slip of a finger away.
pub(super) fn ids_like(pid: u32) -> Vec<String> {
    let wanted = pid.to_string();
    running()
        .iter()
        .filter(|stat| {
            stat.flags & super::PF_KTHREAD == 0
                && strsim::osa_distance(&wanted, &stat.pid.to_string()) == 1
        })
        .take(CLOSEST_COUNT)
        .map(|stat| format!("{} ({})", stat.pid, stat.comm))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> HashMap<u32, u32> {
        HashMap::from([(1, 0), (10, 1), (11, 10), (12, 11), (20, 1)])
    }

    #[test]
    fn the_root_of_a_tree_stands_for_it() {
        assert_eq!(roots(&[12, 11, 10], &tree()), [10]);
        assert_eq!(
            roots(&[12, 10], &tree()),
            [10],
            "with a stranger in between"
        );
        assert_eq!(roots(&[11, 20], &tree()), [11, 20]);
        assert!(roots(&[], &tree()).is_empty());
    }

    #[test]
    fn descendants_are_found_through_generations() {
        assert_eq!(descendants(10, &tree()), [11, 12]);
        assert_eq!(descendants(1, &tree()), [10, 20, 11, 12]);
        assert!(descendants(99, &tree()).is_empty());
    }

    #[test]
    fn a_ring_of_parents_ends() {
        let ring = HashMap::from([(5, 6), (6, 5)]);
        assert_eq!(descendants(5, &ring), [6]);
        assert!(roots(&[5], &ring).is_empty());
    }
}
