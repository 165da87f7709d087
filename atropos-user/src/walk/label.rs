//! What the instance is called that somebody waits for.

use super::{Check, Text, Unbound, WalkError, bind, bind_checks, bind_some};
use crate::config::Label;
use crate::config::expr::{Bindings, Bound};
use crate::memory::Memory;

/// A bound label.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    namespace: Option<Bound>,
    namespaces: Vec<String>,
    text: Option<Text>,
    numbers: Vec<Bound>,
    checks: Vec<Check>,
}

impl Naming {
    /// Binds a label whose expressions know `names`.
    pub(super) fn bind(label: &Label, names: &Bindings) -> Result<Self, Unbound> {
        let Label {
            namespace,
            namespaces,
            text,
            numbers,
            checks,
        } = label;
        Ok(Self {
            namespace: bind_some(namespace.as_ref(), names)?,
            namespaces: namespaces.clone(),
            text: text
                .as_ref()
                .map(|text| Text::bind(text, names))
                .transpose()?,
            numbers: numbers
                .iter()
                .map(|number| bind(number, names))
                .collect::<Result<_, _>>()?,
            checks: bind_checks(checks, names)?,
        })
    }

    /// The name of an instance; `of` are the variables of whoever waits for it.
    pub(super) fn name(
        &self,
        of: &[u64],
        instance: u64,
        memory: &dyn Memory,
    ) -> Result<String, WalkError> {
        for check in &self.checks {
            check.hold(of, memory, "instance", instance)?;
        }
        let mut parts = Vec::new();
        if let Some(text) = &self.text {
            parts.push(text.read(of, memory)?);
        }
        let mut numbers = Vec::new();
        for number in &self.numbers {
            numbers.push(number.eval(of, memory)?);
        }
        // Kinds of instance differ in how many numbers they have; those that they do not have are 0.
        let used = numbers
            .iter()
            .rposition(|number| *number != 0)
            .map_or(numbers.len().min(1), |last| last + 1);
        parts.extend(numbers[..used].iter().map(u64::to_string));
        let text = parts.join(".");
        let Some(namespace) = &self.namespace else {
            return Ok(text);
        };
        let namespace = usize::try_from(namespace.eval(of, memory)?).unwrap_or(usize::MAX);
        let class = self
            .namespaces
            .get(namespace)
            .map_or("unknown namespace", String::as_str);
        Ok(if text.is_empty() {
            class.to_owned()
        } else {
            format!("{class} {text}")
        })
    }
}
