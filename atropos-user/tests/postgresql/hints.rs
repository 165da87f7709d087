//! Who wakes whom, where the holders are not seen.

use crate::crowd::attach_by;
use crate::scene::{server, starts, terminated};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_wakes_those_that_wait_within_the_server_is_told_as_a_hint_and_nobody_is_ended() {
    let Some(server) = server().await else { return };
    let mut crowd = Vec::new();
    for _ in 0..12 {
        let statement = "do $$ begin for i in 1..1000000 loop insert into other values (i, i); commit; end loop; end $$";
        crowd.push(starts(&server, statement).await);
    }
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    // Every statement is above that: the agent watches closely all the time.
    let arguments = ["--slo", "p99=1us", "--enforce", "--audit"];
    let mut agent = attach_by(
        &server,
        None,
        &[&arguments[..], &[audit.to_str().unwrap()]].concat(),
    );
    let line = agent.wait_for("hint", |line| line["effect"]["hints"].is_object());
    let hint = &line["effect"]["hints"]["hints"][0];
    assert_eq!(hint["evidence"], "inference");
    assert!(hint["wake_count"].as_u64().unwrap() > 0, "{hint:#}");
    let thread = hint["thread"].as_u64().unwrap();
    let says = hint["says"].as_str().unwrap();
    if let Some(id) = hint["task"]["id"].as_u64().filter(|id| *id != 0) {
        assert!(crowd.iter().any(|(pid, _)| *pid == id), "{hint:#}");
        assert_eq!(thread, id, "a session is a process");
        assert!(says.contains(&format!("woken by session {id}")), "{says}");
    } else {
        assert!(
            says.contains("postgres: "),
            "a process of the server: {says}"
        );
    }
    assert!(says.ends_with("no proof"), "{says}");
    assert!(agent.sent().is_empty(), "a hint ends nobody");
    assert!(agent.stop().success());
    let lines = std::fs::read_to_string(&audit).unwrap();
    let kinds: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told = kinds.iter().find(|line| line["kind"] == "hints").unwrap();
    assert_eq!(told["hints"]["hints"][0]["says"], hint["says"]);
    terminated(&server, crowd).await;
}
