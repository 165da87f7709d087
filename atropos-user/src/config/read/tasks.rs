//! `[[class]]` and `[cancel]`: kinds of task, and how tasks are ended.

use std::str::FromStr as _;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::super::fields::Fields;
use super::super::preset::{Cancel, Command, Initiator, Rung, TaskClass};
use super::super::problem::Problem;
use super::super::schema;
use super::super::scope::Scope;
use super::super::source::Located;
use super::{enabled, exact, unique};
use crate::engine::settings::Class;

/// Initiators.
const INITIATORS: [(&str, Initiator); 4] = [
    ("mysql", Initiator::Mysql),
    ("postgres", Initiator::Postgres),
    ("signal", Initiator::Signal),
    ("exec", Initiator::Exec),
];

/// Most rungs of a ladder.
const MAX_RUNGS: usize = 16;

/// Signals that can end work. Others stop or trace a process, or are the kernel's own.
const SIGNALS: [&str; 8] = [
    "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGKILL",
];

/// Placeholders of an `exec` command.
const PLACEHOLDERS: [&str; 3] = ["{id}", "{thread}", "{request}"];

/// Reads the classes.
pub(super) fn classes(root: &Fields<'_>) -> Vec<TaskClass> {
    let tables = root.tables("class", &schema::CLASS);
    let names: Vec<_> = tables.iter().map(|fields| fields.text("name")).collect();
    unique(names.iter().flatten(), "class", root.report);
    let read = |(fields, name): (&Fields<'_>, Option<Located<String>>)| {
        let class = class(fields, name);
        if enabled(fields) { class } else { None }
    };
    tables.iter().zip(names).filter_map(read).collect()
}

/// One class.
fn class(fields: &Fields<'_>, name: Option<Located<String>>) -> Option<TaskClass> {
    let (statements, principals) = (fields.texts("statements"), fields.texts("principals"));
    let without_principal = fields.flag("without_principal", false);
    if statements.is_empty() && principals.is_empty() && !without_principal {
        let message = "nothing belongs to this class";
        fields.report.add(
            Problem::at(fields.place, message)
                .help("add `statements = [...]` or `principals = [...]`"),
        );
    }
    let undo = fields.number("undo").unwrap_or(0.0);
    if !(0.0..=100.0).contains(&undo) {
        fields.wrong(
            "undo",
            format!("`undo` is {undo}"),
            "allowed: 0 to 100, seconds of rollback for each second of work",
        );
    }
    let protected = fields.flag("protected", false);
    let words = |text: &str| {
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .to_lowercase()
    };
    Some(TaskClass {
        class: Class {
            name: name?.value,
            protected,
            protected_queued: fields.flag("protected_queued", protected),
            undo,
        },
        statements: statements
            .iter()
            .map(|statement| words(statement))
            .collect(),
        principals: principals
            .into_iter()
            .map(|principal| principal.value)
            .collect(),
        without_principal,
        yields_ns: fields.duration_ns("yields"),
        background_ns: fields.duration_ns("background"),
    })
}

/// Reads `[cancel]`.
pub(super) fn cancel(root: &Fields<'_>, scope: &Scope<'_>) -> Option<Cancel> {
    let fields = root.table("cancel", &schema::CANCEL)?;
    let exact = fields
        .table("exact", &schema::EXACT)
        .and_then(|fields| exact::read(&fields, scope));
    let initiator = fields.choice("initiator", "initiator", &INITIATORS);
    let tables = fields.tables("rung", &schema::RUNG);
    let names: Vec<_> = tables.iter().map(|rung| rung.text("name")).collect();
    unique(names.iter().flatten(), "rung", root.report);
    let read = |(rung, name): (&Fields<'_>, Option<Located<String>>)| {
        let read = read_rung(rung, name, initiator);
        if rung.entry("exact").is_some() && fields.entry("exact").is_none() {
            let help = "add `[cancel.exact]`, which says where a thread finds an order";
            rung.wrong("exact", "nothing says how", help);
        }
        if enabled(rung) { read } else { None }
    };
    let rungs: Vec<_> = tables.iter().zip(names).filter_map(read).collect();
    if fields.entry("rung").is_some()
        && (tables.is_empty() || tables.len() > MAX_RUNGS || !tables.iter().any(enabled))
    {
        let help = format!(
            "write 1 to {MAX_RUNGS} `[[cancel.rung]]` that are enabled, or no `[cancel]` at all"
        );
        fields.wrong(
            "rung",
            format!(
                "a ladder of {} rungs",
                tables.iter().filter(|rung| enabled(rung)).count()
            ),
            help,
        );
    }
    Some(Cancel {
        initiator: initiator?,
        exact,
        rungs,
    })
}

