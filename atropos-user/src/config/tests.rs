use super::schema::{self, Section};

/// The documentation of the config.
const DOCS: &str = include_str!("../../../docs/config.md");

/// The part of the documentation under the heading of a table.
fn chapter(section: &Section) -> &'static str {
    let heading = format!("\n## {}\n", section.name);
    let start = DOCS
        .find(&heading)
        .unwrap_or_else(|| panic!("docs/config.md has no heading `{}`", section.name));
    let rest = &DOCS[start + heading.len()..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

#[test]
fn every_key_has_a_row_in_the_documentation_with_its_type() {
    for section in schema::ALL {
        let chapter = chapter(section);
        for key in section.keys {
            let row = format!("\n| `{}` | {} | ", key.name, key.takes);
            assert!(
                chapter.contains(&row),
                "docs/config.md, `{}`: no row {row:?}",
                section.name
            );
        }
    }
}

#[test]
fn the_documentation_calls_required_what_the_reader_requires() {
    for section in schema::ALL {
        for key in section.keys.iter().filter(|key| key.required) {
            let row = format!("\n| `{}` | {} | required", key.name, key.takes);
            assert!(
                chapter(section).contains(&row),
                "docs/config.md, `{}`: no row {row:?}",
                section.name
            );
        }
    }
}

#[test]
fn the_documentation_has_no_key_that_the_reader_does_not_know() {
    for section in schema::ALL {
        let table = chapter(section)
            .split("\n| key |")
            .nth(1)
            .unwrap_or_default();
        let rows = table
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with('|'))
            .filter_map(|line| line.strip_prefix("| `"));
        for name in rows.filter_map(|row| row.split('`').next()) {
            let known = section.keys.iter().any(|key| key.name == name);
            assert!(
                known,
                "docs/config.md, `{}`: unknown key `{name}`",
                section.name
            );
        }
    }
}
