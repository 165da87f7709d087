//! Atropos at work on a private server: many short transactions, culprits that block them, and what becomes of both.
//!
//! The server is MariaDB or PostgreSQL; where none can be had, the sample server, at which the same shapes are played.
//!
//! Whatever it starts it stops: at the end, on an error, on Ctrl-C and SIGTERM. Only the agent runs as root.

pub(crate) mod cast;
pub(crate) mod clock;
pub(crate) mod folder;
pub(crate) mod json;
pub(crate) mod load;
pub(crate) mod pg_server;
mod pg_shop;
pub(crate) mod place;
mod sample;
pub(crate) mod scene;
pub(crate) mod server;
mod shop;
mod start;
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

use self::cast::Case;
use self::clock::{SECOND, now_ns};
use self::json::{Played, Report, SETTLE_NS, Span};
use self::load::Load;
use self::pg_server::PgServer;
use self::place::Place;
use self::sample::{Sample, build_sample};
use self::scene::Scene;
use self::server::Server;
use self::story::Story;
use self::watch::{Agent, Seen, ask_for_root};
use crate::build::build;
use crate::process::state_dir;
use crate::setup::{
    require_postgresql, require_server, server_is_there, setup, setup_without_server,
};

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
    /// Play at this server [default: mariadb; sample where no MariaDB can be had].
    #[arg(value_enum, value_name = "SERVER")]
    at: Option<Kind>,
    /// The same without Atropos, for comparison.
    #[arg(long)]
    without_atropos: bool,
    /// Write the result to this file, for programs.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The same as naming the server first.
    #[arg(long, value_enum, conflicts_with = "at")]
    server: Option<Kind>,
    /// Show this case only (may be given several times) [default: all of the server].
    #[arg(long, value_enum)]
    case: Vec<Case>,
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

/// A server that the demo can be played at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A private MariaDB.
    Mariadb,
    /// A private PostgreSQL.
    Postgresql,
    /// The sample server of this repository, which needs nothing.
    Sample,
}

impl Kind {
    /// The preset for it.
    pub(crate) fn preset(self) -> &'static str {
        match self {
            Self::Mariadb => "mariadb",
            Self::Postgresql => "postgresql",
            Self::Sample => "sample",
        }
    }
}

/// What is needed, ready to be started.
struct Programs {
    /// The agent; `None` for a run without it.
    agent: Option<PathBuf>,
    /// The server.
    server: Kind,
    /// The sample server's program, if it is the one.
    sample: Option<PathBuf>,
}

