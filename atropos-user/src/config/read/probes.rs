//! `[[probe]]` and its alternatives.

use atropos_common::op::Op;
use atropos_common::site::Base;

use super::super::expr::{Bindings, Expr, MAX_OPERANDS, NameKind, PROBE_VARIABLES, USDT_VARIABLES};
use super::super::fields::Fields;
use super::super::preset::{Alternative, Formula, Guard, Probe, Sample};
use super::super::problem::Problem;
use super::super::schema;
use super::super::scope::Scope;
use super::super::source::Located;
use super::places::{at_return, location, registers_are_there};
use super::{Context, KINDS, enabled, unique};
use crate::elf::operand::Start;
use crate::engine::input::ResourceId;
use crate::engine::record::Level;
use crate::engine::settings::Kind;
use std::time::Duration;

/// Operations that a probe can stand for.
const OPS: [(&str, Op); 18] = [
    ("request_begin", Op::RequestBegin),
    ("request_end", Op::RequestEnd),
    ("session_end", Op::SessionEnd),
    ("wait_begin", Op::WaitBegin),
    ("wait_end", Op::WaitEnd),
    ("acquire", Op::Acquire),
    ("release", Op::Release),
    ("release_all", Op::ReleaseAll),
    ("use", Op::Use),
    ("evict", Op::Evict),
    ("fetch_begin", Op::FetchBegin),
    ("fetch_end", Op::FetchEnd),
    ("enqueue", Op::Enqueue),
    ("dequeue", Op::Dequeue),
    ("progress", Op::Progress),
    ("work", Op::Work),
    ("killed", Op::Killed),
    ("label", Op::Label),
];

/// Levels.
const LEVELS: [(&str, Level); 2] = [("calm", Level::Calm), ("suspect", Level::Suspect)];

/// Priority of a probe that names none: what decisions are made from stays longest.
fn usual_priority(op: Op) -> u8 {
    match op {
        Op::SessionEnd => 90,
        Op::WaitBegin | Op::WaitEnd | Op::Enqueue | Op::Dequeue => 80,
        Op::Acquire | Op::Release | Op::ReleaseAll => 60,
        Op::Killed | Op::Exit | Op::Fork => 50,
        Op::Use | Op::Evict | Op::FetchBegin | Op::FetchEnd => 40,
        Op::RequestBegin | Op::RequestEnd => 30,
        Op::Progress | Op::Work | Op::Label => 20,
    }
}

/// An argument as it is best: in a register, whole.
const STAND_IN: Start = Start {
    base: Base::Arg0,
    add: 0,
    load: false,
    size: 8,
};

/// An address as a site has it.
const SOMEWHERE: u64 = 0x5555_5555_0000;

/// Reads all probes.
pub(super) fn read(root: &Fields<'_>, context: &Context<'_>) -> Vec<Probe> {
    let tables = root.tables("probe", &schema::PROBE);
    let names: Vec<_> = tables.iter().map(|fields| fields.text("name")).collect();
    unique(names.iter().flatten(), "probe", root.report);
    let read = |(fields, name): (&Fields<'_>, Option<Located<String>>)| {
        let probe = probe(fields, name, context);
        if enabled(fields) { probe } else { None }
    };
    tables.iter().zip(names).filter_map(read).collect()
}

/// One probe.
fn probe(
    fields: &Fields<'_>,
    name: Option<Located<String>>,
    context: &Context<'_>,
) -> Option<Probe> {
    let level = fields.choice("level", "level", &LEVELS);
    let op = fields.choice("op", "op", &OPS);
    let resource = op.and_then(|op| resource(fields, op, context));
    let alternatives = alternatives(fields, op, &context.scope);
    let sample = fields
        .table("sample", &schema::SAMPLE)
        .and_then(|sample| read_sample(&sample));
    let allow_expensive = fields
        .choice("expensive", "word", &[("allow", true), ("refuse", false)])
        .unwrap_or(false);
    let priority = match fields.entry("priority") {
        Some(_) => u8::try_from(fields.integer("priority", 0, 100)?).ok()?,
        None => usual_priority(op?),
    };
    Some(Probe {
        name: name?,
        level: level?,
        op: op?,
        resource,
        alternatives,
        sample,
        allow_expensive,
        hot: fields.flag("hot", false),
        priority,
    })
}

