//! What `atropos check` says of the places where a backend finds its order.

use serde_json::Value;

use crate::agent::atropos;
use crate::common::postgresql::Postgres;

fn check(server: &Postgres, preset: &str) -> (Value, String) {
    let pid = server.pid.to_string();
    let run = |more: &[&str]| {
        let output = atropos()
            .args(["check", "--preset", preset, "--pid", &pid])
            .args(["--seconds", "0"])
            .args(more)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    (serde_json::from_str(&run(&["--json"])).unwrap(), run(&[]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_place_of_orders_is_listed_with_where_it_lies_or_why_it_does_not() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let (report, text) = check(&server, "postgresql");
    let places = report["initiator"]["exact"]["places"].as_array().unwrap();
    for (place, symbol) in
        places
            .iter()
            .zip(["ResetLatch", "MemoryContextReset", "ReadBufferExtended"])
    {
        let found = &place["place"]["Ok"];
        assert_eq!(found["symbol"], symbol, "{place:#}");
        assert!(found["offset"].as_u64().unwrap() > 0, "{place:#}");
        assert!(text.contains(&format!("    {symbol} at 0x")), "{text}");
    }
    assert_eq!(places.len(), 3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nowhere.toml");
    let nowhere = "schema = 1\nname = \"nowhere\"\nextends = \"postgresql\"\n[cancel.exact]\nat = [{ symbol = \"Nowhere\" }]\n";
    std::fs::write(&file, nowhere).unwrap();
    let (report, text) = check(&server, file.to_str().unwrap());
    let tried = &report["initiator"]["exact"]["places"][0]["place"]["Err"][0];
    assert!(tried.as_str().unwrap().contains("Nowhere"), "{report:#}");
    assert!(
        text.contains("Nowhere: no place: ") && text.contains("every order goes the ordinary way"),
        "{text}"
    );
}
