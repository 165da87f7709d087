//! What takes long or is in the way and is left alone all the same.

use std::time::Duration;

use crate::common::postgresql::Postgres;
use crate::crowd::{Crowd, READ, attach};
use crate::scene::{is_alive, row, server, starts};

/// Autovacuum looks for work every second.
async fn hurry_autovacuum(server: &Postgres) {
    server
        .run(&[
            "alter system set autovacuum_naptime = '1s'",
            "select pg_reload_conf()",
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autovacuum_that_gives_back_the_end_of_a_table() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server, "left_alone_autovacuum_truncates");
    server
        .run(&[
            "create table tail with (autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = -1) as select i id, 0 v, repeat('x', 200) pad from generate_series(1, 100000) i",
            "create index on tail (id)",
        ])
        .await;
    let crowd = Crowd::gather(&server, "select v from tail where id = 7", 3).await;
    crowd.gets_on().await;
    hurry_autovacuum(&server).await;
    let (admin, _) = server.connect().await;
    // It gives up, for this time, if somebody has the table whenever it looks; then there is more to be cleaned away.
    let mut rounds = (1..=45).map(|round| (round, 3000 - 60 * round));
    let pages = loop {
        let (round, rows) = rounds.next().expect("the end is given back");
        let clean = format!("delete from tail where id > {rows}");
        server.run(&[&clean]).await;
        let done = format!(
            "select pg_relation_size('tail') / 8192 from pg_stat_user_tables where relname = 'tail' and autovacuum_count >= {round}"
        );
        let pages: i64 = row(&admin, &done).await.get(0);
        if pages < 1000 {
            break pages;
        }
    };
    println!("{pages} pages are left");
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    agent.answers();
    assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autovacuum_that_lets_an_alter_table_pass_by_itself() {
    let Some(server) = server().await else { return };
    server
        .run(&[
            "create table dirty with (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1) as select i, repeat('x', 500) pad from generate_series(1, 20000) i",
            "delete from dirty where i > 10",
        ])
        .await;
    let mut agent = attach(&server, "left_alone_autovacuum_yields");
    let crowd = Crowd::gather(&server, "select i from dirty limit 1", 8).await;
    hurry_autovacuum(&server).await;
    let (admin, _) = server.connect().await;
    row(
        &admin,
        "select 1 from pg_stat_progress_vacuum where relid = 'dirty'::regclass",
    )
    .await;
    crowd.gets_on().await;
    // For a second everybody waits behind it.
    let (_, alter) = starts(&server, "alter table dirty add column c int").await;
    agent.wait_for("overload", |line| {
        line["effect"]["overload"]["state"] == "resource"
    });
    alter.await.unwrap().unwrap();
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    agent.answers();
    assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_hurts_nobody() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server, "left_alone_batch");
    let crowd = Crowd::gather(&server, READ, 4).await;
    crowd.gets_on().await;
    let batch = "do $$ begin for i in 1..60 loop insert into other select j, i from generate_series(1, 500) j; perform pg_sleep(0.1); end loop; end $$";
    let (_, batch) = starts(&server, batch).await;
    batch.await.unwrap().unwrap();
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    agent.answers();
    assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    assert!(agent.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_snapshot_beside_a_queue_table() {
    let Some(server) = server().await else { return };
    let mut agent = attach(&server, "left_alone_old_snapshot");
    let (reader, _) = server.connect().await;
    reader
        .batch_execute("begin isolation level repeatable read; select * from t")
        .await
        .unwrap();
    let crowd = Crowd::gather(
        &server,
        "insert into other values (0, 0); delete from other where id = 0",
        4,
    )
    .await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    agent.answers();
    assert_eq!(agent.sent().len(), 0, "{:#?}", agent.sent());
    assert!(is_alive(&reader).await);
    assert!(agent.stop().success());
}
