//! Each number of a preset's layout, eight bytes off: what is then seen is nothing, with a reason, or what there is. Never
//! something else.

use atropos::agent::resolve::Resolved;
use atropos::config;
use atropos::target::Process;
use mysql_async::prelude::Queryable as _;

use crate::common::mariadb::MariaDb;
use crate::common::wait_for;
use crate::scene::{Edges, Scene, edges, resolve};

/// The preset of this name with one of its numbers off by so many bytes.
fn shifted(preset: &str, number: &str, value: &str, by: i64) -> config::Preset {
    // The number as it was goes by another name, so that any way to say it can be shifted.
    let text = format!(
        "schema = 1\nname = \"shifted\"\nextends = \"{preset}\"\n[layout]\nas_it_was = {value}\n\
         {number} = {{ after = \"as_it_was\", add = {by} }}\n"
    );
    config::parse("shifted.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Looks at the process with each number shifted; the reasons for blindness by number.
fn survey(
    preset: &str,
    pid: u32,
    truth: &Edges,
    shifts: &[i64],
) -> Vec<(String, Result<(), String>)> {
    let (_, text) = config::embedded()
        .iter()
        .find(|(name, _)| *name == preset)
        .unwrap();
    let layout = text
        .split("\n[layout]\n")
        .nth(1)
        .and_then(|rest| rest.split("\n[").next())
        .unwrap();
    let (mut seen, mut misled) = (Vec::new(), Vec::new());
    for (number, value) in layout
        .lines()
        .filter_map(|line| line.split('#').next()?.split_once(" = "))
    {
        for by in shifts.iter().copied() {
            let preset = shifted(preset, number, value, by);
            let found = match Resolved::new(Process::open(pid).unwrap(), preset) {
                Ok(resolved) => edges(&resolved),
                Err(error) => Err(format!("{error:#}")),
            };
            let what = format!("{number} {by:+}");
            match found {
                Ok(found) if &found == truth => seen.push((what, Ok(()))),
                Ok(found) => misled.push((what, found)),
                Err(reason) => {
                    assert!(!reason.is_empty());
                    seen.push((what, Err(reason)));
                }
            }
        }
    }
    assert!(
        misled.is_empty(),
        "wrong edges: {misled:#x?}; there are {truth:#x?}"
    );
    seen
}

#[test]
fn a_wrong_number_in_the_sample_preset_blinds_and_never_misleads() {
    let scene = Scene::forgotten_transaction(3);
    let truth = edges(&resolve(scene.server.pid(), crate::scene::sample())).unwrap();
    assert_eq!(
        truth.len(),
        1 + 3,
        "each reader is behind the queued request"
    );
    let seen = survey("sample", scene.server.pid(), &truth, &[8, -8]);
    let harmless = seen
        .iter()
        .filter(|(_, found)| found.is_ok())
        .map(|(what, _)| what.as_str());
    // What no edge and no order depends on.
    let allowed = [
        "session_ended_us +8",
        "session_ended_us -8",
        "session_wake +8",
        "session_wake -8",
    ];
    let harmless: Vec<&str> = harmless.filter(|what| !allowed.contains(what)).collect();
    assert!(harmless.is_empty(), "not noticed: {harmless:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_number_in_the_mariadb_preset_blinds_and_never_misleads() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    server
        .run(&[
            "create database w",
            "create table w.t (id int primary key)",
            "insert into w.t values (1)",
        ])
        .await;
    let mut forgotten = server.connect().await;
    forgotten.query_drop("begin").await.unwrap();
    forgotten.query_drop("select * from w.t").await.unwrap();
    let resolved = resolve(server.pid, config::load("mariadb").unwrap());
    let mut waiters = Vec::new();
    for (count, statement) in [
        "alter table w.t force",
        "select * from w.t",
        "select * from w.t",
    ]
    .into_iter()
    .enumerate()
    {
        let mut conn = server.connect().await;
        waiters.push(tokio::spawn(
            async move { conn.query_drop(statement).await },
        ));
        wait_for("the statement to wait", || {
            edges(&resolved)
                .is_ok_and(|edges| edges.len() == count + 1)
                .then_some(())
        });
    }
    let truth = edges(&resolved).unwrap();
    let seen = survey("mariadb", server.pid, &truth, &[8]);
    assert!(
        seen.iter().filter(|(_, found)| found.is_err()).count() > seen.len() / 2,
        "{seen:#?}"
    );
    forgotten.query_drop("commit").await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}
