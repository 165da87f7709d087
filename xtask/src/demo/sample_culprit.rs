//! The demo's two shapes at the sample server; each ends by itself, as at MariaDB.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::clock::now_ns;
use super::culprit::{Acts, Culprit, FORGOTTEN, Play, REMEMBERED, Scene};
use super::place::fate;
use super::sample::Sample;
use super::story::Story;

/// How long the scan runs if nobody ends it.
const SCAN: Duration = Duration::from_secs(10);
/// How far it has come when somebody queues behind it.
const HEAD_START: Duration = Duration::from_millis(500);

/// Whoever wants the table alone waits for a long scan, and everybody waits for him.
pub(crate) struct LongScan;

impl Scene<Sample> for LongScan {
    fn id(&self) -> &'static str {
        "s-c1"
    }

    fn title(&self) -> &'static str {
        "an EXCLUSIVE queues behind a long SCAN of its table, and every reader of it queues behind the EXCLUSIVE"
    }

    fn expected(&self) -> &'static str {
        // It only reads, so nothing is to be undone, as there is for MariaDB's long update; and all go on, the EXCLUSIVE too.
        // Without the EXCLUSIVE the readers would go on as well, until the next one queues.
        "scan"
    }

    fn play<'a>(&'a self, server: &'a Sample, story: &'a Story) -> Play<'a> {
        Box::pin(long_scan(server, story))
    }
}

async fn long_scan(server: &Sample, story: &Story) -> Result<Acts> {
    let mut batch = server.connect("batch").await?;
    let mut backup = server.connect("backup").await?;
    let culprits = named([("scan", batch.id()), ("exclusive", backup.id())]);
    let calm_until_ns = now_ns();
    tell_of(story, batch.id(), "batch", "SCAN t1, a long one");
    let for_scan = story.clone();
    let leftover = tokio::spawn(async move {
        let done = batch.command(format!("SCAN t1 {}", SCAN.as_millis())).await;
        let what = format!("the SCAN {}", fate(done));
        tell_of(&for_scan, batch.id(), "batch", &what);
    });
    sleep(HEAD_START).await;
    let trouble_ns = now_ns();
    tell_of(story, backup.id(), "backup", "EXCLUSIVE t1");
    let done = backup.command("EXCLUSIVE t1 10").await;
    let release_ns = now_ns();
    let what = format!("the EXCLUSIVE {}", fate(done));
    tell_of(story, backup.id(), "backup", &what);
    Ok(Acts {
        calm_from_ns: 0,
        calm_until_ns,
        trouble_ns,
        release_ns,
        culprits,
        leftover,
    })
}

/// A transaction that somebody forgot keeps a table's lock; an EXCLUSIVE queues behind it, and every reader behind that.
pub(crate) struct ForgottenSession;

impl Scene<Sample> for ForgottenSession {
    fn id(&self) -> &'static str {
        "s-m01"
    }

    fn title(&self) -> &'static str {
        "a session forgets its transaction; an EXCLUSIVE queues behind it, and every reader of the table behind that"
    }

    fn expected(&self) -> &'static str {
        "forgotten"
    }

    fn play<'a>(&'a self, server: &'a Sample, story: &'a Story) -> Play<'a> {
        Box::pin(forgotten_session(server, story))
    }
}

async fn forgotten_session(server: &Sample, story: &Story) -> Result<Acts> {
    let mut report = server.connect("report").await?;
    let mut deploy = server.connect("deploy").await?;
    let culprits = named([("forgotten", report.id()), ("exclusive", deploy.id())]);
    let what = "BEGIN, GET a key of t1, and then nothing";
    tell_of(story, report.id(), "report", what);
    for line in ["BEGIN", "GET t1 k1"] {
        let done = report.command(line).await;
        done.map_err(|code| anyhow!("the sample server refuses {line}: error {code}"))?;
    }
    sleep(FORGOTTEN).await;
    let (freed, is_free) = oneshot::channel();
    let for_report = story.clone();
    let leftover = tokio::spawn(async move {
        // Once others are free, there is nothing more to see in waiting.
        let _ = timeout(REMEMBERED, is_free).await;
        let done = report.command("COMMIT").await;
        let what = format!("COMMIT, at last, {}", fate(done));
        tell_of(&for_report, report.id(), "report", &what);
    });
    let trouble_ns = now_ns();
    tell_of(story, deploy.id(), "deploy", "EXCLUSIVE t1");
    let done = deploy.command("EXCLUSIVE t1 10").await;
    let release_ns = now_ns();
    let what = format!("the EXCLUSIVE {}", fate(done));
    tell_of(story, deploy.id(), "deploy", &what);
    let _ = freed.send(());
    Ok(Acts {
        calm_from_ns: 0,
        calm_until_ns: trouble_ns,
        trouble_ns,
        release_ns,
        culprits,
        leftover,
    })
}

fn named<const N: usize>(sessions: [(&'static str, u64); N]) -> Vec<Culprit> {
    sessions
        .map(|(name, id)| Culprit { name, id })
        .into_iter()
        .collect()
}

/// Tells what a session does, or what became of it.
fn tell_of(story: &Story, id: u64, user: &str, what: &str) {
    story.tell(format!("session {id} ({user}): {what}"));
}
