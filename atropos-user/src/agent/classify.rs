//! Which class of task a session is, by its statement or its user.

use crate::config::preset::TaskClass;

/// The classes of a preset.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    classes: Vec<TaskClass>,
}

impl Classes {
    /// The classes, in the preset's order: the first that fits counts.
    pub fn new(classes: &[TaskClass]) -> Self {
        Self { classes: classes.to_vec() }
    }

    /// Index of the class of a session with this digest (lower case, literals gone) and user.
    pub fn of(&self, digest: &str, principal: &str) -> Option<u16> {
        let fits = |class: &TaskClass| {
            class.principals.iter().any(|name| name == principal)
                || class.statements.iter().any(|beginning| begins(digest, beginning))
        };
        self.classes.iter().position(fits).and_then(|index| u16::try_from(index).ok())
    }
}

/// Whether the statement begins with these words.
fn begins(digest: &str, beginning: &str) -> bool {
    let rest = digest.strip_prefix(beginning);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}
