//! What `why` tells of a holder that runs something: whether it is at work at all.

use crate::scene::{looks, preset, resolve, server, starts};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_sleeps_is_told_from_one_that_works() {
    let Some(server) = server().await else { return };
    let resolved = resolve(server.pid, preset());
    for (statement, works) in [
        ("lock table t; select pg_sleep(120)", false),
        (
            "lock table t; select count(*) from generate_series(1, 2000000000)",
            true,
        ),
    ] {
        let (pid, holder) = starts(&server, statement).await;
        let (watcher, _) = server.connect().await;
        crate::scene::holds(&watcher, pid).await;
        let (waiter_pid, waiter) = starts(&server, "select * from t where id = 7").await;
        // It may have begun within the look.
        let what = if works { "work" } else { "sleep" };
        let report = looks(&resolved, what, |report| {
            let processor = report.roots.first().and_then(|root| root.processor);
            let shares = processor.map(|seen| seen.on_cpu + seen.queued);
            shares.is_some_and(|shares| if works { shares > 0.5 } else { shares < 0.05 })
        });
        let root = &report.roots[0];
        assert_eq!(root.id, pid);
        let text = atropos::ui::why::text(&report);
        assert_eq!(text.contains(", asleep"), !works, "{text}");
        assert!(root.children[0].processor.is_none(), "it waits for a lock");
        for pid in [pid, waiter_pid] {
            let end = format!("select pg_terminate_backend({pid})");
            watcher.batch_execute(&end).await.unwrap();
        }
        assert!(holder.await.unwrap().is_err());
        let _ = waiter.await.unwrap();
    }
}
