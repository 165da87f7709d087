//! Studies: families of scenarios that differ in one number.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Result;
use clap::ValueEnum;

use crate::plan::Plan;

/// A study.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Study {
    /// Who is ended when progress is told wrongly?
    Progress,
    /// Many culprits at once: how long until the last is ended?
    Culprits,
    /// Retries: does the overload outlive its cause?
    Retries,
}

/// The plans of a study.
pub(crate) fn plans(study: Study) -> Result<Vec<Arc<Plan>>> {
    let texts = match study {
        Study::Progress => progress(),
        Study::Culprits => culprits(),
        Study::Retries => retries(),
    };
    texts
        .iter()
        .map(|text| Ok(Arc::new(Plan::read(text)?)))
        .collect()
}

/// Two holders of contended tables: one has most of its work behind it, the other most of it to come. Their progress is
/// told rightly or wrongly; ending the first is wrong.
fn progress() -> Vec<String> {
    let told = ["right", "missing", "x0.1", "x10", "stuck"];
    told.iter()
        .flat_map(|of_old| told.iter().map(|of_young| two_holders(of_old, of_young)))
        .collect()
}

fn two_holders(of_old: &str, of_young: &str) -> String {
    format!(
        r#"
name = "old-{of_old}-young-{of_young}"
about = "Who is ended when progress is wrong?"
family = "hard"
duration = "20s"
from = "10s"
slo = "50ms"
cores = 8
answer = {{ culprits = ["young"], action = "STMT" }}
locks = [{{ name = "table", count = 2 }}]

[[classes]]
name = "write"
steps = [{{ lock = {{ of = "table" }} }}, {{ cpu = "~1ms" }}]

[[classes]]
name = "calm"
steps = [{{ cpu = "~1ms" }}]

[[classes]]
name = "old"
principal = "report"
progress = "{of_old}"
steps = [{{ lock = {{ of = "table", pick = {{ number = 0 }} }} }}, {{ repeat = {{ times = 32, steps = [{{ cpu = "100ms" }}] }} }}]

[[classes]]
name = "young"
principal = "batch"
progress = "{of_young}"
steps = [{{ lock = {{ of = "table", pick = {{ number = 1 }} }} }}, {{ repeat = {{ times = 80, steps = [{{ cpu = "100ms" }}] }} }}]

[[clients]]
class = "calm"
send = {{ poisson = 2000.0 }}

[[clients]]
class = "write"
send = {{ poisson = 200.0 }}
from = "10s"

[[clients]]
class = "old"
send = {{ at = ["7.4s"] }}
injected = true

[[clients]]
class = "young"
send = {{ at = ["9.4s"] }}
injected = true
"#
    )
}

/// So many culprits at once, each with a lock of its own that others want. All of one statement, or each of its own.
fn culprits() -> Vec<String> {
    let mut texts = Vec::new();
    for count in [1_usize, 2, 4, 8, 16] {
        for distinct in [false, true] {
            texts.push(many(count, distinct));
        }
    }
    texts
}

fn many(count: usize, distinct: bool) -> String {
    let class_count = if distinct { count } else { 1 };
    let names: Vec<String> = (0..class_count).map(|n| format!("\"batch-{n}\"")).collect();
    let kind = if distinct { "distinct" } else { "alike" };
    let mut text = format!(
        r#"
name = "k{count:02}-{kind}"
about = "How long until the last of many culprits is ended?"
family = "hard"
duration = "40s"
from = "10s"
slo = "50ms"
cores = 16
answer = {{ culprits = [{}], action = "STMT" }}
locks = [{{ name = "table", count = {count} }}]

[[classes]]
name = "write"
steps = [{{ lock = {{ of = "table", shared = true }} }}, {{ cpu = "~2ms" }}]

[[clients]]
class = "write"
send = {{ poisson = 400.0 }}
"#,
        names.join(", ")
    );
    for n in 0..count {
        let class = n.min(class_count - 1);
        if n < class_count {
            text += &batch(n, count, distinct);
        }
        let _ = writeln!(
            text,
            "[[clients]]\nclass = \"batch-{class}\"\nsend = {{ at = [\"10s\"] }}\ninjected = true"
        );
    }
    text
}

fn batch(n: usize, count: usize, distinct: bool) -> String {
    // Those of one statement find each a free table among all; those of their own have one each.
    let take = if distinct || count == 1 {
        format!("{{ lock = {{ of = \"table\", pick = {{ number = {n} }} }} }}")
    } else {
        "{ lock = { of = \"table\" } }".to_owned()
    };
    format!(
        "[[classes]]\nname = \"batch-{n}\"\nprincipal = \"batch-{n}\"\nprogress = \"right\"\n\
         steps = [{take}, {{ sleep = \"20s\" }}]\n"
    )
}

/// A lock hog, or a pause, while clients lose patience and try again: does the overload outlive its cause?
fn retries() -> Vec<String> {
    let hog = [0_u32, 1, 3].iter().map(|count| storm(*count, true));
    let pause = [0_u32, 1, 3].iter().map(|count| storm(*count, false));
    hog.chain(pause).collect()
}

/// What starts it: a hog, which can be ended, or a pause, which is over by itself.
fn storm(count: u32, hog: bool) -> String {
    let trigger = if hog {
        "[[clients]]\nclass = \"hog\"\nsend = { at = [\"10s\"] }\ninjected = true\n"
    } else {
        "[[faults]]\nkind = \"pause\"\nat = \"10s\"\nlasts = \"1s\"\n"
    };
    let start = if hog { "hog" } else { "pause" };
    format!(
        r#"
name = "{start}-retries-{count}"
about = "Retries that could sustain an overload after its cause is gone."
family = "hard"
duration = "30s"
from = "10s"
slo = "100ms"
cores = 4
answer = {{ culprits = ["hog"], action = "STMT" }}
locks = [{{ name = "table" }}]
pools = [{{ name = "workers", slots = 32, queue = 500 }}]

[[classes]]
name = "request"
steps = [{{ enter = "workers" }}, {{ lock = {{ of = "table", shared = true }} }}, {{ cpu = "~4ms" }}]

[[classes]]
name = "hog"
principal = "batch"
steps = [{{ enter = "workers" }}, {{ lock = {{ of = "table" }} }}, {{ sleep = "4s" }}]

[[clients]]
class = "request"
send = {{ poisson = 750.0 }}
patience = "300ms"
retries = {count}
backoff = "20ms"

{trigger}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_can_be_read() {
        for study in Study::value_variants() {
            assert!(!plans(*study).unwrap().is_empty());
        }
    }
}
