//! Whether a file may say what is done to tasks: a config that names commands is as good as the right to run them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::problem::Problem;
use super::source::Place;
use super::tree::{Node, Table, Value};

/// Whom a file belongs to and who may write it.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    path: PathBuf,
    user: u32,
    mode: u32,
    /// The user that this program runs as.
    running: u32,
}

impl Owner {
    /// Of an open file.
    pub(crate) fn of(path: &Path, metadata: &Metadata) -> Self {
        let running = nix::unistd::geteuid().as_raw();
        Self {
            path: path.to_owned(),
            user: metadata.uid(),
            mode: metadata.mode(),
            running,
        }
    }
}

/// Where a config says how tasks are ended, or that sessions are ended for what a note tells of them; nothing if it says
/// neither.
pub(crate) fn speaks_of_ending(table: &Table) -> Option<&Place> {
    if let Some(cancel) = table.get("cancel") {
        return Some(&cancel.key_place);
    }
    let Value::Table(sessions) = &table.get("sessions")?.node.value else {
        return None;
    };
    let Value::Array(notes) = &sessions.get("note")?.node.value else {
        return None;
    };
    notes.iter().find_map(end_of)
}

/// Where a note says that sessions are ended for it.
fn end_of(note: &Node) -> Option<&Place> {
    match &note.value {
        Value::Table(note) => Some(&note.get("end_above")?.key_place),
        _ => None,
    }
}

/// Why the file may not say at this place what it says of ending tasks.
pub(crate) fn problems(owner: &Owner, at: &Place) -> Vec<Problem> {
    let Owner {
        path,
        user,
        mode,
        running,
    } = owner;
    let path = path.display();
    let mut problems = Vec::new();
    if *user != 0 && user != running {
        let message = format!(
            "this file may not say how tasks are cancelled: it belongs to user {user}, not to root or to the running user {running}"
        );
        problems.push(
            Problem::at(at, message).help(format!("after reading it: chown {running} {path}")),
        );
    }
    if mode & 0o022 != 0 {
        let message = format!(
            "this file may not say how tasks are cancelled: others than its owner may write it (mode {:03o})",
            mode & 0o777
        );
        problems
            .push(Problem::at(at, message).help(format!("after reading it: chmod go-w {path}")));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn complaints(user: u32, mode: u32, running: u32) -> Vec<String> {
        let source = Source::new("mine.toml", "schema = 1\n[cancel]\n");
        let owner = Owner {
            path: PathBuf::from("mine.toml"),
            user,
            mode,
            running,
        };
        problems(&owner, &Place::new(&source, 12..18))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn files_of_root_and_of_the_running_user_are_trusted() {
        assert_eq!(complaints(0, 0o100_644, 1000), Vec::<String>::new());
        assert_eq!(complaints(1000, 0o100_600, 1000), Vec::<String>::new());
    }

    #[test]
    fn a_file_of_somebody_else_is_refused_with_the_chown_to_run() {
        insta::assert_snapshot!(complaints(1001, 0o100_644, 0).join("\n\n"), @r"
        error: this file may not say how tasks are cancelled: it belongs to user 1001, not to root or to the running user 0
         --> mine.toml:2:2
          |
        2 | [cancel]
          |  ^^^^^^
          = help: after reading it: chown 0 mine.toml
        ");
    }

    #[test]
    fn a_file_that_others_may_write_is_refused_with_the_chmod_to_run() {
        for mode in [0o100_664, 0o100_646, 0o100_666] {
            let complaints = complaints(0, mode, 0);
            assert_eq!(complaints.len(), 1, "{mode:o}");
            assert!(
                complaints[0].contains("chmod go-w mine.toml"),
                "{}",
                complaints[0]
            );
        }
    }

    #[test]
    fn both_reasons_are_told_at_once() {
        assert_eq!(complaints(1001, 0o100_666, 0).len(), 2);
    }
}
