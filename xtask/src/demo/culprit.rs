//! What is let in to hurt the others: each case is a scene with its culprits, and knows whose ending is right.
//!
//! Every scene ends by itself, so that a run without Atropos is bounded. When it releases is seen from the culprits' own
//! connections, not from what Atropos says.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::clock::now_ns;
use super::place::fate;
use super::server::Server;
use super::shop::code;
use super::story::Story;

/// How long the forgotten session is idle before somebody needs its table.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(5);
/// After this long somebody remembers it, if nothing ended it before.
pub(super) const REMEMBERED: Duration = Duration::from_secs(10);
/// The long update has settled.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long the load runs beside the long update before the backup comes.
const BESIDE: Duration = Duration::from_secs(3);

/// A session that is let in.
#[derive(Clone, Debug)]
pub(crate) struct Culprit {
    /// What the demo calls it.
    pub(crate) name: &'static str,
    /// The server's number of its connection.
    pub(crate) id: u64,
}

/// What happened, by the scene's own eyes.
pub(crate) struct Acts {
    /// From when things were as they would have been without the culprit, if that is later than the start of the load.
    pub(crate) calm_from_ns: u64,
    /// Until when they were.
    pub(crate) calm_until_ns: u64,
    /// From when the others are blocked.
    pub(crate) trouble_ns: u64,
    /// When the others were no longer blocked.
    pub(crate) release_ns: u64,
    /// Everybody who was let in.
    pub(crate) culprits: Vec<Culprit>,
    /// Work that goes on after the release and must end before the next scene.
    pub(crate) leftover: JoinHandle<()>,
}

/// A scene being played.
pub(crate) type Play<'a> = Pin<Box<dyn Future<Output = Result<Acts>> + Send + 'a>>;

/// A scene being prepared.
pub(crate) type Preparation<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// A case that the demo shows at a server of some kind.
pub(crate) trait Scene<S: Sync = Server> {
    /// Its id, as on the command line.
    fn id(&self) -> &'static str;
    /// What it is about, in a line.
    fn title(&self) -> &'static str;
    /// The culprit whose ending is right.
    fn expected(&self) -> &'static str;
    /// Undoes what an earlier run has left. Before there is load.
    fn prepare<'a>(&'a self, _server: &'a S) -> Preparation<'a> {
        Box::pin(async { Ok(()) })
    }
    /// Lets the culprits in; returns when the others are free again.
    fn play<'a>(&'a self, server: &'a S, story: &'a Story) -> Play<'a>;
}

/// A backup takes the global read lock while a long update runs: it waits for the update, and every write waits for it.
pub(crate) struct BackupLock;

impl Scene for BackupLock {
    fn id(&self) -> &'static str {
        "c1"
    }

    fn title(&self) -> &'static str {
        "a backup's FLUSH TABLES WITH READ LOCK queues behind a long UPDATE, and every write queues behind the backup"
    }

    fn expected(&self) -> &'static str {
        "backup"
    }

    fn play<'a>(&'a self, server: &'a Server, story: &'a Story) -> Play<'a> {
        Box::pin(backup_lock(server, story))
    }
}

async fn backup_lock(server: &Server, story: &Story) -> Result<Acts> {
    let mut batch = server.connect("batch").await?;
    let mut backup = server.connect("backup").await?;
    let culprits = vec![
        Culprit {
            name: "update",
            id: u64::from(batch.id()),
        },
        Culprit {
            name: "backup",
            id: u64::from(backup.id()),
        },
    ];
    story.tell(format!(
        "session {} (batch): UPDATE of every row of a big table",
        batch.id()
    ));
    let for_update = story.clone();
    let leftover = tokio::spawn(async move {
        let done = batch
            .query_drop("UPDATE demo.big SET k = CRC32(SHA2(REPEAT(id, 1000), 512)) DIV 2")
            .await
            .map_err(|error| code(&error));
        for_update.tell(format!(
            "session {} (batch): the UPDATE {}",
            batch.id(),
            fate(done)
        ));
    });
    // The update takes its part of the machine before, during and after: what the backup does is measured against that.
    sleep(WARM_UP).await;
    let calm_from_ns = now_ns();
    sleep(BESIDE).await;
    let trouble_ns = now_ns();
    story.tell(format!(
        "session {} (backup): FLUSH TABLES WITH READ LOCK",
        backup.id()
    ));
    let done = backup
        .query_drop("FLUSH TABLES WITH READ LOCK")
        .await
        .map_err(|error| code(&error));
    if done.is_ok() {
        backup
            .query_drop("UNLOCK TABLES")
            .await
            .context("the backup cannot unlock")?;
    }
    let release_ns = now_ns();
    story.tell(format!(
        "session {} (backup): FLUSH TABLES WITH READ LOCK {}",
        backup.id(),
        fate(done)
    ));
    close(backup).await;
    Ok(Acts {
        calm_from_ns,
        calm_until_ns: trouble_ns,
        trouble_ns,
        release_ns,
        culprits,
        leftover,
    })
}

