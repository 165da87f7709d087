//! Every kind of mistake, made one at a time in a small config: what the answer looks like is a committed snapshot.

use atropos::config::parse;

/// A config without mistakes.
const SMALL: &str = include_str!("small.toml");

/// The answer to the small config with one part replaced.
fn answer(from: &str, to: &str) -> String {
    assert_eq!(
        SMALL.matches(from).count(),
        1,
        "`{from}` stands in the config once"
    );
    answer_to(&SMALL.replace(from, to))
}

/// The answer to a config.
fn answer_to(text: &str) -> String {
    match parse("small.toml", text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn the_small_config_has_no_mistake() {
    parse("small.toml", SMALL).unwrap_or_else(|problems| panic!("{problems}"));
}

/// One test for each mistake.
macro_rules! mistakes {
    ($($name:ident: $from:expr => $to:expr;)*) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!(stringify!($name), answer($from, $to));
        })*
    };
}

mistakes! {
    // The document.
    a_syntax_error: "name = \"small\"" => "name = small\"";
    an_unclosed_table: "[match]" => "[match";
    a_key_that_comes_twice: "undo = 1" => "undo = 1\nundo = 2";
    an_unknown_key: "op = \"wait_begin\"" => "op2 = \"wait_begin\"";
    an_unknown_table: "[completed]" => "[complete]";
    a_missing_key: "works = [\"busy\"]\n" => "";
    a_missing_schema: "schema = 1\n" => "";
    a_schema_that_is_too_new: "schema = 1" => "schema = 2";
    a_wrong_type: "limit = 1000" => "limit = \"1000\"";
    a_table_in_the_place_of_an_array: "[[class]]" => "[class]";
    a_string_in_the_place_of_a_table: "{ every = \"5s\", for = \"100ms\" }" => "\"5s\"";
    a_number_among_strings: "[\"S\", \"X\"]\n\n[[resource]]" => "[\"S\", 1]\n\n[[resource]]";
    an_empty_name: "name = \"small\"" => "name = \" \"";
    a_number_out_of_bounds: "limit = 1000" => "limit = 0";
    a_number_beyond_64_bits: "next = 16" => "next = 0xffff_ffff_ffff_ffff";
    a_budget_without_a_percent_sign: "[completed]" => "[budget]\ncalm = \"1\"\n[completed]";
    a_budget_of_more_than_all: "[completed]" => "[budget]\nsuspect = \"101%\"\n[completed]";
    a_budget_that_is_a_number: "[completed]" => "[budget]\ncalm = 1\n[completed]";
    a_rule_for_repeats_that_there_is_not: "[completed]" => "[decide]\nrepeat = \"backoff\"\n[completed]";
    a_key_of_decisions_that_there_is_not: "[completed]" => "[decide]\nmin_gains = \"1s\"\n[completed]";
    a_budget_of_orders_below_zero: "[completed]" => "[decide]\nper_hour = -1\n[completed]";
    a_date: "undo = 1" => "undo = 1979-05-27";
    too_many_dots: "next = 16" => "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = 1";
    a_path_in_the_place_of_a_program: "\"smalld\"" => "\"/usr/sbin/smalld\"";
    several_mistakes_at_once: "level = \"calm\"\nop = \"wait_begin\"" => "level = \"clam\"\nop = \"wait_bigin\"\nsesion = \"arg0\"";

    // Names.
    an_unknown_op: "\"wait_begin\"" => "\"wait_begn\"";
    an_unknown_level: "\"calm\"" => "\"clam\"";
    an_unknown_kind: "\"LOCK\"" => "\"lock\"";
    an_unknown_resource_in_a_probe: "resource = \"table_lock\"\nsession = \"arg0\"" => "resource = \"table_lok\"\nsession = \"arg0\"";
    an_unknown_resource_in_a_walk: "resource = \"table_lock\"\nsession = \"conn\"" => "resource = \"locks\"\nsession = \"conn\"";
    two_resources_of_one_name: "name = \"pool\"" => "name = \"table_lock\"";
    two_modes_of_one_name: "modes = [\"S\", \"X\"]\n\n[[resource]]" => "modes = [\"S\", \"S\"]\n\n[[resource]]";
    too_many_modes: "modes = [\"S\", \"X\"]\n\n[[resource]]" => &format!("modes = {:?}\n\n[[resource]]", (0..33).map(|n| format!("M{n}")).collect::<Vec<_>>());
    a_missing_resource: "resource = \"table_lock\"\nsession = \"arg0\"" => "session = \"arg0\"";
    a_resource_of_the_wrong_kind: "\"wait_begin\"" => "\"enqueue\"";
    a_resource_where_none_belongs: "\"wait_begin\"" => "\"request_begin\"";
    progress_without_a_value: "op = \"wait_begin\"\nresource = \"table_lock\"\nsession = \"arg0\"\ninstance = \"*(arg1 + @lock)\"" => "op = \"progress\"\nsession = \"arg0\"";

    // Layout.
    a_layout_circle: "id = { accessor = \"small_id\", nth = 1 }" => "id = { after = \"lock\" }";
    a_layout_entry_after_nothing: "after = \"id\"" => "after = \"idd\"";
    a_layout_entry_of_two_kinds: "{ after = \"id\", add = 8 }" => "{ after = \"id\", nth = 8 }";
    a_layout_entry_of_the_wrong_type: "next = 16" => "next = \"16\"";
    a_layout_name_that_cannot_be_used: "next = 16" => "\"next-one\" = 16";
    an_unknown_layout_name: "@next" => "@nxt";

    // Expressions.
    an_empty_expression: "end = \"0\"" => "end = \" \"";
    an_expression_that_is_not_closed: "\"u64(conn + @id)\"" => "\"u64(conn + @id\"";
    an_expression_closed_twice: "\"u64(conn + @id)\"" => "\"u64(conn + @id))\"";
    an_expression_that_ends_early: "\"u64(conn + @id)\"" => "\"u64(conn + )\"";
    an_expression_without_operator: "\"u64(conn + @id)\"" => "\"u64(conn @id)\"";
    an_expression_with_a_stray_character: "\"u8(conn + 1) == 4\"" => "\"u8(conn + 1) = 4\"";
    an_expression_with_a_bad_number: "\"u8(conn + 1) == 4\"" => "\"u8(conn + 0xzz) == 4\"";
    an_expression_with_an_unknown_function: "\"u8(conn + 1) == 4\"" => "\"u12(conn + 1) == 4\"";
    an_expression_with_chained_comparisons: "\"u8(conn + 1) == 4\"" => "\"1 < u8(conn + 1) < 4\"";
    an_expression_nested_too_deep: "end = \"0\"" => &format!("end = \"{}0{}\"", "(".repeat(40), ")".repeat(40));
    an_expression_that_is_too_long: "end = \"0\"" => &format!("end = \"{}0\"", "0 + ".repeat(300));
    a_layout_sign_without_name: "@next" => "@ next";
    a_symbol_without_name: "symbol(small_list)" => "symbol()";
    a_symbol_that_is_not_closed: "symbol(small_list)" => "symbol(small_list";
    a_demangled_symbol: "symbol(small_list)" => "symbol(Small::list<int>)";
    an_unknown_variable: "\"u64(conn + @id)\"" => "\"u64(con + @id)\"";
    a_session_where_there_is_none: "first = \"*symbol(small_list)\"" => "first = \"*conn\"";
    an_expression_with_escapes: "\"u64(conn + @id)\"" => "\"u64(\\u0063on + @id)\"";
    a_variable_that_means_something_else: "item = \"holder\"" => "item = \"u8\"";
    a_variable_that_is_no_word: "item = \"holder\"" => "item = \"a-b\"";

    // Progress and walks.
    a_version_in_a_path: "[completed]" => "[match.version]\nfile = \"data/VERSION\"\nknown = [\"1\"]\n\n[completed]";
    a_layout_number_by_two_ways: "next = 16" => "next = { accessor = \"f\", global = \"g\" }";
    a_step_in_a_process_that_nothing_proves: "[completed]" => "[[sessions.progress]]\nwhen = 1\ndone = 1\ntotal = 2\nown_process = true\n\n[completed]";
    a_note_of_a_name_that_is_taken: "[completed]" => "[[sessions.note]]\nname = \"old\"\nvalue = 1\nleast = 1\nsays = \"a\"\n\n[[sessions.note]]\nname = \"old\"\nvalue = 1\nleast = 1\nsays = \"b\"\n\n[completed]";
    an_end_without_a_time: "[completed]" => "[[sessions.note]]\nname = \"old\"\nvalue = 1\nleast = 1\nsays = \"a\"\nend_above = 5\n\n[completed]";
    an_end_where_no_transaction_has_an_age: "[completed]" => "[[sessions.note]]\nname = \"old\"\nvalue = 1\nleast = 1\nsays = \"a\"\nend_above = 5\nend_after = \"1h\"\n\n[completed]";
    an_end_for_less_than_is_told: "[completed]" => "[[sessions.note]]\nname = \"old\"\nvalue = 1\nleast = 10\nsays = \"a\"\nend_above = 5\nend_after = \"1h\"\n\n[completed]";
    a_step_that_goes_back: "[completed]" => "[[sessions.progress]]\nwhen = 1\ndone = 1\ntotal = 2\nfrom = 0.5\nto = 0.4\n\n[completed]";
    a_queue_without_holders: "[walk.granted]" => "[walk.queued]";

    // Probes.
    no_alternatives: "at = [{ symbol = \"small_wait\" }]" => "at = []";
    an_alternative_without_a_place: "{ symbol = \"small_wait\" }" => "{ library = \"libsmall.so\" }";
    an_address_without_a_build_id: "{ symbol = \"small_wait\" }" => "{ address = 0x1234 }";
    a_build_id_that_is_none: "{ symbol = \"small_wait\" }" => "{ address = 0x1234, build_id = \"latest\" }";
    a_return_that_may_unwind: "{ symbol = \"small_wait\" }" => "{ symbol = \"small_wait\", at_return = true }";
    arguments_at_a_return: "{ symbol = \"small_wait\" }" => "{ symbol = \"small_wait\", at_return = true, unwinds = false }";
    a_result_before_the_return: "session = \"arg0\"" => "session = \"ret\"";
    nobody_s_session: "session = \"arg0\"\n" => "";
    a_probe_that_multiplies: "session = \"arg0\"" => "session = \"arg0 * 8\"";
    a_probe_with_too_many_steps: "session = \"arg0\"" => "session = \"*****arg0\"";
    a_probe_that_adds_two_registers: "session = \"arg0\"" => "session = \"arg0 + arg1\"";
    a_probe_with_a_short_load_inside: "session = \"arg0\"" => "session = \"*u32(arg0)\"";
    a_probe_with_a_huge_displacement: "session = \"arg0\"" => "session = \"*(arg0 + 0x100000000)\"";
    a_probe_that_knows_a_session_variable: "session = \"arg0\"" => "session = \"conn\"";
    a_condition_that_is_no_equality: "\"u8(arg1 + 2) != 0\"" => "\"u8(arg1 + 2) > 0\"";
    a_condition_without_a_constant: "\"u8(arg1 + 2) != 0\"" => "\"arg0 != arg1\"";
    a_usdt_probe_without_a_provider: "{ symbol = \"small_wait\" }" => "{ usdt = \"small_wait\" }";
    a_usdt_probe_without_a_name: "{ symbol = \"small_wait\" }" => "{ usdt = \"small:\" }";
    a_usdt_probe_with_a_symbol: "{ symbol = \"small_wait\" }" => "{ usdt = \"small:wait\", symbol = \"small_wait\" }";
    a_usdt_probe_at_a_return: "{ symbol = \"small_wait\" }" => "{ usdt = \"small:wait\", at_return = true }";
    a_usdt_probe_with_a_thirteenth_argument: "{ symbol = \"small_wait\" }" => "{ usdt = \"small:wait\", session = \"arg12\" }";
    a_seventh_argument_in_a_register: "{ symbol = \"small_wait\" }" => "{ symbol = \"small_wait\", session = \"arg6\" }";
    a_seventh_argument_at_two_kinds_of_place: "session = \"arg0\"\ninstance = \"*(arg1 + @lock)\"\nwhen = \"u8(arg1 + 2) != 0\"\nat = [" => "session = \"arg6\"\nat = [{ usdt = \"small:wait\" }, ";
    a_usdt_argument_with_too_many_steps: "{ symbol = \"small_wait\" }" => "{ usdt = \"small:wait\", session = \"*****arg0\" }";
    a_sample_that_never_ends: "for = \"100ms\"" => "for = \"5s\"";
    a_bad_duration: "every = \"5s\"" => "every = \"5 sec\"";
    a_duration_without_a_unit: "every = \"5s\"" => "every = \"5000\"";
    a_duration_that_is_a_number: "every = \"5s\"" => "every = 5";

    // Walks.
    a_walk_without_an_end: "end = \"lock\"\n" => "";
    a_let_with_two_names: "{ lock = \"*(conn + @lock)\" }" => "{ lock = \"*(conn + @lock)\", b = \"1\" }";
    a_let_that_hides_a_name: "{ lock = \"*(conn + @lock)\" }" => "{ lock = \"*(conn + @lock)\" }, { conn = \"lock\" }";
    a_let_that_looks_ahead: "{ lock = \"*(conn + @lock)\" }" => "{ a = \"lock\" }, { lock = \"*(conn + @lock)\" }";
    an_item_that_is_not_read_yet: "object = \"node - 8\"" => "object = \"holder - 8\"";
    conflicts_without_a_mode: "mode = \"u32(holder)\"\n" => "";
    names_without_an_index: "text = { at = \"lock + 8\" }" => "text = { at = \"lock + 8\" }\nnamespaces = [\"table\"]";
    a_mode_and_a_mask: "mode = \"u32(holder)\"\n" => "mode = \"u32(holder)\"\nmask = \"u32(holder)\"\n";
    a_label_of_nothing: "text = { at = \"lock + 8\" }" => "checks = [\"lock\"]";
    text_names_without_an_index: "{ at = \"lock + 8\" }" => "{ at = \"lock + 8\", names = [\"a\"] }";
    an_unknown_clock: "limit = 1000" => "limit = 1000\nclock = \"since_1900\"";
    a_session_named_by_nothing: "limit = 1000" => "limit = 1000\nat_probes = \"pid\"";
    a_place_that_knows_too_much: "limit = 1000" => "limit = 1000\nlet = [{ a = \"*conn\" }]\npresent = \"a\"";
    a_session_let_that_looks_ahead: "limit = 1000" => "limit = 1000\nlet = [{ a = \"b\" }, { b = \"*conn\" }]";
    parts_without_a_length: "{ at = \"lock + 8\" }" => "{ at = \"lock + 8\", parts = 2 }";

    // Classes and rungs.
    a_class_of_nothing: "statements = [\"load data\"]\n" => "";
    an_undo_below_zero: "undo = 1" => "undo = -1";
    an_unknown_initiator: "initiator = \"mysql\"" => "initiator = \"mysqld\"";
    an_unknown_command: "\"kill_query\"" => "\"kill_qery\"";
    a_zero_deadline: "deadline = \"1s\"" => "deadline = \"0s\"";
    a_rung_that_never_works: "works = [\"busy\"]" => "works = []";
    a_rung_in_an_unknown_state: "works = [\"busy\"]" => "works = [\"asleep\"]";
    a_rung_that_does_nothing: "command = \"kill_query\"\n" => "";
    a_key_of_another_initiator: "command = \"kill_query\"" => "command = \"kill_query\"\nargv = [\"/bin/true\"]";
    a_signal_that_ends_nothing: "initiator = \"mysql\"\n\n[[cancel.rung]]\nname = \"KILL QUERY\"\ncommand = \"kill_query\"" => "initiator = \"signal\"\n\n[[cancel.rung]]\nname = \"stop\"\ncommand = \"SIGSTOP\"";
    a_command_for_a_shell: "initiator = \"mysql\"\n\n[[cancel.rung]]\nname = \"KILL QUERY\"\ncommand = \"kill_query\"" => "initiator = \"exec\"\n\n[[cancel.rung]]\nname = \"stop\"\nargv = [\"stop\", \"--task={id}\", \"{name}\"]";
    an_exact_rung_without_a_place: "works = [\"busy\"]" => "exact = \"SIGINT\"\nworks = [\"busy\"]";
    an_exact_way_that_takes_too_long_and_wakes_by_a_wrong_signal: "[[cancel.rung]]" => "[cancel.exact]\nsession = \"tid\"\nrequest = \"arg0\"\nat = []\nwithin = \"2s\"\nnudge = \"SIGINT\"\n\n[[cancel.rung]]";
    an_exact_way_by_what_no_site_can_tell: "[[cancel.rung]]" => "[cancel.exact]\nsession = \"tid\"\nrequest = \"arg0 * 8\"\nwhen = \"arg0 < 3\"\nat = [{ symbol = \"step\", build_id = \"00112233\" }]\nwithin = \"1s\"\n\n[[cancel.rung]]";
    a_ladder_without_a_rung: "deadline = \"1s\"" => "deadline = \"1s\"\nenabled = false";

    // What it extends.
    an_unknown_preset: "schema = 1" => "schema = 1\nextends = \"mariadbb\"";
    a_file_that_a_text_extends: "schema = 1" => "schema = 1\nextends = \"./base.toml\"";
    an_extension_of_a_number: "schema = 1" => "schema = 1\nextends = 1";
}

#[test]
fn an_empty_config() {
    insta::assert_snapshot!(answer_to(""));
}

#[test]
fn control_characters_never_reach_the_terminal() {
    let answer = answer("name = \"pool\"", "name = \"po\u{1b}[31mol\"");
    assert!(
        answer.chars().all(|c| c == '\n' || !c.is_control()),
        "{answer:?}"
    );
}

#[test]
fn a_long_line_is_shown_around_the_mistake_only() {
    let programs = vec!["\"smalld\""; 200].join(", ");
    let answer = answer("[\"smalld\"]", &format!("[{programs}, 7, {programs}]"));
    assert!(answer.lines().all(|line| line.len() < 200), "{answer}");
    let (line, carets) = (
        answer.lines().nth(3).unwrap(),
        answer.lines().nth(4).unwrap(),
    );
    assert_eq!(&line[carets.find('^').unwrap()..][..1], "7", "{answer}");
}

#[test]
fn a_config_that_is_too_large_is_refused() {
    let answer = answer_to(&format!("{SMALL}#{}", " ".repeat(300 << 10)));
    assert!(answer.contains("larger than 256 KiB"), "{answer}");
}
