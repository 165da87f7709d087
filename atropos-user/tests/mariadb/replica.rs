//! A replica: the threads that apply what the source sends are nobody's task.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use serde_json::Value;

use crate::agent::Agent;
use crate::common::crowd::Crowd;
use crate::common::eventually;
use crate::common::mariadb::MariaDb;
use crate::scene::{Person, waiting};

const SLEEPS: &str = "select id from information_schema.processlist where user = 'system user' and state = 'User sleep'";

/// A source and a replica that has caught up; nothing where no server is installed.
async fn pair() -> Option<(MariaDb, MariaDb)> {
    let source = MariaDb::start_listening(&[
        "--log-bin=bin",
        "--server-id=1",
        "--binlog-format=STATEMENT",
    ])?;
    let replica = MariaDb::start_listening(&["--server-id=2"])?;
    source
        .run(&[
            "create user copier@'127.0.0.1'",
            "grant replication slave on *.* to copier@'127.0.0.1'",
        ])
        .await;
    let follow = format!(
        "change master to master_host = '127.0.0.1', master_port = {}, master_user = 'copier', master_use_gtid = slave_pos",
        source.ports.unwrap().port
    );
    replica.run(&[&follow, "start slave"]).await;
    source
        .run(&[
            "create database w",
            "use w",
            "create table w.t (id int primary key, v int) as select seq as id, 0 as v from seq_1_to_100",
        ])
        .await;
    let mut admin = replica.connect().await;
    eventually("the replica to catch up", async || {
        let rows: Result<Option<u64>, _> = admin.query_first("select count(*) from w.t").await;
        rows.is_ok_and(|rows| rows == Some(100)).then_some(())
    })
    .await;
    Some((source, replica))
}

/// One column of `show slave status`.
async fn status(admin: &mut Conn, column: &str) -> String {
    let row: Row = admin
        .query_first("show slave status")
        .await
        .unwrap()
        .unwrap();
    row.get::<String, _>(column).unwrap()
}

fn of_the_server(candidate: &Value) -> bool {
    candidate["task"]["principal"] == "system user"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_applies_what_the_source_sends_is_never_ended() {
    let Some((source, replica)) = pair().await else {
        return;
    };
    // Sleeps on the replica alone, with the lock on the table. Its time is the source's, here far in the past.
    let insert = format!(
        "insert into w.t select 1000, if(@@port = {}, sleep(60), 0)",
        replica.ports.unwrap().port
    );
    source.run(&["set timestamp = 1000000", &insert]).await;
    let mut admin = replica.connect().await;
    let mut applier = 0;
    eventually("the replica to apply it", async || {
        applier = admin.query_first(SLEEPS).await.unwrap().unwrap_or(0);
        (applier > 0).then_some(())
    })
    .await;
    let mut agent = Agent::attach(&replica, &["--slo", "p99=20ms", "--enforce"]);
    let alter = Person::new(&replica).await.starts("alter table w.t force");
    waiting(&replica, 1).await;
    let crowd = Crowd::gather(&replica, "select v from w.t where id = 7", 8).await;
    let decision = agent.decision(|d| {
        let candidates = d["candidates"].as_array();
        candidates.is_some_and(|all| all.iter().any(of_the_server))
    });
    let candidates = decision["candidates"].as_array().unwrap();
    let seen = candidates.iter().find(|c| of_the_server(c)).unwrap();
    assert_eq!(seen["task"]["id"], applier, "{decision:#}");
    assert_eq!(seen["passed_over"], "protected_class", "{decision:#}");
    // The queued ALTER is all that is left to end, and frees everybody.
    assert_eq!(agent.outcome()["result"], "released");
    assert_eq!(alter.await.unwrap(), Err(1317));
    crowd.gets_on().await;
    assert_eq!(crowd.disperse().await, 0);
    for sent in agent.sent() {
        let command = sent["command"].as_str().unwrap().to_owned();
        assert!(!command.ends_with(&format!(" {applier}")), "{command}");
    }
    assert_eq!(status(&mut admin, "Slave_SQL_Running").await, "Yes");
    assert_eq!(status(&mut admin, "Last_SQL_Errno").await, "0");
}