/// A transaction that somebody forgot holds a table's metadata lock; an ALTER queues behind it, and everybody behind the ALTER.
pub(crate) struct ForgottenTransaction;

impl Scene for ForgottenTransaction {
    fn id(&self) -> &'static str {
        "m01"
    }

    fn title(&self) -> &'static str {
        "a session forgets its transaction; an ALTER TABLE queues behind it, and everybody queues behind the ALTER"
    }

    fn expected(&self) -> &'static str {
        "forgotten"
    }

    fn prepare<'a>(&'a self, server: &'a Server) -> Preparation<'a> {
        Box::pin(without_note(server))
    }

    fn play<'a>(&'a self, server: &'a Server, story: &'a Story) -> Play<'a> {
        Box::pin(forgotten_transaction(server, story))
    }
}

async fn forgotten_transaction(server: &Server, story: &Story) -> Result<Acts> {
    let mut report = server.connect("report").await?;
    let mut deploy = server.connect("deploy").await?;
    let culprits = vec![
        Culprit {
            name: "forgotten",
            id: u64::from(report.id()),
        },
        Culprit {
            name: "alter",
            id: u64::from(deploy.id()),
        },
    ];
    story.tell(format!(
        "session {} (report): BEGIN, SELECT one row of t1, and then nothing",
        report.id()
    ));
    report.query_drop("BEGIN").await?;
    report
        .query_drop("SELECT k FROM demo.t1 WHERE id = 1")
        .await?;
    sleep(FORGOTTEN).await;
    let (freed, is_free) = oneshot::channel();
    let for_report = story.clone();
    let remembering = tokio::spawn(async move {
        // Once others are free, there is nothing more to see in waiting.
        let _ = timeout(REMEMBERED, is_free).await;
        let done = report
            .query_drop("COMMIT")
            .await
            .map_err(|error| code(&error));
        let id = report.id();
        for_report.tell(format!(
            "session {id} (report): COMMIT, at last, {}",
            fate(done)
        ));
        close(report).await;
    });
    let trouble_ns = now_ns();
    story.tell(format!("session {} (deploy): ALTER TABLE t1", deploy.id()));
    let done = deploy
        .query_drop("ALTER TABLE demo.t1 ADD COLUMN note INT")
        .await
        .map_err(|error| code(&error));
    let release_ns = now_ns();
    story.tell(format!(
        "session {} (deploy): ALTER TABLE t1 {}",
        deploy.id(),
        fate(done)
    ));
    let _ = freed.send(());
    let leftover = tokio::spawn(async move {
        let _ = remembering.await;
        close(deploy).await;
    });
    Ok(Acts {
        calm_from_ns: 0,
        calm_until_ns: trouble_ns,
        trouble_ns,
        release_ns,
        culprits,
        leftover,
    })
}

/// Takes the column away again that an earlier run has left, so that a scene can be played more than once.
async fn without_note(server: &Server) -> Result<()> {
    let mut deploy = server.connect("deploy").await?;
    deploy
        .query_drop("ALTER TABLE demo.t1 DROP COLUMN IF EXISTS note")
        .await
        .context("cannot prepare t1")?;
    close(deploy).await;
    Ok(())
}

/// Says good-bye; a connection that was ended by the server needs none.
async fn close(connection: Conn) {
    let _ = connection.disconnect().await;
}
