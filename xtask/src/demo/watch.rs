//! Running the agent beside us: its JSON lines become moments of the story, and what the report is made of.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::story::Story;
use crate::process::{self, as_root, is_root};

/// How long the agent may take to attach.
const ATTACH: Duration = Duration::from_secs(30);
/// How long it may take to stop. 30 s: it waits for the kernel to let its probes go, whose grace periods are long on a machine
/// without a free processor.
const STOP: Duration = Duration::from_secs(30);

/// A line of `atropos run --json`.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Attached {
        preset: String,
    },
    Effect {
        effect: Effect,
    },
    OrderSent(OrderSent),
    Lost {
        count: u64,
    },
    Probes {
        probes: Vec<String>,
        level: String,
        to: Standing,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Effect {
    Level(String),
    Overload {
        at_ns: u64,
        state: String,
        reason: String,
    },
    Decision(Decision),
    #[allow(dead_code, reason = "its decision has told it already")]
    Cancel(serde::de::IgnoredAny),
    Outcome {
        at_ns: u64,
        result: String,
        summary: String,
    },
}

/// How much of its time a probe may be attached.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Standing {
    Whole,
    Halved(u8),
    Shed,
}

impl Standing {
    fn share(&self) -> f64 {
        match self {
            Self::Whole => 1.0,
            Self::Halved(times) => 0.5_f64.powi(i32::from(*times)),
            Self::Shed => 0.0,
        }
    }
}

/// A decision that was seen.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Decision {
    /// When.
    pub(crate) at_ns: u64,
    /// When the SLO was first broken.
    pub(crate) breach_ns: u64,
    /// What it ordered.
    pub(crate) orders: Vec<Order>,
    /// Its reasons, for a person.
    pub(crate) summary: String,
}

/// An order of a decision.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Order {
    /// Its number.
    pub(crate) order: u64,
    /// Whom it names.
    pub(crate) task: Task,
}

/// Whom an order names.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Task {
    /// The server's number of the connection.
    pub(crate) id: u64,
}

/// A command that was sent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OrderSent {
    /// The order that it carries out.
    pub(crate) order: u64,
    command: String,
    /// When it left.
    pub(crate) sent_at_ns: u64,
    /// When the server had answered.
    pub(crate) answered_at_ns: u64,
}

/// What the agent has said so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Its decisions.
    pub(crate) decisions: Vec<Decision>,
    /// Its commands.
    pub(crate) commands: Vec<OrderSent>,
    /// How often it began to watch closely.
    pub(crate) suspicions: usize,
    /// Events that it missed.
    pub(crate) lost: u64,
    /// Share of its time that a probe may be attached for, by level and probe, where the budget does not allow all of it.
    shares: BTreeMap<(String, String), f64>,
}

impl Seen {
    /// Share of its time that the budget allows a probe at a level, 0 to 1.
    pub(crate) fn share(&self, level: &str, probe: &str) -> f64 {
        let key = (level.to_owned(), probe.to_owned());
        self.shares.get(&key).copied().unwrap_or(1.0)
    }

    /// Why it gave orders: what it said of each decision that has some.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &str> {
        let ordering = self.decisions.iter().filter(|one| !one.orders.is_empty());
        ordering.map(|one| one.summary.as_str())
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The agent as a process beside us, run as root.
pub(crate) struct Agent {
    child: Child,
    readers: Vec<JoinHandle<()>>,
    seen: Arc<Mutex<Seen>>,
}

impl Agent {
    /// Starts it with these arguments and waits until it is attached.
    pub(crate) async fn start(binary: &Path, arguments: &[String], story: &Story) -> Result<Self> {
        let mut command = Command::from(as_root(binary)?);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for us; we end the agent.
            .process_group(0);
        story.tell(format!("$ {}", process::shown(command.as_std())));
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let (attached, mut is_attached) = watch::channel(false);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let ear = Ear {
            story: story.clone(),
            seen: Arc::clone(&seen),
            attached,
        };
        let output = child.stdout.take().context("the agent has no output")?;
        let errors = child
            .stderr
            .take()
            .context("the agent has no error output")?;
        let for_errors = story.clone();
        let readers = vec![
            tokio::spawn(lines(output, move |line| ear.hear(line))),
            tokio::spawn(lines(errors, move |line| {
                for_errors.tell(format!("atropos: {line}"));
            })),
        ];
        let agent = Self {
            child,
            readers,
            seen,
        };
        let attached = tokio::time::timeout(ATTACH, is_attached.wait_for(|attached| *attached));
        // The ear hangs up when the agent's output ends.
        match attached.await {
            Ok(Ok(_)) => Ok(agent),
            Ok(Err(_)) => {
                let seen = agent.stop().await;
                bail!(
                    "atropos ended before it was attached: {}",
                    seen.map_or_else(|error| format!("{error:#}"), |_| "see above".to_owned())
                );
            }
            Err(_) => bail!("atropos is not attached after {ATTACH:?}"),
        }
    }

    /// The process that was started: the agent, or the sudo that runs it.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it has said so far.
    pub(crate) fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Stops it in order and says what was seen.
    pub(crate) async fn stop(mut self) -> Result<Seen> {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("TERM");
        }
        match tokio::time::timeout(STOP, self.child.wait()).await {
            Ok(status) => drop(status?),
            Err(_) => bail!("atropos has not stopped {STOP:?} after SIGTERM"),
        }
        for reader in &mut self.readers {
            reader.await.context("reading the agent's output failed")?;
        }
        let seen = lock(&self.seen).clone();
        Ok(seen)
    }

