//! Whether a process has ended, asked so often that it must cost next to nothing.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Process, TargetError};

/// Tells when a process has ended. It stays with this process when its id is given away.
#[derive(Debug)]
pub struct EndWatch(OwnedFd);

impl Process {
    /// Something that tells when the process has ended.
    pub fn end(&self) -> Result<EndWatch, TargetError> {
        let what = "its end";
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let opened = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let end = opened
            .ok_or_else(|| self.exited(what))?
            .map_err(|errno| TargetError::reading(self.pid, what, &errno.into()))?;
        // It was opened by the id: only now it is certain whose end it tells.
        if self.still_same() {
            Ok(EndWatch(end))
        } else {
            Err(self.exited(what))
        }
    }
}

impl EndWatch {
    /// Whether the process has ended, with all of its threads.
    pub fn is_over(&self) -> bool {
        self.is_over_within(Duration::ZERO)
    }

    /// Whether it ends within this time. Waits for it.
    pub fn is_over_within(&self, limit: Duration) -> bool {
        let mut end = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        // A poll that fails says nothing about the process.
        poll(&mut end, limit).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn an_end_is_told_before_and_after_the_parent_has_seen_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let end = Process::open(child.id()).unwrap().end().unwrap();
        assert!(!end.is_over());
        child.kill().unwrap();
        let mut told = [PollFd::new(end.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut told, PollTimeout::from(10_000_u16)).unwrap();
        assert!(end.is_over(), "a zombie is over");
        assert!(end.is_over_within(Duration::from_secs(1)));
        child.wait().unwrap();
        assert!(end.is_over());
    }
}
