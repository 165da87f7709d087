//! A cluster of another version is refused with a reason that tells which it is.

use atropos::agent::resolve::Resolved;
use atropos::config;
use atropos::target::Process;

use crate::common::postgresql::Postgres;

/// Why a process is not watched by the preset with this in it.
fn refusal(pid: u32, known: &str) -> Option<String> {
    let text = format!(
        "schema = 1\nname = \"other\"\nextends = \"postgresql\"\n[match]\nversion = {known}\n"
    );
    let preset = config::parse("other.toml", &text).unwrap_or_else(|p| panic!("{p}"));
    let resolved = Resolved::new(Process::open(pid).unwrap(), preset);
    resolved.err().map(|error| format!("{error:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_version_is_refused_and_told_by_its_version() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let said = refusal(
        server.pid,
        "{ file = \"PG_VERSION\", known = [\"12\", \"13\"] }",
    )
    .unwrap();
    assert!(
        said.contains("is of version 15") && said.contains("knows 12, 13"),
        "{said}"
    );
    let unknown = "{ file = \"NO_VERSION\", known = [\"15\"] }";
    let said = refusal(server.pid, unknown).unwrap();
    assert!(said.contains("no NO_VERSION that can be read"), "{said}");
    assert_eq!(
        refusal(
            server.pid,
            "{ file = \"PG_VERSION\", known = [\"14\", \"15\"] }"
        ),
        None
    );
}
