//! An agent at the server, and innocents who use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::agent::Agent;
use crate::common::postgresql::Postgres;

pub(crate) const READ: &str = "select v from t where id = 7";

/// An agent that may end sessions of `postgres`, the user that everybody is. `ATROPOS_RECORD_TRACES=1` records what it was
/// told as the trace of that name.
pub(crate) fn attach(server: &Postgres, trace: &str) -> Agent {
    attach_with(server, trace, "p99=20ms")
}

/// The same with another objective.
pub(crate) fn attach_with(server: &Postgres, trace: &str, slo: &str) -> Agent {
    let (pid, socket) = (server.pid.to_string(), server.socket.display().to_string());
    let mut arguments = vec![
        "--pid",
        &pid,
        "--socket",
        &socket,
        "--user",
        "postgres",
        "--slo",
        slo,
        "--enforce",
    ];
    let file = format!(
        "{}/../presets/postgresql/traces/{trace}.rec",
        env!("CARGO_MANIFEST_DIR")
    );
    if std::env::var_os("ATROPOS_RECORD_TRACES").is_some() {
        let _ = std::fs::remove_file(&file);
        arguments.extend(["--record", &file]);
    }
    let mut agent = Agent::start(&arguments);
    agent.wait_for("attached", |line| line["event"] == "attached");
    agent
}

/// Innocents who use the server over and over; each error counts.
pub(crate) struct Crowd {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    errors: Arc<AtomicU64>,
    members: Vec<JoinHandle<()>>,
}

impl Crowd {
    pub(crate) async fn gather(server: &Postgres, statement: &'static str, count: usize) -> Self {
        let (stop, done, errors) = (
            Arc::<AtomicBool>::default(),
            Arc::<AtomicU64>::default(),
            Arc::<AtomicU64>::default(),
        );
        let mut members = Vec::new();
        for _ in 0..count {
            let (client, _) = server.connect().await;
            let (stop, done, errors) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&errors));
            members.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    match client.batch_execute(statement).await {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(_) => errors.fetch_add(1, Ordering::Relaxed),
                    };
                    // A pause between requests, as a client that thinks makes it; nothing is waited for.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }));
        }
        Self {
            stop,
            done,
            errors,
            members,
        }
    }

    /// Waits until everybody has got on.
    pub(crate) async fn gets_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        tokio::time::timeout(Duration::from_secs(20), async {
            while self.done.load(Ordering::Relaxed) < before + 4 * self.members.len() as u64 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("the crowd gets on");
    }

    pub(crate) async fn disperse(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for member in self.members {
            member.await.unwrap();
        }
        self.errors.load(Ordering::Relaxed)
    }
}
