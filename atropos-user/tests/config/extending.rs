//! A file of the user, laid over a preset or another file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use atropos::config::{self, Command, Initiator, Preset, Problems};
use atropos::engine::settings::{Background, Mode, Repeat, Rerun, Tuning};
use tempfile::TempDir;

/// A folder with one file.
fn folder(name: &str, text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, name, text);
    (folder, path)
}

/// Writes a file that only its owner may write.
fn write(folder: &TempDir, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path
}

/// Reads a file that holds this text.
fn load(text: &str) -> Result<Preset, Problems> {
    let (_folder, path) = folder("mine.toml", text);
    config::load(path.to_str().unwrap())
}

/// Reads a file that has no mistakes.
fn good(text: &str) -> Preset {
    load(text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The start of a file that extends the preset of `MariaDB`.
const MARIADB: &str = "schema = 1\nextends = \"mariadb\"\n";

#[test]
fn a_file_that_only_extends_is_what_it_extends() {
    let (mine, theirs) = (good(MARIADB), config::load("mariadb").unwrap());
    assert_eq!(mine, theirs);
}

#[test]
fn keys_of_a_table_are_overridden_one_by_one() {
    let preset = good(&format!(
        "{MARIADB}name = \"mine\"\n[sessions]\nlimit = 7\n[layout]\nthd_next = 24\n"
    ));
    assert_eq!(preset.name.value, "mine");
    let sessions = preset.sessions.unwrap();
    assert_eq!(
        (sessions.limit, sessions.id.text()),
        (7, "u64(thd + @thd_id)")
    );
    let theirs = config::load("mariadb").unwrap().layout;
    assert_eq!(preset.layout.len(), theirs.len());
    let next = preset
        .layout
        .iter()
        .find(|entry| entry.name == "thd_next")
        .unwrap();
    assert!(
        next.value.place.to_string().ends_with("mine.toml:7:12"),
        "{}",
        next.value.place
    );
}

#[test]
fn a_layout_entry_is_replaced_as_a_whole() {
    let preset = good(&format!(
        "{MARIADB}[layout]\nthd_os_thread = {{ accessor = \"thd_os_id\" }}\n"
    ));
    assert!(
        preset
            .layout
            .iter()
            .any(|entry| entry.name == "thd_os_thread")
    );
}

#[test]
fn tables_of_an_array_are_overridden_by_name_and_others_are_appended() {
    let theirs = config::load("mariadb").unwrap();
    let preset = good(&format!(
        "{MARIADB}\
         [[class]]\nname = \"ddl\"\nprotected = false\n\
         [[class]]\nname = \"report\"\nstatements = [\"select\"]\n\
         [[walk]]\nresource = \"metadata_lock\"\n[walk.granted]\nlimit = 5\n"
    ));
    assert_eq!(preset.classes.len(), theirs.classes.len() + 1);
    let ddl = preset
        .classes
        .iter()
        .find(|class| class.class.name == "ddl")
        .unwrap();
    assert!(!ddl.class.protected);
    assert!(
        ddl.statements.contains(&"alter".to_owned()),
        "what is not overridden stays"
    );
    assert_eq!(preset.classes.last().unwrap().class.name, "report");
    assert_eq!(preset.walks.len(), 1);
    assert_eq!(
        (
            preset.walks[0].granted.as_ref().unwrap().limit,
            preset.walks[0].queued.as_ref().unwrap().limit
        ),
        (5, 10_000)
    );
}

#[test]
fn a_budget_is_overridden_key_by_key_and_has_defaults() {
    let usual = config::load("mariadb").unwrap().budget;
    assert_eq!((usual.calm, usual.suspect), (0.005, 0.03));
    let preset = good(&format!(
        "{MARIADB}[budget]\ncalm = \"1%\"\ncalibrate = false\n"
    ));
    assert_eq!((preset.budget.calm, preset.budget.suspect), (0.01, 0.03));
    assert!(!preset.calibrate);
}

#[test]
fn decisions_are_as_usual_but_for_what_is_asked_for() {
    let usual = config::load("mariadb").unwrap();
    assert_eq!(usual.tuning, Tuning::default());
    assert_eq!(usual.rerun, Rerun::default());
    let preset = good(&format!(
        "{MARIADB}[decide]\nrepeat = \"endure\"\nend_groups = true\nmin_gain = \"500ms\"\nper_minute = 3\n\
         nearly_done = \"80%\"\nretry_wait = \"1m\"\n\
         [[class]]\nname = \"report\"\nstatements = [\"select\"]\nbackground = \"30s\"\n"
    ));
    let asked = Tuning {
        repeat: Repeat::Endure,
        end_groups: true,
        min_gain_s: 0.5,
        per_minute: 3,
        nearly_done: 0.8,
        ..Tuning::default()
    };
    assert_eq!(preset.tuning, asked);
    let slo = config::parse_slo("p99=20ms").unwrap();
    let settings = preset.settings(slo, Mode::Observe, Vec::new());
    let report = preset.classes.len() as u16 - 1;
    assert_eq!(settings.tuning, asked);
    assert_eq!(
        settings.rerun,
        Rerun {
            wait_ns: 60_000_000_000,
            background: vec![Background {
                class: report,
                wait_ns: 30_000_000_000
            }],
            ..Rerun::default()
        }
    );
}

#[test]
fn a_probe_is_worth_what_its_operation_is_unless_it_says_otherwise() {
    let preset = good(&format!(
        "{MARIADB}[[probe]]\nname = \"request_end\"\npriority = 99\n"
    ));
    let worth = |name: &str| {
        let probe = preset.probes.iter().find(|probe| probe.name.value == name);
        probe.unwrap().priority
    };
    assert_eq!(
        (
            worth("mdl_wait"),
            worth("request_begin"),
            worth("request_end")
        ),
        (80, 30, 99)
    );
}

#[test]
fn what_is_not_wanted_is_switched_off() {
    let preset = good(&format!(
        "{MARIADB}[[probe]]\nname = \"request_begin\"\nenabled = false\n[[cancel.rung]]\nname = \"KILL CONNECTION\"\nenabled = false\n"
    ));
    assert!(
        preset
            .probes
            .iter()
            .all(|probe| probe.name.value != "request_begin")
    );
    assert_eq!(preset.cancel.unwrap().rungs.len(), 2);
}

#[test]
fn one_key_of_the_exact_way_is_overridden_alone() {
    let text = "schema = 1\nname = \"mine\"\nextends = \"postgresql\"\n[cancel.exact]\nwithin = \"300ms\"\n";
    let preset = load(text).unwrap_or_else(|problems| panic!("{problems}"));
    let exact = preset.cancel.unwrap().exact.unwrap();
    assert_eq!(exact.within, Duration::from_millis(300));
    let places: Vec<&str> = exact
        .places
        .iter()
        .map(|place| place.name.as_str())
        .collect();
    assert!(places.contains(&"ResetLatch"), "{places:?}");
}

#[test]
fn sessions_are_ended_for_a_note_only_where_a_config_says_so() {
    let note = |text: &str| {
        let sessions = load(text).unwrap_or_else(|problems| panic!("{problems}"));
        sessions.sessions.unwrap().notes.remove(0)
    };
    let base = "schema = 1\nname = \"mine\"\nextends = \"postgresql\"\n";
    let usual = note(base);
    assert_eq!((usual.name.as_str(), &usual.end), ("old_snapshot", &None));
    let mine = note(&format!(
        "{base}[[sessions.note]]\nname = \"old_snapshot\"\nend_above = 2_000_000\nend_after = \"30m\"\n"
    ));
    let end = mine.end.unwrap();
    assert_eq!((end.above, end.after_ns), (2_000_000, 1_800_000_000_000));
    assert!(end.may_end.is_some(), "the preset says of whom");
    assert_eq!(mine.says, usual.says, "the rest stays");
}

#[test]
fn a_file_of_somebody_else_may_not_say_that_sessions_are_ended() {
    let text = "schema = 1\nname = \"mine\"\nextends = \"postgresql\"\n[[sessions.note]]\nname = \"old_snapshot\"\nend_above = 2_000_000\nend_after = \"30m\"\n";
    let (_folder, path) = folder("mine.toml", text);
    let load = || config::load(path.to_str().unwrap());
    assert!(load().is_ok());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&path, mode).unwrap();
    let answer = load().unwrap_err().to_string();
    assert!(
        answer.contains("mine.toml:6:1") && answer.contains("chmod go-w"),
        "{answer}"
    );
}

#[test]
fn another_initiator_brings_its_own_rungs() {
    let preset = good(&format!(
        "{MARIADB}[cancel]\ninitiator = \"exec\"\n[[cancel.rung]]\nname = \"stop\"\nargv = [\"/usr/local/bin/stop\", \"{{id}}\"]\nworks = [\"busy\", \"idle\"]\ndeadline = \"2s\"\n"
    ));
    let cancel = preset.cancel.unwrap();
    assert_eq!(cancel.initiator, Initiator::Exec);
    assert_eq!(cancel.rungs.len(), 1);
    let argv = vec!["/usr/local/bin/stop".to_owned(), "{id}".to_owned()];
    assert_eq!(cancel.rungs[0].command, Command::Exec { argv });
}

#[test]
fn a_mistake_in_an_override_is_shown_in_the_file_that_makes_it() {
    let answer = load(&format!(
        "{MARIADB}[[probe]]\nname = \"mdl_wait\"\nop = \"wait\"\n"
    ))
    .unwrap_err()
    .to_string();
    assert!(answer.contains("mine.toml:5:6"), "{answer}");
    assert!(!answer.contains("presets/mariadb"), "{answer}");
}

#[test]
fn a_file_extends_a_file_beside_it() {
    let (folder, _) = folder("base.toml", &format!("{MARIADB}title = \"base\"\n"));
    let path = write(
        &folder,
        "mine.toml",
        "schema = 1\nextends = \"./base.toml\"\nname = \"mine\"\n",
    );
    let preset = config::load(path.to_str().unwrap()).unwrap();
    assert_eq!(
        (preset.name.value.as_str(), preset.title.as_str()),
        ("mine", "base")
    );
}

#[test]
fn a_circle_of_files_is_an_error_and_not_a_hang() {
    let (folder, path) = folder("a.toml", "schema = 1\nextends = \"./b.toml\"\n");
    fs::create_dir(folder.path().join("x")).unwrap();
    write(
        &folder,
        "b.toml",
        "schema = 1\nextends = \"./x/../a.toml\"\n",
    );
    let answer = config::load(path.to_str().unwrap())
        .unwrap_err()
        .to_string();
    assert!(answer.contains("goes in a circle"), "{answer}");
    assert!(answer.contains("b.toml:2:11"), "{answer}");
}

#[test]
fn a_chain_of_files_has_an_end() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..20 {
        let text = format!("schema = 1\nextends = \"./{}.toml\"\n", n + 1);
        write(&folder, &format!("{n}.toml"), text);
    }
    let answer = config::load(folder.path().join("0.toml").to_str().unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        answer.contains("9 configs extend each other in a row"),
        "{answer}"
    );
    assert!(answer.contains("7.toml:2:11"), "{answer}");
}

