//! Atropos at work on a private server: many short transactions, culprits that block them, and what becomes of both.
//!
//! Whatever it starts it stops: at the end, on an error, on Ctrl-C and SIGTERM. Only the agent runs as root.

pub(crate) mod clock;
pub(crate) mod culprit;
pub(crate) mod json;
pub(crate) mod load;
pub(crate) mod server;
pub(crate) mod story;
mod table;
pub(crate) mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use self::clock::{SECOND, now_ns};
use self::culprit::{BackupLock, ForgottenTransaction, Scene};
use self::json::{Case, Report, SETTLE_NS, Span};
use self::load::Load;
use self::server::Server;
use self::story::Story;
use self::watch::{Agent, Seen, ask_for_root};
use crate::build::build;
use crate::process::state_dir;
use crate::setup::{require_server, setup};

/// The first seconds of a server are not what it is like.
const WARM_UP: Duration = Duration::from_secs(3);
/// Length of the phase "before".
const CALM: Duration = Duration::from_secs(5);
/// How long the phase "after" is watched, once it has begun.
const AFTER: Duration = Duration::from_secs(5);
/// A scene that has not ended by then never will.
const PATIENCE: Duration = Duration::from_mins(3);

/// The verb `demo`.
#[derive(clap::Args)]
pub(crate) struct Demo {
    /// The same without Atropos, for comparison.
    #[arg(long)]
    without_atropos: bool,
    /// Write the result to this file, for programs.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show this case only.
    #[arg(long, value_enum)]
    case: Vec<Which>,
    /// Play each case this many times, and sum up over the runs.
    #[arg(long, default_value_t = 1, value_name = "N")]
    runs: u32,
    /// Optimise both halves before they are run.
    #[arg(long)]
    release: bool,
    /// The SLO that the agent is given.
    #[arg(long, default_value = "p99=50ms")]
    slo: String,
    /// Run this in the agent's place, built already.
    #[arg(long, value_name = "PROGRAM", hide = true)]
    agent: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// A backup lock behind a long update.
    C1,
    /// An ALTER behind a forgotten transaction.
    M01,
}

impl Which {
    fn scene(self) -> Box<dyn Scene> {
        match self {
            Self::C1 => Box::new(BackupLock),
            Self::M01 => Box::new(ForgottenTransaction),
        }
    }
}

impl Demo {
    /// Sets up, builds, plays, and says how it went.
    pub(crate) fn run(&self) -> Result<()> {
        let binary = self.prepare()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let report = runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            let mut hang_up = signal(SignalKind::hangup())?;
            // Dropping what plays stops everything that it started.
            tokio::select! {
                report = self.play(binary.as_deref()) => report,
                _ = interrupt.recv() => bail!("interrupted; everything has been stopped"),
                _ = terminate.recv() => bail!("terminated; everything has been stopped"),
                _ = hang_up.recv() => bail!("the terminal is gone; everything has been stopped"),
            }
        })?;
        println!("\n{}", table::table(&report));
        if binary.is_some() {
            let folder = state_dir().join("demo");
            println!(
                "every decision with its reasons: {}/audit-*.jsonl",
                folder.display()
            );
        }
        if let Some(file) = &self.json {
            report.write(file)?;
        }
        Ok(())
    }

    /// The agent's binary, or `None` for a run without it.
    fn prepare(&self) -> Result<Option<PathBuf>> {
        if self.without_atropos || self.agent.is_some() {
            require_server()?;
            return Ok(self.agent.clone());
        }
        setup(None)?;
        require_server()?;
        let binary = build(self.release)?;
        ask_for_root()?;
        Ok(Some(binary))
    }

    async fn play(&self, binary: Option<&Path>) -> Result<Report> {
        let story = Story::begin();
        story.tell("starting a private MariaDB and filling its tables");
        let server = Server::start().await?;
        let mut report = Report::new(binary.is_some());
        let cases = if self.case.is_empty() {
            Which::value_variants()
        } else {
            &self.case
        };
        for case in cases {
            let scene = case.scene();
            for run in 1..=self.runs {
                let which = if self.runs > 1 {
                    format!(", run {run} of {}", self.runs)
                } else {
                    String::new()
                };
                story.tell(format!("case {}{which}: {}", scene.id(), scene.title()));
                scene.prepare(&server).await?;
                report
                    .cases
                    .push(self.case(scene.as_ref(), &server, binary, &story).await?);
            }
        }
        Ok(report)
    }

    async fn case(
        &self,
        scene: &dyn Scene,
        server: &Server,
        binary: Option<&Path>,
        story: &Story,
    ) -> Result<Case> {
        story.tell(format!(
            "load: {} requests a second over {} connections, each due at its time whatever became of the others",
            load::RATE,
            load::CONNECTIONS
        ));
        let load = Load::start(server).await?;
        story.phase("warming up");
        let playing = async {
            sleep(WARM_UP).await;
            let agent = match binary {
                Some(binary) => {
                    Some(Agent::start(binary, &self.arguments(scene, server)?, story).await?)
                }
                None => None,
            };
            story.phase("calm");
            let from_ns = now_ns();
            sleep(CALM).await;
            story.phase("the culprits are in");
            let acts = timeout(PATIENCE, scene.play(server, story))
                .await
                .with_context(|| {
                    format!("case {} has not ended after {PATIENCE:?}", scene.id())
                })??;
            story.phase("released");
            sleep(Duration::from_nanos(SETTLE_NS) + AFTER).await;
            let span = Span {
                from_ns,
                to_ns: now_ns(),
            };
            let seen = match agent {
                Some(agent) => agent.stop().await?,
                None => Seen::default(),
            };
            let case = Case::new(
                scene.id(),
                scene.expected(),
                &span,
                &acts,
                &seen,
                &load.samples(),
            );
            story.phase("clearing up");
            timeout(PATIENCE, acts.leftover)
                .await
                .context("the culprits' work does not end")??;
            Ok(case)
        };
        tokio::select! {
            case = playing => case,
            () = each_second(&load, story) => bail!("the clock stopped"),
        }
    }

    /// What the agent is told.
    fn arguments(&self, scene: &dyn Scene, server: &Server) -> Result<Vec<String>> {
        let folder = state_dir().join("demo");
        let audit = folder.join(format!("audit-{}.jsonl", scene.id()));
        // Made by us, so that it belongs to the invoking user although the agent is root.
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&audit, ""))
            .with_context(|| format!("cannot write {}", audit.display()))?;
        let words = [
            "run",
            "--pid",
            &server.pid().to_string(),
            "--socket",
            &server.socket().display().to_string(),
        ]
        .map(str::to_owned);
        let more = [
            "--user",
            "root",
            "--enforce",
            "--slo",
            &self.slo,
            "--json",
            "--audit",
            &audit.display().to_string(),
        ]
        .map(str::to_owned);
        Ok(words.into_iter().chain(more).collect())
    }
}

/// Tells how the victims fare, once a second, for ever.
async fn each_second(load: &Load, story: &Story) {
    let mut from_ns = now_ns();
    loop {
        sleep(Duration::from_nanos(
            (from_ns + SECOND).saturating_sub(now_ns()),
        ))
        .await;
        let to_ns = now_ns();
        story.tell_at(
            to_ns,
            table::second(&load.samples(), from_ns, to_ns, story.current_phase()),
        );
        from_ns = to_ns;
    }
}
