//! What the embedded presets say, and what the rest of the agent gets out of them.

use atropos::config::{self, Initiator, LayoutValue, Location, Lookup, Preset};
use atropos::engine::settings::{Kind, Mode};
use atropos_common::op::Op;

fn mariadb() -> Preset {
    config::load("mariadb").unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn every_embedded_preset_is_without_mistakes() {
    assert!(
        config::embedded()
            .iter()
            .any(|(name, _)| *name == "mariadb")
    );
    for (name, _) in config::embedded() {
        let preset = config::load(name).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(
            preset.name.value, *name,
            "a preset is called like its folder"
        );
    }
}

#[test]
fn a_server_is_recognised_by_the_name_of_its_program() {
    let names = |program: &str| -> Vec<String> {
        config::recognise(program)
            .into_iter()
            .map(|preset| preset.name.value)
            .collect()
    };
    assert!(names("mariadbd").contains(&"mariadb".to_owned()));
    assert_eq!(names("bash"), Vec::<String>::new());
}

#[test]
fn the_mariadb_preset_means_what_it_says() {
    let preset = mariadb();
    assert_eq!(preset.resources[0].kind, Kind::Lock);
    let wait = preset
        .probes
        .iter()
        .find(|probe| probe.op == Op::WaitBegin)
        .unwrap();
    assert_eq!(wait.resource.map(|id| id.0), Some(0));
    let symbol = Location::Symbol {
        pattern: "MDL_wait::timed_wait".to_owned(),
        offset: 0,
    };
    assert_eq!(wait.alternatives[0].location.value, symbol);
    let end = preset
        .probes
        .iter()
        .find(|probe| probe.op == Op::RequestEnd)
        .unwrap();
    let sessions: Vec<_> = end
        .alternatives
        .iter()
        .map(|place| place.session.text())
        .collect();
    assert_eq!(
        sessions,
        ["arg0", "*(arg0 + 8)"],
        "an alternative has its own session"
    );
    assert_eq!(
        preset.walks[0].scope(),
        ["thd", "ctx", "ticket", "lock", "namespace"]
    );
    assert_eq!(preset.cancel.unwrap().initiator, Initiator::Mysql);
}

#[test]
fn a_layout_entry_comes_behind_the_one_that_it_depends_on() {
    let preset = mariadb();
    let index = |name: &str| {
        preset
            .layout
            .iter()
            .position(|entry| entry.name == name)
            .unwrap()
    };
    assert!(index("thd_id") < index("thd_os_thread"));
}

#[test]
fn the_engine_gets_resources_classes_and_the_ladder() {
    let slo = config::parse_slo("p99=20ms").unwrap();
    let settings = mariadb().settings(slo, Mode::Observe, vec!["root".to_owned()]);
    assert_eq!(settings.preset, "mariadb");
    let ladder: Vec<_> = settings
        .ladder
        .iter()
        .map(|rung| (rung.name.as_str(), rung.busy, rung.idle))
        .collect();
    assert_eq!(
        ladder,
        [
            ("KILL QUERY ID", true, false),
            ("KILL QUERY", true, false),
            ("KILL CONNECTION", true, true)
        ]
    );
    assert_eq!(settings.ladder[2].deadline_ns, 5_000_000_000);
    let backup = settings
        .classes
        .iter()
        .find(|class| class.name == "backup")
        .unwrap();
    assert!(backup.protected && !backup.protected_queued);
    let replication = settings
        .classes
        .iter()
        .find(|class| class.name == "replication")
        .unwrap();
    assert!(
        replication.protected_queued,
        "what is protected is protected in the queue too, unless it says otherwise"
    );
    assert_eq!(settings.protected_principals, ["root"]);
}

#[test]
fn work_is_classified_by_user_and_by_statement() {
    let preset = mariadb();
    let class = |principal: &str, statement: &str| {
        preset
            .classify(principal, statement)
            .map(|index| preset.classes[usize::from(index)].class.name.clone())
    };
    assert_eq!(
        class("app", "ALTER TABLE t ADD c INT").as_deref(),
        Some("ddl")
    );
    assert_eq!(
        class("app", "flush tables WITH READ lock").as_deref(),
        Some("backup")
    );
    assert_eq!(
        class("system user", "UPDATE t SET a = 1").as_deref(),
        Some("replication")
    );
    assert_eq!(class("app", "SELECT 1"), None);
}

/// A binary that has everything but some names.
struct Without(&'static [&'static str]);

