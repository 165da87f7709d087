//! An agent that stays: it stands still where nobody is to watch, and is asked to watch closely where somebody suspects.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::sleep;

use super::calm::{Level, agent_pid};
use crate::demo::watch::{Agent, Seen};

/// Between stopping or continuing the agent and the slice.
const SETTLE: Duration = Duration::from_millis(50);

/// Between asking the agent for another level and the slice: the kernel's grace periods, in which probes come and go.
const SETTLE_LEVEL: Duration = Duration::from_millis(300);

/// The agent that stays.
pub(super) struct Held {
    agent: Agent,
    pid: Pid,
    /// How it watches at present; not at all while it stands still.
    watches: Option<Level>,
}

impl Held {
    /// One that is in calm.
    pub(super) fn of(agent: Agent) -> Result<Self> {
        let pid = Pid::from_raw(i32::try_from(agent_pid(&agent)?)?);
        Ok(Self {
            agent,
            pid,
            watches: Some(Level::Calm),
        })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Brings it to a level, or lets it stand still in calm, and waits until that is so.
    pub(super) async fn watch(&mut self, level: Option<Level>) -> Result<()> {
        if self.watches == level {
            return Ok(());
        }
        // An operator's signal asks for the fuller set, the next one no longer.
        if self.watches == Some(Level::Suspect) {
            self.send(Signal::SIGUSR1)?;
            sleep(SETTLE_LEVEL).await;
        }
        match level {
            None => self.send(Signal::SIGSTOP)?,
            Some(_) => self.send(Signal::SIGCONT)?,
        }
        if level == Some(Level::Suspect) {
            self.send(Signal::SIGUSR1)?;
            sleep(SETTLE_LEVEL).await;
        }
        self.watches = level;
        sleep(SETTLE).await;
        Ok(())
    }

    /// What it has said so far.
    pub(super) fn seen(&self) -> Seen {
        self.agent.seen()
    }

    /// Ends it. By itself it must have been in calm all the time.
    pub(super) async fn stop(self) -> Result<()> {
        self.send(Signal::SIGCONT)?;
        let suspicions = self.agent.stop().await?.suspicions;
        if suspicions > 0 {
            bail!("the agent became suspicious {suspicions} times: calm was not what was measured");
        }
        Ok(())
    }

    fn send(&self, signal: Signal) -> Result<()> {
        kill(self.pid, signal).with_context(|| format!("cannot send {signal} to the agent"))
    }
}
