//! Each number of the preset's layout, eight bytes off: what is then seen is nothing, with a reason, or what there is.
//! Never something else.

use atropos::agent::resolve::Resolved;
use atropos::config;
use atropos::target::Process;

use crate::progress::OWN;
use crate::scene::{edges, forgotten, preset, resolve, server, starts, waiting};

/// What no edge depends on. A wrong start of the statement makes an order miss, since the server compares it; a wrong
/// time of change shifts how long a session has been idle by the time that its statement took. The last six serve advice
/// and progress alone, and resources that can be no reason to end anything. (Eight bytes behind the
/// owner of a place in the lock stands the leader of its group, which is itself: `holder_proc +8`.)
const ALLOWED: [&str; 15] = [
    "proc_database",
    "lock_kind",
    "wanted_lock",
    "status_transaction",
    "status_statement",
    "status_changed",
    "status_application",
    "status_text",
    "status_born",
    "proc_xid",
    "proc_xmin",
    "proc_wait_event",
    "status_command",
    "status_param",
    "next_xid",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_number_blinds_and_never_misleads() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    let (client, _) = forgotten(&server).await;
    let (_, alter) = starts(&server, "alter table t add column c int").await;
    waiting(&resolved, 1);
    let mut readers = Vec::new();
    for _ in 0..2 {
        readers.push(starts(&server, "select * from t").await.1);
    }
    waiting(&resolved, 3);
    let truth = edges(&resolved).unwrap();
    assert_eq!(truth.len(), 3);
    let (_, text) = config::embedded()
        .iter()
        .find(|(name, _)| *name == "postgresql")
        .unwrap();
    let layout = text
        .split("\n[layout]\n")
        .nth(1)
        .and_then(|rest| rest.split("\n[").next())
        .unwrap();
    let (mut blind, mut harmless, mut misled) = (0, Vec::new(), Vec::new());
    for (number, value) in layout
        .lines()
        .filter_map(|line| line.split('#').next()?.split_once(" = "))
        // What lies in the backends' own memory has a test of its own.
        .filter(|(number, _)| !OWN.contains(number))
    {
        for by in [8, -8, 4, -4] {
            let text = format!(
                "schema = 1\nname = \"shifted\"\nextends = \"postgresql\"\n[layout]\nas_it_was = {value}\n\
                 {number} = {{ after = \"as_it_was\", add = {by} }}\n"
            );
            let preset = config::parse("shifted.toml", &text).unwrap_or_else(|p| panic!("{p}"));
            let found = Resolved::new(Process::open(server.pid).unwrap(), preset)
                .map_err(|error| format!("{error:#}"))
                .and_then(|resolved| edges(&resolved));
            match found {
                Ok(found) if found == truth => harmless.push(format!("{number} {by:+}")),
                Ok(found) => misled.push((format!("{number} {by:+}"), found)),
                Err(_) => blind += 1,
            }
        }
    }
    assert!(
        misled.is_empty(),
        "wrong edges: {misled:#x?}; there are {truth:#x?}"
    );
    assert!(blind > 4 * ALLOWED.len(), "{blind}");
    let unnoticed: Vec<_> = harmless
        .iter()
        .filter(|what| {
            !ALLOWED
                .iter()
                .any(|number| what.starts_with(&format!("{number} ")))
        })
        .filter(|what| *what != "holder_proc +8")
        .collect();
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
    client.batch_execute("commit").await.unwrap();
    alter.await.unwrap().unwrap();
    for reader in readers {
        reader.await.unwrap().unwrap();
    }
}
