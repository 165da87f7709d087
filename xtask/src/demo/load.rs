//! Open-loop load: requests arrive on a fixed schedule whether or not earlier ones have been answered, as users do.
//!
//! Latency is counted from the scheduled arrival, so a stall shows in every request that it delays. Connections are few, as in a
//! pool: a stall soon holds all of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::clock::{SECOND, now_ns};
use super::place::{Customer, Place};

/// Requests a second.
pub(crate) const RATE: u64 = 500;
/// Connections.
pub(crate) const CONNECTIONS: usize = 24;

/// A request's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When it was due.
    pub(crate) arrived_ns: u64,
    /// When it was answered; 0 while it is not.
    pub(crate) finished_ns: u64,
    /// The error it was answered with; 0 for none. The codes are MariaDB's.
    pub(crate) error: u16,
}

/// Load that runs until dropped.
pub(crate) struct Load {
    shared: Arc<Shared>,
    workers: JoinSet<()>,
    dispatcher: Option<thread::JoinHandle<()>>,
}

struct Shared {
    samples: Mutex<Vec<Sample>>,
    queue: Mutex<VecDeque<usize>>,
    due: Semaphore,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section is one assignment: a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Load {
    /// Connects everybody, then starts the schedule.
    pub(crate) async fn start(server: &impl Place) -> Result<Self> {
        let shared = Arc::new(Shared {
            samples: Mutex::default(),
            queue: Mutex::default(),
            due: Semaphore::new(0),
            stop: AtomicBool::new(false),
        });
        let mut workers = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let customer = server.customer().await?;
            workers.spawn(work(Arc::clone(&shared), customer));
        }
        let for_dispatcher = Arc::clone(&shared);
        // A thread of its own: the runtime's timer counts in milliseconds, which would blur the schedule.
        let dispatcher = thread::spawn(move || dispatch(&for_dispatcher));
        Ok(Self {
            shared,
            workers,
            dispatcher: Some(dispatcher),
        })
    }

    /// Everything so far.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        lock(&self.shared.samples).clone()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.workers.abort_all();
        if let Some(dispatcher) = self.dispatcher.take() {
            // Its panic, if any, has been printed.
            let _ = dispatcher.join();
        }
    }
}

fn dispatch(shared: &Shared) {
    let start_ns = now_ns();
    for number in 0_u64.. {
        let due_ns = start_ns + number * SECOND / RATE;
        if let Some(wait_ns) = due_ns.checked_sub(now_ns()) {
            thread::sleep(Duration::from_nanos(wait_ns));
        }
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let index = {
            let mut samples = lock(&shared.samples);
            samples.push(Sample {
                arrived_ns: due_ns,
                ..Sample::default()
            });
            samples.len() - 1
        };
        lock(&shared.queue).push_back(index);
        shared.due.add_permits(1);
    }
}

async fn work(shared: Arc<Shared>, mut customer: impl Customer) {
    loop {
        match shared.due.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return,
        }
        let Some(index) = lock(&shared.queue).pop_front() else {
            continue;
        };
        let error = customer.request(index as u64).await.err().unwrap_or(0);
        let finished_ns = now_ns();
        if let Some(sample) = lock(&shared.samples).get_mut(index) {
            sample.finished_ns = finished_ns;
            sample.error = error;
        }
    }
}