impl Lookup for Without {
    fn accessor(&self, function: &str, nth: u32) -> Result<i64, String> {
        self.symbol(function).map(|_| 0x100 * i64::from(nth + 1))
    }

    fn global(&self, function: &str, nth: u32) -> Result<u64, String> {
        Ok(self.symbol(function)? + 8 * u64::from(nth))
    }

    fn symbol(&self, name: &str) -> Result<u64, String> {
        if self.0.contains(&name) {
            Err("the binary does not export it".to_owned())
        } else {
            Ok(0x5555_0000)
        }
    }
}

#[test]
fn a_variable_without_a_name_is_learned_from_who_reads_it() {
    let preset = config::load("postgresql").unwrap();
    let (names, problems) = preset.bindings(&Without(&[]));
    assert_eq!(problems, []);
    assert_eq!(names.layout("statuses"), Some(0x5555_0000));
    let (names, problems) = preset.bindings(&Without(&["pgstat_get_crashed_backend_activity"]));
    assert_eq!(names.layout("statuses"), None);
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn a_symbol_that_only_the_places_of_orders_need_is_bound_too() {
    let text = "schema = 1\nname = \"small\"\n[match]\nprograms = [\"small\"]\n[cancel]\ninitiator = \"signal\"\n\
                [cancel.exact]\nsession = \"pid\"\nrequest = \"u64(symbol(current))\"\nwhen = \"u32(symbol(state)) == 2\"\n\
                at = [{ symbol = \"work\" }]\nwithin = \"100ms\"\n\
                [[cancel.rung]]\nname = \"stop\"\ncommand = \"SIGINT\"\nworks = [\"busy\"]\ndeadline = \"1s\"\n";
    let preset = config::parse("small.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
    let symbols: Vec<&str> = preset.symbols().into_keys().collect();
    assert_eq!(symbols, ["current", "state"]);
}

#[test]
fn names_are_bound_to_one_process() {
    let preset = mariadb();
    let (names, problems) = preset.bindings(&Without(&[]));
    assert_eq!(problems, []);
    assert_eq!(names.layout("thd_id"), Some(0x100));
    assert_eq!(names.layout("thd_os_thread"), Some(0x110));
    assert_eq!(names.layout("thd_start_us"), Some(0x200));
    let sessions = preset.sessions.unwrap();
    let end = sessions.end.bind(&names).unwrap();
    assert_eq!(end.constant(), Some(0x5555_0008));
}

#[test]
fn what_a_binary_lacks_is_told_at_the_line_of_the_preset_and_the_rest_works() {
    let preset = mariadb();
    let (names, problems) = preset.bindings(&Without(&["thd_get_thread_id", "global_query_id"]));
    let shown: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 3, "{shown:#?}");
    assert!(
        shown
            .iter()
            .all(|problem| problem.contains("--> presets/mariadb/preset.toml:")),
        "{shown:#?}"
    );
    assert!(preset.completed.unwrap().bind(&names).is_err());
    assert!(
        preset.walks[0]
            .granted
            .as_ref()
            .unwrap()
            .first
            .bind(&names.with_variables(preset.walks[0].scope()))
            .is_ok()
    );
}

#[test]
fn accessors_are_named_by_their_mangled_symbol() {
    let accessors = mariadb().layout;
    let accessor = |name: &str| {
        accessors
            .iter()
            .find(|entry| entry.name == name)
            .unwrap()
            .value
            .value
            .clone()
    };
    assert_eq!(
        accessor("thd_killed"),
        LayoutValue::Accessor {
            function: "_ZN3THD9is_killedEv".to_owned(),
            nth: 0
        }
    );
}

/// The examples in a text that are whole configs.
fn examples(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|toml| toml.starts_with("schema"))
}

#[test]
fn the_examples_of_the_documentation_are_without_mistakes() {
    let docs = [
        include_str!("../../../docs/config.md"),
        include_str!("../../../presets/mariadb/README.md"),
    ];
    for text in docs {
        assert!(examples(text).next().is_some());
        for example in examples(text) {
            config::parse("example.toml", example).unwrap_or_else(|problems| panic!("{problems}"));
        }
    }
}
