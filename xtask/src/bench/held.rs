//! An agent that stays, and stands still where nobody is to watch.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::calm::{Level, agent_pid, watch};
use super::subject::Subject;
use crate::demo::watch::Agent;

/// The agent that stays.
pub(super) struct Held {
    agent: Agent,
    pid: Pid,
}

impl Held {
    /// Starts it, in calm.
    pub(super) async fn start(subject: &mut impl Subject, binary: &Path) -> Result<Self> {
        let agent = watch(subject, binary, Level::Calm, &[]).await?;
        let pid = Pid::from_raw(i32::try_from(agent_pid(&agent)?)?);
        Ok(Self { agent, pid })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Lets it go on, or stops it where it is.
    pub(super) fn let_go_on(&self, on: bool) -> Result<()> {
        let signal = if on { Signal::SIGCONT } else { Signal::SIGSTOP };
        kill(self.pid, signal).with_context(|| format!("cannot send {signal} to the agent"))
    }

    /// Ends it. It must have been in calm all the time.
    pub(super) async fn stop(self) -> Result<()> {
        self.let_go_on(true)?;
        let suspicions = self.agent.stop().await?.suspicions;
        if suspicions > 0 {
            bail!("the agent became suspicious {suspicions} times: calm was not what was measured");
        }
        Ok(())
    }
}
