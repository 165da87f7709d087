//! Symbols, accessors and sites of files that a real compiler made, and of `mariadbd` where it is installed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::process::Command;

use atropos::elf::{Cost, Image, NotFound, Parts, SymbolPattern};

const SOURCE: &str = include_str!("fixtures/symbols.c");
const MARIADBD: &str = "/usr/sbin/mariadbd";

fn fixture(flags: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::read(common::compile(
        SOURCE,
        &folder.path().join("fixture"),
        flags,
    ))
    .unwrap()
}

fn find(image: &Image<'_>, pattern: &str) -> Result<String, NotFound> {
    image
        .find(&SymbolPattern::new(pattern))
        .map(|symbol| symbol.name)
}

#[test]
fn one_function_is_found_by_name_path_or_glob() {
    for flags in [
        &["-O2", "-pie"][..],
        &["-O2", "-no-pie"],
        &["-O2", "-s", "-rdynamic"],
    ] {
        let bytes = fixture(flags);
        let image = Image::parse(&bytes).unwrap();
        for pattern in [
            "_ZN4Lock7releaseEv",
            "Lock::release",
            "Lock::rel*",
            "*::release",
            "_ZN4Lock7rel*",
        ] {
            assert_eq!(
                find(&image, pattern).as_deref(),
                Ok("_ZN4Lock7releaseEv"),
                "{pattern} {flags:?}"
            );
        }
        assert_eq!(find(&image, "thing_id").as_deref(), Ok("thing_id"));
        assert_eq!(
            find(&image, "_ZN4Lock7acquireEd").as_deref(),
            Ok("_ZN4Lock7acquireEd")
        );
        assert_eq!(
            find(&image, "Lock::Lock").as_deref(),
            Ok("_ZN4LockC1Ev"),
            "aliases are one function"
        );
    }
}

#[test]
fn overloads_and_wide_globs_are_refused_with_the_list() {
    let bytes = fixture(&["-O2"]);
    let image = Image::parse(&bytes).unwrap();
    let error = find(&image, "Lock::acquire").unwrap_err().to_string();
    assert!(error.contains("means 2 functions"), "{error}");
    assert!(
        error.contains("_ZN4Lock7acquireEd (Lock::acquire(double))"),
        "{error}"
    );
    assert!(
        error.contains("_ZN4Lock7acquireEi (Lock::acquire(int))"),
        "{error}"
    );
    assert!(
        matches!(find(&image, "Lock::*"), Err(NotFound::Ambiguous { candidates, .. }) if candidates.len() == 4)
    );
}

#[test]
fn a_missing_name_gets_the_closest_ones() {
    let bytes = fixture(&["-O2"]);
    let image = Image::parse(&bytes).unwrap();
    let error = find(&image, "Lock::relaese").unwrap_err().to_string();
    assert!(
        error.starts_with("no function `Lock::relaese` among "),
        "{error}"
    );
    assert!(error.contains("closest: Lock::release"), "{error}");
    assert!(
        find(&image, "thing_idd")
            .unwrap_err()
            .to_string()
            .contains("thing_id")
    );
    assert!(
        !find(&image, "qqqqqqqqqqqqqqqqqqqqq")
            .unwrap_err()
            .to_string()
            .contains("closest")
    );
    assert!(find(&image, "").is_err());
    assert!(find(&image, "things").is_err(), "a variable is no function");
}

#[test]
fn variables_are_found_and_zero_filled_ones_have_no_file_offset() {
    let bytes = fixture(&["-O2"]);
    let image = Image::parse(&bytes).unwrap();
    let things = image.data_symbol("things").unwrap();
    assert_eq!(things.size, 4 * 0x138);
    assert!(things.file_offset.is_some());
    assert_eq!(image.data_symbol("zeroed").unwrap().file_offset, None);
    assert!(
        image
            .data_symbol("zeroes")
            .unwrap_err()
            .to_string()
            .contains("closest: zeroed")
    );
    assert!(image.data_symbol("main").is_err());
}