/// One rung.
fn read_rung(
    fields: &Fields<'_>,
    name: Option<Located<String>>,
    initiator: Option<Initiator>,
) -> Option<Rung> {
    let works = fields.texts("works");
    let states: Vec<_> = works
        .iter()
        .filter_map(|word| fields.choose(word, "state", &[("busy", true), ("idle", false)]))
        .collect();
    if fields.entry("works").is_some() && works.is_empty() {
        fields.wrong("works", "a rung that never works", "allowed: busy, idle");
    }
    let deadline = fields.duration_ns("deadline").map(Duration::from_nanos);
    let command = initiator.and_then(|initiator| command(fields, initiator));
    let exact = match fields.entry("exact") {
        None => None,
        Some(_) => Some(fields.choice("exact", "signal", &signals())?),
    };
    Some(Rung {
        name: name?,
        command: command?,
        exact,
        busy: states.contains(&true),
        idle: states.contains(&false),
        deadline: deadline?,
    })
}

/// What is done, in the words of the initiator.
fn command(fields: &Fields<'_>, initiator: Initiator) -> Option<Command> {
    let belongs: &[&str] = match initiator {
        Initiator::Mysql | Initiator::Postgres => &["command"],
        Initiator::Signal => &["command", "to"],
        Initiator::Exec => &["argv"],
    };
    for key in ["command", "to", "argv"]
        .into_iter()
        .filter(|key| !belongs.contains(key) && fields.entry(key).is_some())
    {
        fields.wrong(
            key,
            format!("`{key}` means nothing to this initiator"),
            format!("it takes: {}", belongs.join(", ")),
        );
    }
    if fields.entry(belongs[0]).is_none() {
        let help = format!("add `{} = ...`", belongs[0]);
        fields
            .report
            .add(Problem::at(fields.place, "this rung does nothing").help(help));
        return None;
    }
    match initiator {
        Initiator::Mysql => {
            let commands = [
                Command::KillQueryId,
                Command::KillQuery,
                Command::KillConnection,
            ];
            choose_command(
                fields,
                &["kill_query_id", "kill_query", "kill_connection"],
                &commands,
            )
        }
        Initiator::Postgres => choose_command(
            fields,
            &["cancel", "terminate"],
            &[Command::PgCancel, Command::PgTerminate],
        ),
        Initiator::Signal => signal(fields),
        Initiator::Exec => exec(fields),
    }
}

/// One of the commands of an initiator.
fn choose_command(fields: &Fields<'_>, names: &[&str], commands: &[Command]) -> Option<Command> {
    let choices: Vec<_> = names.iter().copied().zip(commands).collect();
    fields.choice("command", "command", &choices).cloned()
}

/// Signals that can end work, by name.
fn signals() -> Vec<(&'static str, Signal)> {
    SIGNALS
        .iter()
        .filter_map(|name| Some((*name, Signal::from_str(name).ok()?)))
        .collect()
}

/// A signal.
fn signal(fields: &Fields<'_>) -> Option<Command> {
    let signal = fields.choice("command", "signal", &signals());
    let receivers = [("process", false), ("thread", true)];
    let to_thread = fields
        .entry("to")
        .map_or(Some(false), |_| fields.choice("to", "receiver", &receivers));
    Some(Command::Signal {
        signal: signal?,
        to_thread: to_thread?,
    })
}

/// A program.
fn exec(fields: &Fields<'_>) -> Option<Command> {
    let argv = fields.texts("argv");
    let program = argv.first()?;
    let mut fine = true;
    let mut wrong = |argument: &Located<String>, message: String, help: &str| {
        fields
            .report
            .add(Problem::at(&argument.place, message).help(help));
        fine = false;
    };
    if !program.starts_with('/') {
        let message = format!("`{}` is not an absolute path", program.value);
        wrong(
            program,
            message,
            "write the whole path of the program: no shell and no PATH are asked",
        );
    }
    for argument in argv.iter().filter(|argument| argument.contains(['{', '}'])) {
        if !PLACEHOLDERS.contains(&argument.as_str()) {
            let message = format!("`{}` is no placeholder", argument.value);
            wrong(
                argument,
                message,
                "allowed: {id}, {thread}, {request}, each as a whole argument",
            );
        }
    }
    if argv.iter().any(|argument| argument.contains('\0')) {
        wrong(
            program,
            "an argument has a zero byte".to_owned(),
            "remove it",
        );
    }
    fine.then(|| Command::Exec {
        argv: argv.into_iter().map(|argument| argument.value).collect(),
    })
}
