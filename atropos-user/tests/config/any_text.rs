//! Whatever the bytes: an answer, never a panic. The same targets as the fuzzers in `fuzz/`, with a fixed number of cases.

use atropos::config::{self, expr::Expr};
use proptest::prelude::*;

/// Reads a text and looks at everything that an answer has.
fn read(text: &str) {
    match config::parse("any.toml", text) {
        Ok(preset) => drop(preset.symbols()),
        Err(problems) => {
            assert!(
                problems.iter().next().is_some(),
                "an error without a problem"
            );
            let shown = problems.to_string();
            assert!(
                shown.chars().all(|c| c == '\n' || !c.is_control()),
                "{shown:?}"
            );
        }
    }
}

/// Reads an expression; the place of an error must lie in the text.
fn read_expression(text: &str) {
    match Expr::parse(text) {
        Ok(expr) => assert_eq!(expr.text(), text),
        Err(error) => assert!(
            text.get(error.offset..error.offset + error.len).is_some(),
            "{error:?} in {text:?}"
        ),
    }
}

/// A change to a text: a piece of it replaced by another.
fn change() -> impl Strategy<Value = (prop::sample::Index, usize, String)> {
    let pieces = prop_oneof![
        Just(String::new()),
        "[a-z@*+()\\[\\]{}=\"'#.,0-9 \n-]{1,12}",
        "\\PC{1,4}",
        Just("\"\"\"".to_owned()),
        Just("[[probe]]\n".to_owned()),
        Just("= { a = [ ".to_owned()),
    ];
    (any::<prop::sample::Index>(), 0usize..20, pieces)
}

/// Applies a change at whole characters.
fn apply(text: &mut String, (at, len, piece): &(prop::sample::Index, usize, String)) {
    let start = text.floor_char_boundary(at.index(text.len() + 1));
    let end = text.ceil_char_boundary((start + len).min(text.len()));
    text.replace_range(start..end, piece);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_have_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_characters_have_an_answer(text in "(\\PC|\n){0,300}") {
        read(&text);
    }

    #[test]
    fn a_damaged_preset_has_an_answer(changes in prop::collection::vec(change(), 1..6)) {
        for (_, preset) in config::embedded() {
            let mut text = (*preset).to_owned();
            for one in &changes {
            apply(&mut text, one);
        }
            read(&text);
        }
    }

    #[test]
    fn a_damaged_small_config_has_an_answer(changes in prop::collection::vec(change(), 1..4)) {
        let mut text = include_str!("small.toml").to_owned();
        for one in &changes {
            apply(&mut text, one);
        }
        read(&text);
    }

    #[test]
    fn any_expression_has_an_answer(text in "\\PC{0,60}") {
        read_expression(&text);
    }

    #[test]
    fn anything_like_an_expression_has_an_answer(text in "([a-z]{1,3}|[0-9x]{1,3}|u8\\(|symbol\\(|@|[-+*&|=!<>() ]{1,2}){0,40}") {
        read_expression(&text);
    }

    #[test]
    fn any_objective_has_an_answer(text in "p?[0-9.]{0,4}=?[+]?[0-9.]{0,22}(%|ms|s|h|ns)?(,floor=[0-9]{0,3}(ms)?)?|\\PC{0,20}") {
        let _ = config::parse_slo(&text).map_err(|problem| problem.to_string());
    }
}

#[test]
fn deep_nesting_has_an_answer() {
    let many = 20_000;
    read(&format!("a = {}", "[".repeat(many)));
    read(&format!("a = {}{}", "[".repeat(many), "]".repeat(many)));
    read(&format!("a = {}", "{ a = ".repeat(many)));
    read(&format!("{}a = 1", "a.".repeat(many)));
    read(&format!("{}a = 1", "a.".repeat(31)));
    read(&format!("[{}a]\nb = 1", "a.".repeat(many)));
    read(&format!(
        "a = {{{} a.a.a.a.a = 1",
        "a.a.a.a.a = {\n".repeat(many / 8)
    ));
    read_expression(&"(".repeat(900));
    read_expression(&"*".repeat(900));
    read_expression(&"-".repeat(900));
    read_expression(&"u8(".repeat(300));
    read_expression(&"1+".repeat(450));
    read_expression(&format!("{}1", "1+".repeat(450)));
}

#[test]
fn many_mistakes_have_an_answer_soon() {
    let start = include_str!("small.toml");
    let many = 8_000;
    let numbered = |line: &dyn Fn(usize) -> String| -> String { (0..many).map(line).collect() };
    read(&format!(
        "{start}[extra]\n{}",
        numbered(&|n| format!("k{n} = {n}\n"))
    ));
    let chain = numbered(&|n| format!("k{n} = {{ after = \"k{}\" }}\n", n + 1));
    read(&start.replace("[layout]\n", &format!("[layout]\n{chain}")));
    let lets = numbered(&|n| format!("{{ k{n} = \"x{n}\" }},\n"));
    read(&start.replace("let = [", &format!("let = [{lets}")));
    read(&format!(
        "{start}\n{}",
        numbered(&|n| format!("[[resource]]\nname = \"r{n}\"\n"))
    ));
}