#[test]
fn accessors_tell_offsets_and_others_are_refused() {
    let bytes = fixture(&["-O2"]);
    let image = Image::parse(&bytes).unwrap();
    assert_eq!(image.accessor("thing_id", 0), Ok(0x128));
    assert_eq!(image.accessor("thing_sum", 0), Ok(0x128));
    assert_eq!(image.accessor("thing_sum", 1), Ok(0x130));
    assert!(image.accessor("thing_id", 1).is_err());
    assert!(
        image
            .accessor("thing_idx", 0)
            .unwrap_err()
            .to_string()
            .contains("closest: thing_id")
    );
    assert!(image.accessor("main", 0).is_err());
}

#[test]
fn a_site_behind_endbr64_moves_to_the_push() {
    let bytes = fixture(&["-O0", "-fcf-protection=full"]);
    let image = Image::parse(&bytes).unwrap();
    let symbol = image.find(&SymbolPattern::new("main")).unwrap();
    let site = image.site(symbol.vaddr).unwrap();
    assert_eq!(
        (site.moved, site.cost, site.vaddr),
        (4, Cost::Cheap, symbol.vaddr + 4),
        "{}",
        site.why
    );
    assert_eq!(
        bytes[site.file_offset as usize], 0x55,
        "the file holds a push at the file offset"
    );
    assert!(
        image
            .site(image.data_symbol("things").unwrap().vaddr)
            .is_err(),
        "data carries no probe"
    );
    assert!(image.site(0xdead_beef_0000).is_err());
}

#[test]
fn the_build_id_is_what_the_linker_wrote() {
    let bytes = fixture(&["-O2", "-Wl,--build-id=0x0123456789abcdef0123"]);
    let image = Image::parse(&bytes).unwrap();
    assert_eq!(
        image.build_id().unwrap().to_string(),
        "0123456789abcdef0123"
    );
    assert!(
        Image::parse(&fixture(&["-O2", "-Wl,--build-id=none"]))
            .unwrap()
            .build_id()
            .is_none()
    );
}

#[test]
fn damaged_files_are_errors_and_never_panics() {
    let good = fixture(&["-O2"]);
    for length in (0..good.len()).step_by(97) {
        exercise(&good[..length]);
    }
    let mut state = 1_u64;
    for _ in 0..400 {
        let mut bytes = good.clone();
        for _ in 0..8 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Headers, where damage hurts most, and the whole file by turns.
            let range = if state & (1 << 20) == 0 {
                0x400
            } else {
                bytes.len()
            };
            bytes[(state >> 32) as usize % range] = (state >> 24) as u8;
        }
        exercise(&bytes);
    }
}

fn exercise(bytes: &[u8]) {
    let Ok(image) = Image::parse(bytes) else {
        return;
    };
    let _ = find(&image, "Lock::acquire");
    let _ = image.accessor("thing_id", 0);
    if let Ok(symbol) = image.find(&SymbolPattern::new("main")) {
        let _ = image.site(symbol.vaddr);
    }
    let _ = image.data_symbol("zeroed");
}