/// The resource of a probe, which some operations need and others cannot have.
fn resource(fields: &Fields<'_>, op: Op, context: &Context<'_>) -> Option<ResourceId> {
    let needed = match op {
        Op::WaitBegin | Op::WaitEnd | Op::Acquire | Op::Release | Op::ReleaseAll => None,
        Op::Use | Op::Evict | Op::FetchBegin | Op::FetchEnd => Some(Kind::Memory),
        Op::Enqueue | Op::Dequeue => Some(Kind::Queue),
        _ => {
            for key in ["resource", "instance"] {
                if fields.entry(key).is_some() {
                    fields.wrong(
                        key,
                        format!("this operation has no `{key}`"),
                        "remove the line, or choose another `op`",
                    );
                }
            }
            return None;
        }
    };
    if fields.entry("resource").is_none() {
        let help = "add `resource = ...` with the name of a `[[resource]]`";
        fields.wrong("op", "this operation needs a `resource`", help);
        return None;
    }
    let id = context.resource(fields)?;
    match (needed, context.kind(id)) {
        (Some(needed), Some(kind)) if needed != kind => {
            let kind = KINDS
                .iter()
                .find(|(_, known)| *known == kind)
                .map_or("this", |(name, _)| name);
            let message = format!("this operation needs a resource of another kind than {kind}");
            fields.wrong(
                "op",
                message,
                "use, evict, fetch_begin and fetch_end: MEMORY; enqueue and dequeue: QUEUE",
            );
            None
        }
        _ => Some(id),
    }
}

/// How the probe is sampled in calm.
fn read_sample(fields: &Fields<'_>) -> Option<Sample> {
    let (every_ns, for_ns) = (fields.duration_ns("every"), fields.duration_ns("for"));
    let (every_ns, for_ns) = (every_ns?, for_ns?);
    if for_ns >= every_ns {
        fields.wrong(
            "for",
            "the probe would be attached all the time",
            "let `for` be shorter than `every`",
        );
        return None;
    }
    Some(Sample {
        every: Duration::from_nanos(every_ns),
        attached: Duration::from_nanos(for_ns),
    })
}

/// The places where the probe can sit.
fn alternatives(probe: &Fields<'_>, op: Option<Op>, scope: &Scope<'_>) -> Vec<Alternative> {
    let tables = probe.tables("at", &schema::ALTERNATIVE);
    if probe.entry("at").is_some() && probe.items("at").is_empty() {
        probe.wrong(
            "at",
            "the probe has no place where it can sit",
            "write at least one, such as `at = [{ symbol = \"do_command\" }]`",
        );
    }
    let at_usdt = tables.iter().any(|table| table.entry("usdt").is_some());
    let common = Sayings::read(probe, scope, at_usdt);
    tables
        .iter()
        .filter_map(|fields| alternative(fields, probe, op, &common, scope))
        .collect()
}

/// What is said at a place, and of the probe for every place.
struct Sayings {
    session: Option<Formula>,
    instance: Option<Formula>,
    value: Option<Formula>,
    guard: Option<Guard>,
}

impl Sayings {
    /// At a USDT probe there are more arguments than registers for them.
    fn read(fields: &Fields<'_>, scope: &Scope<'_>, at_usdt: bool) -> Self {
        let scope = &if at_usdt {
            scope.with(USDT_VARIABLES)
        } else {
            scope.with(PROBE_VARIABLES)
        };
        let at_probe = |key: &str| {
            fields
                .formula(key, scope)
                .filter(|formula| compiles(fields, formula, &formula.value))
        };
        Self {
            session: at_probe("session"),
            instance: at_probe("instance"),
            value: at_probe("value"),
            guard: fields
                .formula("when", scope)
                .and_then(|when| guard(fields, &when)),
        }
    }
}

