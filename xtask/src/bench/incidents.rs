//! `bench incidents`: the demo's cases and a late attach, over and over, each run with a load and an agent of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use super::outcome::{Outcome, Run, Times};
use super::tidy::Tidy;
use super::{Common, SCHEMA_VERSION, late, run_arguments, until_interrupted};
use crate::demo::Kind;
use crate::demo::cast::Case;
use crate::demo::clock::now_ns;
use crate::demo::json::{Played, SETTLE_NS, Span};
use crate::demo::load::{self, Load};
use crate::demo::pg_server::PgServer;
use crate::demo::scene::Scene;
use crate::demo::server::Server;
use crate::demo::story::Story;
use crate::demo::watch::{Agent, Seen};

/// The first moments of a load are not what it is like.
const WARM_UP: Duration = Duration::from_secs(1);
/// Length of the phase "before".
const CALM: Duration = Duration::from_secs(3);
/// How long the phase "after" is watched, once it has begun.
const AFTER: Duration = Duration::from_secs(3);
/// A run that has not ended by then never will.
const PATIENCE: Duration = Duration::from_mins(3);

/// The verb `bench incidents`.
#[derive(clap::Args)]
pub(super) struct Incidents {
    /// Runs of each case.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// This case only (may be given several times).
    #[arg(long, value_enum)]
    case: Vec<Which>,
    /// The SLO that the agent is given.
    #[arg(long, default_value = "p99=50ms")]
    slo: String,
    /// Age of the stall when the agent starts, in the case "late".
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    stall: u64,
    /// Tell what happens in each run.
    #[arg(long)]
    tell: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// MariaDB: a backup lock behind a long update.
    C1,
    /// MariaDB: an ALTER behind a forgotten transaction.
    M01,
    /// MariaDB: the same as m01, found by an agent that starts long after every connection of the pool is blocked.
    Late,
    /// PostgreSQL: a batch locks a table and then updates every row of it.
    C6,
    /// PostgreSQL: an ALTER behind a session that is idle in its transaction.
    Idle,
}

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    kind: &'static str,
    slo: &'a str,
    /// Requests a second that are offered.
    rate: u64,
    /// Connections that they share.
    connections: usize,
    /// Age of the stall in the case "late", seconds.
    late_stall_s: u64,
    cases: Vec<Outcome>,
}

/// What every run is given.
pub(super) struct Stage<'a, P = Server> {
    pub(super) server: &'a P,
    pub(super) binary: &'a Path,
    pub(super) slo: &'a str,
    pub(super) story: &'a Story,
    /// Age of the stall in the case "late".
    pub(super) stall: Duration,
}

impl Incidents {
    pub(super) fn run(&self) -> Result<()> {
        let servers: Vec<Kind> = [Kind::Mariadb, Kind::Postgresql]
            .into_iter()
            .filter(|server| self.cases(*server).next().is_some())
            .collect();
        let binary = self.common.prepare(&servers)?;
        let cases = until_interrupted(self.play(&binary, &servers))?;
        for case in &cases {
            println!("\n{}", case.table());
        }
        self.common.write(&Report {
            schema_version: SCHEMA_VERSION,
            kind: "incidents",
            slo: &self.slo,
            rate: load::RATE,
            connections: load::CONNECTIONS,
            late_stall_s: self.stall,
            cases,
        })
    }

    /// The cases that were asked for, as far as they are played at that server.
    fn cases(&self, server: Kind) -> impl Iterator<Item = Which> {
        let all = Which::value_variants().iter().copied();
        all.filter(move |case| case.server() == server)
            .filter(|case| self.case.is_empty() || self.case.contains(case))
    }

    async fn play(&self, binary: &Path, servers: &[Kind]) -> Result<Vec<Outcome>> {
        let story = if self.tell {
            Story::begin()
        } else {
            Story::silent()
        };
        let mut outcomes = Vec::new();
        if servers.contains(&Kind::Mariadb) {
            println!("starting a private MariaDB and filling its tables");
            let server = Server::start().await?;
            let stage = self.stage(&server, binary, &story);
            for case in self.cases(Kind::Mariadb) {
                let run = async || match case.scene() {
                    Some(scene) => incident(&scene, &stage).await,
                    None => late::run(&stage).await,
                };
                outcomes.push(self.runs(case, &server, run).await?);
            }
        }
        if servers.contains(&Kind::Postgresql) {
            println!("starting a private PostgreSQL and filling its tables");
            let server = PgServer::start().await?;
            let stage = self.stage(&server, binary, &story);
            for (case, scene) in self
                .cases(Kind::Postgresql)
                .filter_map(|case| Some((case, case.scene()?)))
            {
                let run = async || incident(&scene, &stage).await;
                outcomes.push(self.runs(case, &server, run).await?);
            }
        }
        Ok(outcomes)
    }

    fn stage<'a, P>(&'a self, server: &'a P, binary: &'a Path, story: &'a Story) -> Stage<'a, P> {
        Stage {
            server,
            binary,
            slo: &self.slo,
            story,
            stall: Duration::from_secs(self.stall),
        }
    }