impl Demo {
    /// Sets up, builds, plays, and says how it went.
    pub(crate) fn run(&self) -> Result<()> {
        let programs = self.prepare()?;
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
                report = self.play(&programs) => report,
                _ = interrupt.recv() => bail!("interrupted; everything has been stopped"),
                _ = terminate.recv() => bail!("terminated; everything has been stopped"),
                _ = hang_up.recv() => bail!("the terminal is gone; everything has been stopped"),
            }
        })?;
        println!("\n{}", table::table(&report));
        if programs.agent.is_some() {
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

    /// Sets up and builds what will be played with.
    fn prepare(&self) -> Result<Programs> {
        let wanted = self.at.or(self.server);
        let ready = self.without_atropos || self.agent.is_some();
        if !ready {
            match wanted {
                Some(Kind::Sample) => setup_without_server()?,
                Some(Kind::Mariadb | Kind::Postgresql) | None => setup(None)?,
            };
        }
        match wanted {
            Some(Kind::Mariadb) => {
                require_server().context("cannot play at MariaDB; `demo sample` needs none")?;
            }
            Some(Kind::Postgresql) => drop(require_postgresql()?),
            Some(Kind::Sample) => {}
            None if server_is_there() => {}
            None => {
                println!("demo: no MariaDB can be had here: the same shapes, at the sample server");
            }
        }
        let fallback = if server_is_there() {
            Kind::Mariadb
        } else {
            Kind::Sample
        };
        let server = wanted.unwrap_or(fallback);
        self.scenes(server)?;
        let agent = if ready {
            self.agent.clone()
        } else {
            Some(build(self.release)?)
        };
        let sample = (server == Kind::Sample)
            .then(|| build_sample(self.release))
            .transpose()?;
        if !ready {
            ask_for_root()?;
        }
        Ok(Programs {
            agent,
            server,
            sample,
        })
    }

    /// What will be played at that server.
    fn scenes(&self, server: Kind) -> Result<Vec<Scene>> {
        if self.case.is_empty() {
            return Ok(Case::all_at(server).map(|(_, scene)| scene).collect());
        }
        let wanted = self.case.iter().map(|case| {
            let there: Vec<String> = Case::all_at(server)
                .map(|(case, _)| cast::word(case))
                .collect();
            case.at(server).with_context(|| {
                format!(
                    "case {} is not played at {server:?}; there are: {}",
                    cast::word(*case),
                    there.join(", ")
                )
            })
        });
        wanted.collect()
    }

    async fn play(&self, programs: &Programs) -> Result<Report> {
        let story = Story::begin();
        let agent = programs.agent.as_deref();
        let scenes = self.scenes(programs.server)?;
        match (programs.server, &programs.sample) {
            (Kind::Sample, Some(program)) => {
                let server = Sample::start(program, &story)?;
                self.show(&scenes, &server, agent, &story).await
            }
            (Kind::Postgresql, _) => {
                story.tell("starting a private PostgreSQL and filling its tables");
                let server = PgServer::start().await?;
                self.show(&scenes, &server, agent, &story).await
            }
            (Kind::Mariadb | Kind::Sample, _) => {
                story.tell("starting a private MariaDB and filling its tables");
                let server = Server::start().await?;
                self.show(&scenes, &server, agent, &story).await
            }
        }
    }

    /// Plays every scene at that server.
    async fn show<P: Place>(
        &self,
        scenes: &[Scene],
        server: &P,
        agent: Option<&Path>,
        story: &Story,
    ) -> Result<Report> {
        let mut report = Report::new(agent.is_some());
        for scene in scenes {
            for run in 1..=self.runs {
                let which = if self.runs > 1 {
                    format!(", run {run} of {}", self.runs)
                } else {
                    String::new()
                };
                story.tell(format!("case {}{which}: {}", scene.id, scene.title));
                scene.prepare(server).await?;
                report
                    .cases
                    .push(self.case(scene, server, agent, story).await?);
            }
        }
        Ok(report)
    }

    async fn case<P: Place>(
        &self,
        scene: &Scene,
        server: &P,
        binary: Option<&Path>,
        story: &Story,
    ) -> Result<Played> {
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
                    Some(Agent::start(binary, &self.arguments(scene.id, server)?, story).await?)
                }
                None => None,
            };
            story.phase("calm");
            let from_ns = now_ns();
            sleep(CALM).await;
            story.phase("the culprits are in");
            let acts = timeout(PATIENCE, scene.play(server, story))
                .await
                .with_context(|| format!("case {} has not ended after {PATIENCE:?}", scene.id))??;
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
            let case = Played::new(scene, &span, &acts, &seen, &load.samples());
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
    fn arguments(&self, id: &str, server: &impl Place) -> Result<Vec<String>> {
        let folder = state_dir().join("demo");
        let audit = folder.join(format!("audit-{id}.jsonl"));
        // Made by us, so that it belongs to the invoking user although the agent is root.
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&audit, ""))
            .with_context(|| format!("cannot write {}", audit.display()))?;
        let pid = server.pid().to_string();
        let audit = audit.display().to_string();
        let mut words = ["run", "--pid", &pid].map(str::to_owned).to_vec();
        words.extend(server.reach());
        let more = ["--enforce", "--slo", &self.slo, "--json", "--audit", &audit];
        words.extend(more.map(str::to_owned));
        Ok(words)
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
