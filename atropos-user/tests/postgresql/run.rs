//! The whole loop: the right backend is ended, everybody else gets on.

use std::time::Duration;

use crate::crowd::{Crowd, READ, attach};
use crate::scene::{deaf, forgotten, is_alive, looks, preset, resolve, row, server, starts};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_transaction_that_an_alter_table_queues_behind_is_ended_and_nobody_else() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server, "idle_in_transaction");
    let crowd = Crowd::gather(&server, READ, 8).await;
    let (decoy, _) = server.connect().await;
    decoy
        .batch_execute("begin; select * from other")
        .await
        .unwrap();
    let (client, pid) = forgotten(&server).await;
    // More than the agent grants a transaction.
    let idle = format!(
        "select 1 from pg_stat_activity where pid = {pid} and now() - state_change > interval '4 s'"
    );
    let (admin, _) = server.connect().await;
    row(&admin, &idle).await;
    crowd.gets_on().await;
    let (_, alter) = starts(&server, "alter table t add column c int").await;
    let decision = agent.decision(|d| d["orders"][0].is_object());
    assert_eq!(decision["orders"][0]["task"]["id"], pid, "{decision:#}");
    assert_eq!(decision["orders"][0]["rung_name"], "pg_terminate_backend");
    assert_eq!(agent.outcome()["result"], "released");
    alter.await.unwrap().unwrap();
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0, "no innocent saw an error");
    assert!(!is_alive(&client).await);
    assert!(
        is_alive(&decoy).await,
        "who holds what nobody wants is left alone"
    );
    assert_eq!(agent.sent().len(), 1, "one order, no second");
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_in_the_way_is_told_and_nobody_is_ended() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server, "left_alone_prepared");
    let crowd = Crowd::gather(&server, READ, 4).await;
    crowd.gets_on().await;
    server
        .run(&["begin; lock table t in access exclusive mode; prepare transaction 'left behind'"])
        .await;
    let decision = agent.decision(|d| d["candidates"][0].is_object() || d["orders"].is_array());
    assert!(
        decision["orders"].as_array().is_none_or(Vec::is_empty),
        "{decision:#}"
    );
    let remarks = agent.wait_for("name", |line| {
        line["event"] == "remarks" && line["decision"] == decision["decision"]
    });
    let said = remarks["said"].to_string();
    assert!(said.contains("ROLLBACK PREPARED 'left behind'"), "{said}");
    assert!(said.contains(" is t of database postgres"), "{said}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    agent.answers();
    assert_eq!(agent.sent().len(), 0, "nothing is sent");
    server.run(&["rollback prepared 'left behind'"]).await;
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_equal_small_writers_of_one_row_are_left_alone() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server, "left_alone_equal_writers");
    let crowd = Crowd::gather(&server, "update t set v = v + 1 where id = 7", 24).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    agent.answers();
    assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_long_reader_and_the_ddl_behind_it_one_is_cancelled_and_it_is_said_why() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server, "ddl_behind_reader");
    let crowd = Crowd::gather(&server, READ, 8).await;
    crowd.gets_on().await;
    let (reader, report) = starts(&server, "select pg_sleep(120) from t limit 1").await;
    let (admin, _) = server.connect().await;
    let holds = format!("select 1 from pg_locks where pid = {reader} and relation = 't'::regclass");
    row(&admin, &holds).await;
    let (ddl, alter) = starts(&server, "alter table t add column c int").await;
    let decision = agent.decision(|d| d["orders"][0].is_object());
    let order = &decision["orders"][0];
    let ended = order["task"]["id"].as_u64().unwrap();
    assert!([reader, ddl].contains(&ended), "{decision:#}");
    assert_eq!(order["rung_name"], "pg_cancel_backend");
    let summary = decision["summary"].as_str().unwrap();
    assert!(
        summary.contains(&format!("session {reader}"))
            && summary.contains(&format!("session {ddl}")),
        "both are weighed: {summary}"
    );
    assert_eq!(agent.outcome()["result"], "released");
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0, "no innocent saw an error");
    assert_eq!(agent.sent().len(), 1, "one order, no second");
    if ended == ddl {
        assert!(alter.await.unwrap().is_err());
        report.abort();
    } else {
        assert!(report.await.unwrap().is_err());
        alter.await.unwrap().unwrap();
    }
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_client_does_not_read_is_ended_and_the_server_goes_on() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server, "client_does_not_read");
    let crowd = Crowd::gather(&server, READ, 8).await;
    crowd.gets_on().await;
    let (_client, pid) = deaf(&server).await;
    let resolved = resolve(server.pid, preset());
    looks(&resolved, "the client that does not read", |report| {
        let mut waits = report.unowned.iter();
        waits.any(|one| one.instance == "Client ClientWrite" && one.sessions == 1)
    });
    let (_, alter) = starts(&server, "alter table t add column c int").await;
    let decision = agent.decision(|d| d["orders"][0].is_object());
    assert_eq!(decision["orders"][0]["task"]["id"], pid, "{decision:#}");
    // A cancel does not reach a process that cannot get rid of its rows; its end does.
    assert_eq!(agent.outcome()["result"], "released");
    alter.await.unwrap().unwrap();
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0, "no innocent saw an error");
    assert!(agent.stop().success());
}