/// One place.
fn alternative(
    fields: &Fields<'_>,
    probe: &Fields<'_>,
    op: Option<Op>,
    common: &Sayings,
    scope: &Scope<'_>,
) -> Option<Alternative> {
    let own = Sayings::read(fields, scope, fields.entry("usdt").is_some());
    let location = location(fields);
    let at_return = at_return(fields);
    let session = own.session.or_else(|| common.session.clone());
    if fields.entry("session").is_none() && probe.entry("session").is_none() {
        fields.report.add(
            Problem::at(fields.place, "nothing says whose session this is")
                .help("add `session = ...` to the probe or to this place"),
        );
    }
    let value = own.value.or_else(|| common.value.clone());
    let told = match op {
        Some(Op::Progress) => Some(("progress", "the work done so far")),
        Some(Op::Work) => Some(("work", "the work to be done in all")),
        Some(Op::Label) => Some(("label", "the address of its text")),
        _ => None,
    };
    if let Some((what, value_is)) = told.filter(|_| value.is_none()) {
        fields.report.add(
            Problem::at(fields.place, format!("{what} without a `value`"))
                .help(format!("add `value = ...`: {value_is}")),
        );
    }
    let alternative = Alternative {
        location: Located {
            value: location?,
            place: fields.place.clone(),
        },
        library: fields.text("library").map(|library| library.value),
        at_return,
        session: session?,
        instance: own.instance.or_else(|| common.instance.clone()),
        value,
        guard: own.guard.or_else(|| common.guard.clone()),
    };
    registers_are_there(&alternative, fields);
    Some(alternative)
}

/// A condition: one side has variables, the other none.
pub(super) fn guard(fields: &Fields<'_>, when: &Formula) -> Option<Guard> {
    let wrong = |message: &str| {
        let help = "a probe's condition is `expression == constant` or `expression != constant`";
        fields
            .report
            .add(Problem::at(&when.place, message).help(help));
    };
    let Some((left, equal, right)) = when.equality() else {
        wrong("this is not a comparison that a probe can make");
        return None;
    };
    let depends = |expr: &Expr| stand_in(expr).is_none();
    let (subject, value) = match (depends(&left), depends(&right)) {
        (true, false) => (left, right),
        (false, true) => (right, left),
        _ => {
            wrong("one side must depend on the site, the other must be constant");
            return None;
        }
    };
    compiles(fields, when, &subject).then(|| Guard {
        subject: Located {
            value: subject,
            place: when.place.clone(),
        },
        equal,
        value: Located {
            value,
            place: when.place.clone(),
        },
    })
}

/// The value of an expression that depends on nothing, with stand-ins for layout numbers and symbols.
fn stand_in(expr: &Expr) -> Option<u64> {
    expr.bind(&stand_ins(expr)).ok()?.constant()
}

/// Names as they could be in some process: every layout number 8, every symbol somewhere in a binary.
fn stand_ins(expr: &Expr) -> Bindings {
    let mut names = Bindings::new().with_variables(USDT_VARIABLES);
    for name in expr.names(NameKind::Layout) {
        names.add_layout(&name.text, 8);
    }
    for name in expr.names(NameKind::Symbol) {
        names.add_symbol(&name.text, SOMEWHERE + 0x4000);
    }
    names
}

/// Whether the kernel half can interpret an expression; notes why not.
pub(super) fn compiles(fields: &Fields<'_>, formula: &Formula, expr: &Expr) -> bool {
    let compiled = expr
        .bind(&stand_ins(expr))
        .map_err(|error| error.to_string())
        .and_then(|bound| {
            bound.compile_near(SOMEWHERE, Some(&[const { Ok(STAND_IN) }; MAX_OPERANDS]))
        });
    if let Err(reason) = &compiled {
        let message = format!("too much for a probe: {reason}");
        fields.report.add(Problem::at(&formula.place, message).help(
            "a probe's expression is a register, then up to 4 steps of `+ constant` and `*`",
        ));
    }
    compiled.is_ok()
}
