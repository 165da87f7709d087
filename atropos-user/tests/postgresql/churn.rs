//! Sessions that come and go: each is a process of its own, none may be missed, and of those that are gone nothing may stay.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_postgres::Client;

use crate::agent::Agent;
use crate::common::postgresql::Postgres;
use crate::probed::Probed;

/// Sessions at a time.
const SESSIONS: usize = 300;
/// Groups of them; in each, one goes and another comes so often: 50 a second in all.
const GROUPS: usize = 5;
const EVERY: Duration = Duration::from_millis(100);
/// For how long, unless `ATROPOS_CHURN_SECONDS` says otherwise.
const SECONDS: u64 = 10;
/// What the agent's memory may grow by once everything has been there once.
const GROWTH_BYTES: u64 = 2 << 20;

/// Files that it may have opened in the meantime: those of the target that it just reads, and the programs that it attaches
/// once, some seconds after something looks wrong. One for each session would be hundreds.
const MORE_FILES: usize = 10;

/// The postmaster's processes.
fn children(server: &Postgres) -> BTreeSet<u32> {
    let file = format!("/proc/{0}/task/{0}/children", server.pid);
    let text = fs::read_to_string(file).unwrap();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// A session that has run one statement beside that of the harness.
async fn comes(server: &Postgres) -> Client {
    let (client, _) = server.connect().await;
    client.batch_execute("select 1").await.unwrap();
    client
}

/// What a process uses: resident bytes and open files.
fn uses(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: u64 = line
        .trim()
        .strip_suffix(" kB")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    (kib * 1024, files)
}

/// A group's sessions.
type Group = VecDeque<Client>;

/// Lets sessions of every group go and come; the groups, and how many came.
async fn churn(server: &Arc<Postgres>, groups: Vec<Group>, time: Duration) -> (Vec<Group>, u64) {
    let mut all = JoinSet::new();
    for mut group in groups {
        let server = Arc::clone(server);
        all.spawn(async move {
            let came = churn_one(&server, &mut group, time).await;
            (group, came)
        });
    }
    let (groups, came): (Vec<_>, Vec<_>) = all.join_all().await.into_iter().unzip();
    (groups, came.iter().sum())
}

/// Lets the oldest go and a new one come, at a steady rate; how many came.
async fn churn_one(server: &Postgres, sessions: &mut Group, time: Duration) -> u64 {
    let end = Instant::now() + time;
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut came = 0;
    while Instant::now() < end {
        tick.tick().await;
        sessions.pop_front();
        sessions.push_back(comes(server).await);
        came += 1;
    }
    came
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_come_and_go_are_all_seen_and_leave_nothing_behind() {
    // Nobody else is to begin requests, or to be there for a while only.
    let Some(server) = Postgres::start_with(&["max_connections=400", "autovacuum=off"]) else {
        return;
    };
    let seconds =
        std::env::var("ATROPOS_CHURN_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    let time = Duration::from_secs(seconds);
    let server = Arc::new(server);
    let mut groups: Vec<Group> = (0..GROUPS).map(|_| Group::new()).collect();
    for number in 0..SESSIONS {
        groups[number % GROUPS].push_back(comes(&server).await);
    }
    let (pid, socket) = (server.pid.to_string(), server.socket.display().to_string());
    // An objective that every request breaks: it watches as closely as it can.
    let mut agent = Agent::start(&["--pid", &pid, "--socket", &socket, "--slo", "p99=1us"]);
    agent.wait_for("attached", |line| line["event"] == "attached");
    let mut probed = Probed::attach(&server);
    probed.harvest();

    let before = probed.request_count;
    groups[0].pop_front();
    groups[0].push_back(probed.harvest_during(comes(&server)).await);
    probed.harvest();
    let of_one = probed.request_count - before;
    assert!(
        of_one >= 2,
        "a session makes two requests at least, {of_one} were seen"
    );

    let (groups, first) = probed
        .harvest_during(churn(&server, groups, time / 2))
        .await;
    agent.wait_for("suspect", |line| line["effect"]["level"] == "suspect");
    let (settled_bytes, settled_files) = uses(agent.pid());
    let (_groups, second) = probed
        .harvest_during(churn(&server, groups, time / 2))
        .await;
    let came = first + second;
    let (bytes, files) = uses(agent.pid());

    probed.keeps("what lives", |kept| {
        let live: BTreeSet<u32> = children(&server).into_iter().chain([server.pid]).collect();
        let kept_processes: BTreeSet<u32> = kept.processes.iter().copied().collect();
        kept_processes == live && kept.sessions.len() <= SESSIONS && kept.open.is_empty()
    });
    println!(
        "{came} sessions came and went in {seconds} s, {} requests; agent {bytes} bytes (+{}), {files} files",
        probed.request_count,
        bytes.saturating_sub(settled_bytes)
    );
    assert_eq!(
        probed.request_count - before,
        (came + 1) * of_one,
        "each request of each session"
    );
    assert_eq!(probed.lost_count, 0);
    agent.listen();
    let lost: Vec<_> = agent
        .said
        .iter()
        .filter(|line| line["event"] == "lost")
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(
        files <= settled_files + MORE_FILES,
        "{files} files after {settled_files}, {second} sessions later"
    );
    assert!(
        bytes <= settled_bytes + GROWTH_BYTES,
        "{bytes} bytes after {settled_bytes}"
    );
    assert!(agent.stop().success());
}