    /// All runs of one case.
    async fn runs(
        &self,
        case: Which,
        server: &impl Tidy,
        one: impl AsyncFn() -> Result<Run>,
    ) -> Result<Outcome> {
        let (id, expected) = case.about();
        let mut runs = Vec::new();
        for number in 1..=self.runs {
            let run = timeout(PATIENCE + Duration::from_secs(self.stall), one())
                .await
                .context("it does not end");
            let run = run.and_then(|run| run).unwrap_or_else(|error| Run {
                failure: Some(format!("{error:#}")),
                ..Run::default()
            });
            println!("{id} {number:>3}: {}", told(&run));
            runs.push(run);
            server.tidy(PATIENCE).await?;
        }
        Ok(Outcome::new(id, expected, runs))
    }
}

impl Which {
    fn server(self) -> Kind {
        match self {
            Self::C1 | Self::M01 | Self::Late => Kind::Mariadb,
            Self::C6 | Self::Idle => Kind::Postgresql,
        }
    }

    /// The demo's scene; nothing for the case that is none of the demo's.
    fn scene(self) -> Option<Scene> {
        let case = match self {
            Self::C1 => Case::C1,
            Self::M01 => Case::M01,
            Self::C6 => Case::C6,
            Self::Idle => Case::Idle,
            Self::Late => return None,
        };
        case.at(self.server())
    }

    /// Its id, and the culprit whose ending is right.
    fn about(self) -> (&'static str, &'static str) {
        self.scene().map_or((late::ID, late::EXPECTED), |scene| {
            (scene.id, scene.expected)
        })
    }
}

/// One run of one of the demo's scenes.
async fn incident(scene: &Scene, stage: &Stage<'_, impl Tidy>) -> Result<Run> {
    let load = Load::start(stage.server).await?;
    sleep(WARM_UP).await;
    let arguments = run_arguments(stage.server, stage.slo, &["--enforce"]);
    let agent = Agent::start(stage.binary, &arguments, stage.story).await?;
    let from_ns = now_ns();
    sleep(CALM).await;
    let acts = scene.play(stage.server, stage.story).await?;
    let leftover = AbortOnDrop(acts.leftover.abort_handle());
    sleep(Duration::from_nanos(SETTLE_NS) + AFTER).await;
    let span = Span {
        from_ns,
        to_ns: now_ns(),
    };
    let seen = agent.stop().await?;
    let case = Played::new(scene, &span, &acts, &seen, &load.samples());
    drop(load);
    // A long update is left to end by itself, since undoing it would take as long; a forgotten session is just dropped.
    if scene.is_left_to_end() {
        acts.leftover
            .await
            .context("the culprits' work does not end")?;
    }
    drop(leftover);
    Ok(measured(&case, &seen))
}

/// Stops work that would go on after its run.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn measured(case: &Played, seen: &Seen) -> Run {
    let right_target = case.target_chosen.as_deref() == Some(case.target_expected);
    Run {
        right_target: right_target && case.wrong_cancels == 0,
        target_chosen: case.target_chosen.clone(),
        wrong_cancels: case.wrong_cancels,
        second_kills: second_kills(seen),
        why_right: None,
        failure: None,
        times: Times {
            trouble_to_decision_ms: case.trouble_to_decision_ms,
            breach_to_decision_ms: case.breach_to_decision_ms,
            decision_to_sent_ms: decision_to_sent_ms(seen),
            decision_to_answer_ms: case.decision_to_command_ms,
            command_to_release_ms: case.command_to_release_ms,
            recovery_ms: case.recovery_ms,
            stall_ms: Some(case.stall_ms),
            ..Times::default()
        },
    }
}

/// Commands after the first, whoever they named.
pub(super) fn second_kills(seen: &Seen) -> usize {
    seen.commands.len().saturating_sub(1)
}

/// From the first decision that orders something to its command's leaving.
pub(super) fn decision_to_sent_ms(seen: &Seen) -> Option<f64> {
    let decision = seen
        .decisions
        .iter()
        .find(|decision| !decision.orders.is_empty())?;
    let order = decision.orders.first()?.order;
    let command = seen
        .commands
        .iter()
        .find(|command| command.order == order)?;
    Some(ms_between(decision.at_ns, command.sent_at_ns))
}

/// Milliseconds from one time to a later one.
pub(super) fn ms_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

/// A run in a line.
fn told(run: &Run) -> String {
    if let Some(failure) = &run.failure {
        return format!("came to nothing: {failure}");
    }
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    let times = &run.times;
    let decided = times.breach_to_decision_ms.or(times.start_to_decision_ms);
    format!(
        "{} ended{}; decided after {}, released {} after the command, {} wrong cancels",
        run.target_chosen.as_deref().unwrap_or("nobody"),
        if run.right_target { "" } else { " (NOT RIGHT)" },
        ms(decided),
        ms(times.command_to_release_ms),
        run.wrong_cancels
    )
}
