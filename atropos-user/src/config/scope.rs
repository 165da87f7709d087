//! Which names an expression may use at its place in the config.

use super::expr::{Expr, Name, NameKind};
use super::fields::allowed;
use super::problem::{Problem, Report};
use super::source::Place;

/// Names that an expression may use.
#[derive(Clone, Debug)]
pub(crate) struct Scope<'a> {
    /// Names of `[layout]`.
    pub(crate) layout: &'a [String],
    /// Variables.
    pub(crate) variables: Vec<&'a str>,
}

impl<'a> Scope<'a> {
    /// The layout and no variables.
    pub(crate) fn of_layout(layout: &'a [String]) -> Self {
        Self {
            layout,
            variables: Vec::new(),
        }
    }

    /// The same with more variables.
    pub(crate) fn with(&self, variables: impl IntoIterator<Item = &'a str>) -> Self {
        let mut scope = self.clone();
        scope.variables.extend(variables);
        scope
    }

    /// Notes every name that the expression may not use; true if there is none.
    pub(crate) fn check(&self, expr: &Expr, place: &Place, report: &Report) -> bool {
        if report.is_full() {
            return false;
        }
        let mut fine = true;
        let mut wrong = |name: &Name, prefix: usize, message: String, help: String| {
            let place = place.within(expr.text(), name.offset, name.text.len() + prefix);
            report.add(Problem::at(&place, message).help(help));
            fine = false;
        };
        for name in expr.names(NameKind::Variable) {
            if !self.variables.contains(&name.text.as_str()) {
                let help = allowed(&name.text, self.variables.iter().copied());
                wrong(name, 0, format!("unknown variable `{}`", name.text), help);
            }
        }
        for name in expr.names(NameKind::Layout) {
            if !self.layout.contains(&name.text) {
                let help = allowed(&name.text, self.layout.iter().map(String::as_str));
                wrong(name, 1, format!("`[layout]` has no `{}`", name.text), help);
            }
        }
        fine
    }
}