#[test]
fn a_base_that_is_not_there_is_shown_at_the_line_that_names_it() {
    let answer = load("schema = 1\nextends = \"./gone.toml\"\n")
        .unwrap_err()
        .to_string();
    assert!(
        answer.contains("gone.toml: No such file or directory"),
        "{answer}"
    );
    assert!(answer.contains("mine.toml:2:11"), "{answer}");
}

#[test]
fn files_that_cannot_be_configs_are_refused() {
    let answer = |path: &str| config::load(path).unwrap_err().to_string();
    assert!(answer("/nowhere/x.toml").contains("No such file or directory"));
    assert!(answer("/dev/null").contains("not a regular file"));
    assert!(answer("/").contains("not a regular file"));
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "bytes.toml", b"schema = 1\nname = \"\xff\"\n");
    assert!(answer(path.to_str().unwrap()).contains("the byte at offset 19 is not UTF-8"));
    let path = write(&folder, "large.toml", vec![b'#'; 300 << 10]);
    assert!(answer(path.to_str().unwrap()).contains("larger than 256 KiB"));
}

#[test]
fn an_unknown_name_is_answered_with_the_closest_preset() {
    let answer = config::load("maria").unwrap_err().to_string();
    assert!(answer.contains("closest: `mariadb`"), "{answer}");
}

