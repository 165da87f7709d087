//! `bench incidents`: the demo's cases and a late attach, over and over, each run with a load and an agent of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use mysql_async::prelude::Queryable as _;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};

use super::outcome::{Outcome, Run, Times};
use super::{Common, SCHEMA_VERSION, late, run_arguments, until_interrupted};
use crate::demo::clock::now_ns;
use crate::demo::culprit::{BackupLock, ForgottenTransaction, Scene};
use crate::demo::json::{Case, SETTLE_NS, Span};
use crate::demo::load::{self, Load};
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// A backup lock behind a long update.
    C1,
    /// An ALTER behind a forgotten transaction.
    M01,
    /// The same as m01, found by an agent that starts long after every connection of the pool is blocked.
    Late,
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
pub(super) struct Stage<'a> {
    pub(super) server: &'a Server,
    pub(super) binary: &'a Path,
    pub(super) slo: &'a str,
    pub(super) story: &'a Story,
    /// Age of the stall in the case "late".
    pub(super) stall: Duration,
}

impl Incidents {
    pub(super) fn run(&self) -> Result<()> {
        let binary = self.common.prepare()?;
        let cases = until_interrupted(self.play(&binary))?;
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

    async fn play(&self, binary: &Path) -> Result<Vec<Outcome>> {
        println!("starting a private MariaDB and filling its tables");
        let server = Server::start().await?;
        let story = if self.tell {
            Story::begin()
        } else {
            Story::silent()
        };
        let (slo, stall) = (self.slo.as_str(), Duration::from_secs(self.stall));
        let stage = Stage {
            server: &server,
            binary,
            slo,
            story: &story,
            stall,
        };
        let all = Which::value_variants();
        let cases = if self.case.is_empty() {
            all
        } else {
            &self.case
        };
        let mut outcomes = Vec::new();
        for case in cases {
            let (id, expected) = case.about();
            let mut runs = Vec::new();
            for number in 1..=self.runs {
                let run = timeout(PATIENCE + stall, case.play(&stage))
                    .await
                    .context("it does not end");
                let run = run.and_then(|run| run).unwrap_or_else(|error| Run {
                    failure: Some(format!("{error:#}")),
                    ..Run::default()
                });
                println!("{id} {number:>3}: {}", told(&run));
                runs.push(run);
                tidy(&server).await?;
            }
            outcomes.push(Outcome::new(id, expected, runs));
        }
        Ok(outcomes)
    }
}

impl Which {
    fn scene(self) -> Option<Box<dyn Scene>> {
        match self {
            Self::C1 => Some(Box::new(BackupLock)),
            Self::M01 => Some(Box::new(ForgottenTransaction)),
            Self::Late => None,
        }
    }

    /// Its id, and the culprit whose ending is right.
    fn about(self) -> (&'static str, &'static str) {
        self.scene().map_or((late::ID, late::EXPECTED), |scene| {
            (scene.id(), scene.expected())
        })
    }

    async fn play(self, stage: &Stage<'_>) -> Result<Run> {
        match self.scene() {
            Some(scene) => incident(scene.as_ref(), stage).await,
            None => late::run(stage).await,
        }
    }
}

/// One run of one of the demo's scenes.
async fn incident(scene: &dyn Scene, stage: &Stage<'_>) -> Result<Run> {
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
    let case = Case::new(
        scene.id(),
        scene.expected(),
        &span,
        &acts,
        &seen,
        &load.samples(),
    );
    drop(load);
    // The long update is left to end by itself, since undoing it would take as long; a forgotten session is just dropped.
    if scene.id() == BackupLock.id() {
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

fn measured(case: &Case, seen: &Seen) -> Run {
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

/// Puts the server back to how it was: nobody there but us, and no column of the ALTER.
async fn tidy(server: &Server) -> Result<()> {
    let mut connection = server.connect("root").await?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let others: Vec<u64> = connection
            .query("SELECT id FROM information_schema.processlist WHERE user IN ('shop', 'batch', 'backup', 'report', 'deploy')")
            .await?;
        if others.is_empty() {
            break;
        }
        if Instant::now() > deadline {
            bail!("sessions {others:?} of the run before do not end");
        }
        for id in others {
            // One that has just gone is as good.
            let _ = connection.query_drop(format!("KILL CONNECTION {id}")).await;
        }
        sleep(Duration::from_millis(50)).await;
    }
    connection
        .query_drop("ALTER TABLE demo.t1 DROP COLUMN IF EXISTS note")
        .await?;
    connection.disconnect().await?;
    Ok(())
}