#[test]
fn mariadb_symbols_accessors_and_sites_are_as_its_disassembly_says() {
    if !Path::new(MARIADBD).exists() {
        return common::skip("no /usr/sbin/mariadbd (Debian package mariadb-server)");
    }
    let bytes = std::fs::read(MARIADBD).unwrap();
    let image = Image::parse(&bytes).unwrap();
    assert!(image.function_count() > 15_000);
    for (pattern, starts) in [
        (
            "MDL_context::acquire_lock",
            "_ZN11MDL_context12acquire_lockEP11MDL_request",
        ),
        ("dispatch_command", "_Z16dispatch_command"),
        ("MDL_wait::timed_wait", "_ZN8MDL_wait10timed_wait"),
        ("THD::awake_no_mutex", "_ZN3THD14awake_no_mutex"),
        ("log_slow_statement", "_Z18log_slow_statementP3THD"),
        ("MDL_wait::timed_w*", "_ZN8MDL_wait10timed_wait"),
    ] {
        let symbol = image.find(&SymbolPattern::new(pattern)).unwrap();
        assert!(
            symbol.name.starts_with(starts),
            "{pattern}: {}",
            symbol.name
        );
        let site = image.site(symbol.vaddr).unwrap();
        assert_eq!(site.cost, Cost::Cheap, "{pattern}: {}", site.why);
    }
    let error = find(&image, "MDL_context::aquire_lock")
        .unwrap_err()
        .to_string();
    assert!(error.contains("MDL_context::acquire_lock"), "{error}");
    for name in [
        "server_threads",
        "global_query_id",
        "_ZN8MDL_lock15MDL_backup_lock22m_granted_incompatibleE",
    ] {
        image.data_symbol(name).unwrap();
    }
}

/// Bytes that this thread has read so far.
fn read_bytes() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let count = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    count.unwrap().parse().unwrap()
}

#[test]
fn a_file_read_in_parts_says_the_same_and_most_of_it_is_left_alone() {
    if !Path::new(MARIADBD).exists() {
        return common::skip("no /usr/sbin/mariadbd (Debian package mariadb-server)");
    }
    let bytes = std::fs::read(MARIADBD).unwrap();
    let whole = Image::parse(&bytes).unwrap();
    let before = read_bytes();
    let parts = Parts::new(std::fs::File::open(MARIADBD).unwrap());
    let image = Image::parse(&parts).unwrap();
    assert_eq!(image.function_count(), whole.function_count());
    assert_eq!(image.layout(), whole.layout());
    for pattern in ["dispatch_command", "THD::awake_no_mutex", "thd_wait_begin"] {
        let symbol = image.find(&SymbolPattern::new(pattern)).unwrap();
        assert_eq!(whole.find(&SymbolPattern::new(pattern)).unwrap(), symbol);
        assert_eq!(image.site(symbol.vaddr), whole.site(symbol.vaddr));
    }
    let accessor = |image: &Image<'_>| image.accessor("thd_query_id", 0).unwrap();
    assert_eq!(accessor(&image), accessor(&whole));
    let read = read_bytes() - before;
    assert!(
        read < bytes.len() as u64 / 8,
        "{read} bytes of {} read",
        bytes.len()
    );
}

#[test]
fn mariadb_accessors_tell_the_offsets_of_this_build() {
    const DEBIAN_BUILD: &str = "10.11.19";
    let version = Command::new(MARIADBD).arg("--version").output();
    let Some(version) = version
        .ok()
        .filter(|out| String::from_utf8_lossy(&out.stdout).contains(DEBIAN_BUILD))
    else {
        return common::skip("no /usr/sbin/mariadbd of version 10.11.19");
    };
    assert!(version.status.success());
    let bytes = std::fs::read(MARIADBD).unwrap();
    let image = Image::parse(&bytes).unwrap();
    for (name, nth, offset) in [
        ("thd_get_thread_id", 0, 0x3f18),
        ("thd_query_id", 0, 0x3e68),
        ("thd_mdl_context", 0, 0x160),
        ("thd_current_command", 0, 0x27d8),
        ("thd_user_name", 0, 0x25f8),
        ("thd_test_options", 0, 0x8a8),
        ("thd_in_lock_tables", 0, 0x4099),
        ("thd_start_utime", 0, 0x27e8),
        ("thd_start_utime", 1, 0x27f0),
        ("thd_query_string", 0, 0x68),
        ("_ZN3THD9is_killedEv", 0, 0x3f9c),
    ] {
        assert_eq!(image.accessor(name, nth), Ok(offset), "{name}");
    }
}