#[test]
fn commands_in_a_file_that_others_may_write_are_refused() {
    let text = format!("{MARIADB}[[cancel.rung]]\nname = \"KILL QUERY\"\ndeadline = \"2s\"\n");
    let (_folder, path) = folder("mine.toml", &text);
    let path = path.to_str().unwrap();
    config::load(path).unwrap_or_else(|problems| panic!("{problems}"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o664)).unwrap();
    let answer = config::load(path).unwrap_err().to_string();
    assert!(answer.contains(&format!("chmod go-w {path}")), "{answer}");
}

#[test]
fn commands_in_a_base_that_others_may_write_are_refused_too() {
    let (folder, base) = folder(
        "base.toml",
        &format!("{MARIADB}[[cancel.rung]]\nname = \"KILL QUERY\"\ndeadline = \"2s\"\n"),
    );
    let path = write(
        &folder,
        "mine.toml",
        "schema = 1\nextends = \"./base.toml\"\n",
    );
    fs::set_permissions(&base, fs::Permissions::from_mode(0o666)).unwrap();
    let answer = config::load(path.to_str().unwrap())
        .unwrap_err()
        .to_string();
    assert!(answer.contains("base.toml:3:"), "{answer}");
}

#[test]
fn a_file_without_commands_may_be_written_by_its_group() {
    let (_folder, path) = folder("mine.toml", &format!("{MARIADB}title = \"ours\"\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    config::load(path.to_str().unwrap()).unwrap_or_else(|problems| panic!("{problems}"));
}
