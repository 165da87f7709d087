//! The case "late": the stall is old and the whole pool is blocked when the agent starts.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use serde_json::Value;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::incidents::{Stage, decision_to_sent_ms, ms_between, second_kills};
use super::outcome::{Run, Times};
use super::{run_arguments, shown};
use crate::demo::clock::now_ns;
use crate::demo::load::{CONNECTIONS, Load};
use crate::demo::place::is_hurt;
use crate::demo::server::Server;
use crate::demo::watch::{Agent, Seen};
use crate::process::as_root;

/// Its id.
pub(super) const ID: &str = "late";
/// The culprit whose ending is right.
pub(super) const EXPECTED: &str = "forgotten";

/// How long the pool may take to be blocked as a whole, and the agent to end the stall.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the load is watched after the release: an error of a victim shows at once.
const AFTER: Duration = Duration::from_secs(1);

/// The culprits.
struct Stall {
    forgotten: Conn,
    alter: JoinHandle<(u64, Result<(), mysql_async::Error>)>,
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.alter.abort();
    }
}

/// One run.
pub(super) async fn run(stage: &Stage<'_>) -> Result<Run> {
    let load = Load::start(stage.server).await?;
    let mut stall = begin(stage.server).await?;
    let since_ns = now_ns();
    stage.story.tell(format!(
        "{CONNECTIONS} connections are blocked; waiting {:?}",
        stage.stall
    ));
    sleep(stage.stall).await;
    let forgotten = u64::from(stall.forgotten.id());
    let (why_right, start_to_why_ms) = why(stage, forgotten).await?;
    let started_ns = now_ns();
    let arguments = run_arguments(stage.server, stage.slo, &["--enforce"]);
    let agent = Agent::start(stage.binary, &arguments, stage.story).await?;
    let released = timeout(PATIENCE, &mut stall.alter).await;
    sleep(AFTER).await;
    let seen = agent.stop().await?;
    let samples = load.samples();
    drop(load);
    let Ok(released) = released else {
        bail!(
            "the stall goes on {PATIENCE:?} after the agent's start; it made {} decisions",
            seen.decisions.len()
        );
    };
    let (release_ns, _) = released.context("the ALTER came to nothing")?;
    let hurt = samples
        .iter()
        .filter(|sample| is_hurt(sample.error))
        .count();
    let mut run = measured(&seen, forgotten, hurt, release_ns);
    run.why_right = Some(why_right);
    run.times.start_to_why_ms = Some(start_to_why_ms);
    run.times.stall_ms = Some(ms_between(since_ns, release_ns));
    let decision = seen
        .decisions
        .iter()
        .find(|decision| !decision.orders.is_empty());
    run.times.start_to_decision_ms =
        decision.map(|decision| ms_between(started_ns, decision.at_ns));
    Ok(run)
}

fn measured(seen: &Seen, forgotten: u64, hurt: usize, release_ns: u64) -> Run {
    let named: Vec<u64> = seen
        .decisions
        .iter()
        .flat_map(|decision| &decision.orders)
        .map(|order| order.task.id)
        .collect();
    let wrong_cancels = hurt.max(named.iter().filter(|id| **id != forgotten).count());
    let first = named.first();
    let command = seen.commands.first();
    Run {
        right_target: first == Some(&forgotten) && wrong_cancels == 0,
        target_chosen: first.map(|id| {
            if *id == forgotten {
                EXPECTED.to_owned()
            } else {
                format!("session {id}")
            }
        }),
        wrong_cancels,
        second_kills: second_kills(seen),
        times: Times {
            decision_to_sent_ms: decision_to_sent_ms(seen),
            command_to_release_ms: command
                .map(|command| ms_between(command.sent_at_ns, release_ns)),
            ..Times::default()
        },
        ..Run::default()
    }
}

/// Lets the culprits in and waits until every connection of the pool is blocked.
async fn begin(server: &Server) -> Result<Stall> {
    let mut watcher = server.connect("root").await?;
    let plugin: Option<u64> = watcher
        .query_first("SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'METADATA_LOCK_INFO'")
        .await?;
    if plugin != Some(0) {
        bail!("METADATA_LOCK_INFO is loaded: this case is about a server without it");
    }
    let mut forgotten = server.connect("report").await?;
    forgotten.query_drop("BEGIN").await?;
    forgotten
        .query_drop("SELECT k FROM demo.t1 WHERE id = 1")
        .await?;
    let mut deploy = server.connect("deploy").await?;
    let alter = tokio::spawn(async move {
        let done = deploy
            .query_drop("ALTER TABLE demo.t1 ADD COLUMN note INT")
            .await;
        (now_ns(), done)
    });
    let stall = Stall { forgotten, alter };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let blocked: Option<usize> = watcher
            .query_first("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'shop' AND state LIKE 'Waiting for%lock'")
            .await?;
        if blocked == Some(CONNECTIONS) {
            break;
        }
        if Instant::now() > deadline {
            bail!("only {blocked:?} of {CONNECTIONS} connections are blocked after {PATIENCE:?}");
        }
        sleep(Duration::from_millis(50)).await;
    }
    watcher.disconnect().await?;
    Ok(stall)
}

/// Asks `atropos why`: whether it names the right session first, and how long it took, milliseconds.
async fn why(stage: &Stage<'_>, forgotten: u64) -> Result<(bool, f64)> {
    let mut command = Command::from(as_root(stage.binary)?);
    command
        .args(["why", "--json", "--pid", &stage.server.pid().to_string()])
        .kill_on_drop(true);
    let started_ns = now_ns();
    let output = command
        .output()
        .await
        .with_context(|| format!("cannot start {}", shown(stage.binary)))?;
    let took_ms = ms_between(started_ns, now_ns());
    if !output.status.success() {
        bail!(
            "atropos why failed: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let report: Value =
        serde_json::from_slice(&output.stdout).context("atropos why does not answer in JSON")?;
    Ok((names_first(&report, forgotten), took_ms))
}

/// Whether this session is the first root, the first candidate, and chosen.
fn names_first(report: &Value, id: u64) -> bool {
    let first = &report["candidates"][0];
    report["roots"][0]["id"] == id && first["id"] == id && first["but"].is_null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn why_is_right_only_if_the_holder_is_root_and_chosen() {
        let report = |root: u64, candidate: u64, but: Option<&str>| json!({"roots": [{"id": root}], "candidates": [{"id": candidate, "but": but}]});
        assert!(names_first(&report(7, 7, None), 7));
        assert!(!names_first(&report(7, 8, None), 7));
        assert!(!names_first(&report(8, 7, None), 7));
        assert!(!names_first(&report(7, 7, Some("it is protected")), 7));
        assert!(!names_first(&json!({"roots": [], "candidates": []}), 7));
    }
}
