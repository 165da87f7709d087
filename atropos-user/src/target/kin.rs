//! Whose process or thread a number means.

use super::{Process, proc_of};

/// No process of a server is further from it than this.
const MOST_GENERATIONS: usize = 64;

impl Process {
    /// The process that has this number or that a thread of this number belongs to (as we count), if it is the target or
    /// descends from it. What has lost its parent on the way is not known to be the target's.
    pub fn owner_of(&self, number: u32) -> Option<u32> {
        let status = |id: u32| proc_of(id).ok()?.status().ok();
        let owner = u32::try_from(status(number)?.tgid).ok()?;
        let mut at = owner;
        for _ in 0..MOST_GENERATIONS {
            if at == self.pid {
                return self.still_same().then_some(owner);
            }
            at = u32::try_from(status(at)?.ppid).ok()?;
        }
        None
    }
}