    /// Sends a signal by pid; as root, since the agent is.
    fn signal(&self, signal: &str) {
        let Some(pid) = self.child.id() else {
            return;
        };
        let sent = as_root("kill")
            .and_then(|mut kill| process::capture(kill.args(["-s", signal, &pid.to_string()])));
        if let Err(error) = sent {
            eprintln!("demo: cannot end atropos, process {pid}: {error:#}");
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        for reader in &self.readers {
            reader.abort();
        }
        if let Ok(None) = self.child.try_wait() {
            self.signal("TERM");
            let patience = std::time::Instant::now() + STOP;
            while matches!(self.child.try_wait(), Ok(None)) {
                if std::time::Instant::now() > patience {
                    // sudo cannot pass this one on, so it is the last resort.
                    self.signal("KILL");
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Asks for the password once, while we still have the terminal.
pub(crate) fn ask_for_root() -> Result<()> {
    if is_root() {
        return Ok(());
    }
    process::run(std::process::Command::new("sudo").arg("--validate"))
}

async fn lines(from: impl AsyncRead + Unpin, heard: impl Fn(&str)) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        heard(&line);
    }
}

/// Listens to the agent.
struct Ear {
    story: Story,
    seen: Arc<Mutex<Seen>>,
    attached: watch::Sender<bool>,
}

impl Ear {
    fn hear(&self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Line::Attached { preset }) => {
                self.story
                    .tell(format!("atropos is attached, preset {preset}"));
                self.attached.send_replace(true);
            }
            Ok(Line::Effect { effect }) => self.effect(effect),
            Ok(Line::OrderSent(sent)) => {
                self.story.tell_at(
                    sent.sent_at_ns,
                    format!("atropos: command: {}", sent.command),
                );
                lock(&self.seen).commands.push(sent);
            }
            Ok(Line::Lost { count }) => {
                self.story.tell(format!("atropos: {count} events lost"));
                lock(&self.seen).lost += count;
            }
            Ok(Line::Probes { probes, level, to }) => {
                let shares = &mut lock(&self.seen).shares;
                for probe in probes {
                    shares.insert((level.clone(), probe), to.share());
                }
            }
            Ok(Line::Other) => {}
            Err(_) => self.story.tell(format!("atropos: {line}")),
        }
    }

    fn effect(&self, effect: Effect) {
        match effect {
            Effect::Cancel(_) => {}
            Effect::Level(level) => {
                lock(&self.seen).suspicions += usize::from(level == "suspect");
                self.story
                    .tell(format!("atropos: watching at level {level}"));
            }
            Effect::Overload {
                at_ns,
                state,
                reason,
            } => {
                self.story
                    .tell_at(at_ns, format!("atropos: overload: {state}: {reason}"));
            }
            Effect::Decision(decision) => {
                self.story.tell_at(
                    decision.at_ns,
                    format!("atropos: decision: {}", decision.summary),
                );
                lock(&self.seen).decisions.push(decision);
            }
            Effect::Outcome {
                at_ns,
                result,
                summary,
            } => {
                self.story
                    .tell_at(at_ns, format!("atropos: outcome: {result}: {summary}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> (Seen, bool) {
        let (attached, is_attached) = watch::channel(false);
        let ear = Ear {
            story: Story::begin(),
            seen: Arc::default(),
            attached,
        };
        for line in lines {
            ear.hear(line);
        }
        let seen = lock(&ear.seen).clone();
        (seen, *is_attached.borrow())
    }

    #[test]
    fn decisions_and_commands_are_taken_from_the_agents_lines() {
        let (seen, attached) = heard(&[
            r#"{"event":"attached","at_ns":1,"pid":7,"preset":"mariadb"}"#,
            r#"{"event":"effect","at_ns":2,"effect":{"level":"suspect"}}"#,
            r#"{"event":"effect","at_ns":2,"effect":{"overload":{"at_ns":2,"state":"resource","reason":"r"}}}"#,
            r#"{"event":"effect","at_ns":3,"effect":{"decision":{"decision":1,"at_ns":3,"breach_ns":2,"orders":[{"order":4,"task":{"id":9}}],"summary":"s"}}}"#,
            r#"{"event":"order_sent","at_ns":5,"order":4,"command":"KILL","sent_at_ns":5,"answered_at_ns":6,"result":"accepted"}"#,
            r#"{"event":"effect","at_ns":8,"effect":{"outcome":{"order":4,"at_ns":8,"id":9,"result":"released","summary":"s"}}}"#,
            r#"{"event":"lost","at_ns":9,"count":3}"#,
            r#"{"event":"stopped"}"#,
        ]);
        assert!(attached);
        assert_eq!(seen.lost, 3);
        assert_eq!(seen.decisions.len(), 1);
        assert_eq!(seen.decisions[0].orders[0].task.id, 9);
        assert_eq!(
            (seen.commands[0].sent_at_ns, seen.commands[0].answered_at_ns),
            (5, 6)
        );
    }

    #[test]
    fn a_line_that_is_not_ours_is_told_and_changes_nothing() {
        let (seen, attached) = heard(&["thread panicked", r#"{"event":"something_else"}"#, ""]);
        assert!(!attached);
        assert!(seen.decisions.is_empty() && seen.commands.is_empty());
    }
}
