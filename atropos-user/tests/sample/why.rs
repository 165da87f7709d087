//! One look at a sample server that has stalled.

use std::sync::atomic::{AtomicBool, Ordering};

use atropos::agent::why::{Node, look};

use crate::common::{clock_ns, wait_for};
use crate::scene::{Scene, person, resolve, sample, waiting};

fn ids(nodes: &[Node]) -> Vec<u64> {
    let mut ids: Vec<u64> = nodes.iter().map(|node| node.id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_forgotten_transaction_is_the_root_and_the_best_to_end() {
    let mut scene = Scene::forgotten_transaction(5);
    let resolved = resolve(scene.server.pid(), sample());
    let report = wait_for("the forgotten session to be idle for long enough", || {
        let report = look(&resolved).unwrap();
        report
            .candidates
            .first()
            .is_some_and(|best| best.but.is_none())
            .then_some(report)
    });
    assert_eq!(
        (
            report.roots.len(),
            report.waiting_count,
            report.session_count
        ),
        (1, 6, 7)
    );
    let root = &report.roots[0];
    assert_eq!(
        (root.id, root.thread, root.waiters_count),
        (scene.culprit.session(), scene.culprit.thread(), 6)
    );
    assert_eq!(
        (
            root.principal.as_str(),
            root.in_the_way[0].instance.as_str()
        ),
        ("batch", "table t")
    );
    assert!(
        root.doing.starts_with("idle in a transaction"),
        "{}",
        root.doing
    );
    assert_eq!(ids(&root.children), [scene.queued.session()]);
    let readers: Vec<u64> = scene
        .readers
        .iter()
        .map(usdt_probes::client::Client::session)
        .collect();
    assert_eq!(
        ids(&root.children[0].children),
        readers,
        "the readers stand behind whoever queued before them"
    );
    assert_eq!(root.children[0].statement, "exclusive t ?");
    assert_eq!(
        root.children[0].waits_for.as_ref().unwrap().mode,
        "exclusive"
    );

    let candidates: Vec<u64> = report.candidates.iter().map(|choice| choice.id).collect();
    assert_eq!(
        candidates,
        [scene.culprit.session(), scene.queued.session()]
    );
    assert_eq!(
        report.candidates[0].command,
        format!("kill -USR2 {}", scene.culprit.thread())
    );
    assert_eq!(
        report.candidates[1].command,
        format!("kill -USR1 {}", scene.queued.thread())
    );
    assert!(report.unseen.is_empty(), "{:?}", report.unseen);

    scene.culprit.command("COMMIT").unwrap().result.unwrap();
    assert!(
        scene.queued.receive().unwrap().result.is_ok(),
        "a look changes nothing"
    );
    assert!(
        scene
            .readers
            .iter_mut()
            .all(|reader| reader.receive().unwrap().result.is_ok())
    );
    assert!(waiting(&resolved, 0).roots.is_empty());
}

#[test]
fn a_long_scan_is_the_root_and_no_reader_behind_it_is_a_candidate() {
    let scene = Scene::long_scan(4);
    let resolved = resolve(scene.server.pid(), sample());
    let report = wait_for("the scan to be in the way for long enough", || {
        let report = look(&resolved).unwrap();
        report
            .candidates
            .iter()
            .any(|choice| choice.but.is_none())
            .then_some(report)
    });
    assert_eq!(ids(&report.roots), [scene.culprit.session()]);
    let root = &report.roots[0];
    assert_eq!(
        (root.waiters_count, root.statement.as_str()),
        (5, "scan t ?")
    );
    assert_eq!(ids(&root.children), [scene.queued.session()]);
    let mut candidates: Vec<u64> = report.candidates.iter().map(|choice| choice.id).collect();
    candidates.sort_unstable();
    assert_eq!(
        candidates,
        [scene.culprit.session(), scene.queued.session()]
    );
    let scan = report
        .candidates
        .iter()
        .find(|choice| choice.id == scene.culprit.session())
        .unwrap();
    assert_eq!(
        scan.command,
        format!("kill -USR1 {}", scene.culprit.thread())
    );
    assert_eq!(scan.frees_count, 5);
}

#[test]
fn a_server_that_never_stands_still_is_seen_all_the_same() {
    let server = crate::program::start();
    let resolved = resolve(server.pid(), sample());
    let stop = AtomicBool::new(false);
    let (mut looks, mut seen, mut waits) = (0, 0, 0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut client = person(&server, "web");
                    (0..10).for_each(|_| drop(client.command("EXCLUSIVE t 1")));
                }
            });
        }
        let mut watcher = resolved.watcher().unwrap();
        while looks < 300 || (waits < 1000 && looks < 10_000) {
            looks += 1;
            let view = watcher.look(&resolved.memory, clock_ns(), &[]);
            seen += view.snapshots.len();
            waits += view.waiting_count;
            if !view.blind.is_empty() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(watcher.list_trust().blind(), None);
    });
    assert!(seen * 3 > looks * 2, "{seen} of {looks} looks saw it whole");
    assert!(waits >= 1000, "only {waits} waits were seen");
}
