//! Puts a server back to how it was before a run: none of the demo's people there, and no column of an ALTER.

use std::time::Duration;

use anyhow::{Result, bail};
use mysql_async::prelude::Queryable as _;
use tokio::time::{Instant, sleep};

use crate::demo::pg_server::{PgServer, USERS};
use crate::demo::place::Place;
use crate::demo::server::Server;

/// How often is looked whether they are gone.
const LOOK: Duration = Duration::from_millis(50);

/// A server that can be put back.
pub(super) trait Tidy: Place {
    /// Puts it back; an error if somebody is still there after that time.
    fn tidy(&self, patience: Duration) -> impl Future<Output = Result<()>>;
}

impl Tidy for Server {
    async fn tidy(&self, patience: Duration) -> Result<()> {
        let mut connection = self.connect("root").await?;
        let deadline = Instant::now() + patience;
        loop {
            let others: Vec<u64> = connection
                .query("SELECT id FROM information_schema.processlist WHERE user IN ('shop', 'batch', 'backup', 'report', 'deploy')")
                .await?;
            if others.is_empty() {
                break;
            }
            still_there(&others, deadline)?;
            for id in others {
                // One that has just gone is as good.
                let _ = connection.query_drop(format!("KILL CONNECTION {id}")).await;
            }
            sleep(LOOK).await;
        }
        connection
            .query_drop("ALTER TABLE demo.t1 DROP COLUMN IF EXISTS note")
            .await?;
        connection.disconnect().await?;
        Ok(())
    }
}

impl Tidy for PgServer {
    async fn tidy(&self, patience: Duration) -> Result<()> {
        let client = self.connect("postgres").await?;
        let deadline = Instant::now() + patience;
        loop {
            // Naming them ends them.
            let rows = client
                .query(
                    "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY($1)",
                    &[&USERS.as_slice()],
                )
                .await?;
            let others: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
            if others.is_empty() {
                break;
            }
            still_there(&others, deadline)?;
            sleep(LOOK).await;
        }
        // What the run has left behind is cleared away now, and not in the middle of the next.
        for statement in ["ALTER TABLE t1 DROP COLUMN IF EXISTS note", "VACUUM big"] {
            client.batch_execute(statement).await?;
        }
        Ok(())
    }
}

fn still_there(others: &[impl std::fmt::Debug], deadline: Instant) -> Result<()> {
    if Instant::now() > deadline {
        bail!("sessions {others:?} of the run before do not end");
    }
    Ok(())
}
