//! What an application declares of itself in its notes (`usdt-probes`): resources, and the signals that end its work. In: notes.
//! Out: a preset with a probe for each mark of each resource. Pure but for [`carrier`].

use std::fmt::Write as _;

use crate::config::{self, Preset};
use crate::elf::stapsdt::{Usdt, read};
use crate::target::{MappedFile, Process, TargetError};

/// Provider of the marks.
const PROVIDER: &str = "atropos";
/// Name of the preset that is completed, and beginning of its text.
const HEAD: &str = "schema = 1\nname = \"atropos\"\nextends = \"atropos\"\n";
/// Kinds whose marks are followed: a lock is waited for and held, a place in a queue waited for and taken, a unit of a store
/// brought in and driven out.
const FOLLOWED: [(&str, &[Mark]); 3] = [
    ("LOCK", &[WAIT_BEGIN, WAIT_END, ACQUIRE, RELEASE]),
    ("QUEUE", &[ENQUEUE, DEQUEUE, ACQUIRE, RELEASE]),
    ("MEMORY", &[FETCH_BEGIN, FETCH_END, USE, EVICT]),
];
/// Kinds that can be declared.
const KINDS: [&str; 5] = ["LOCK", "QUEUE", "MEMORY", "CPU", "IO"];

/// A mark as the probe of a resource has it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    name: &'static str,
    /// Its operation, if that is not its name.
    op: Option<&'static str>,
    /// Its fourth argument is a mode or an amount.
    has_value: bool,
    /// Who holds what and waits must be known before anybody asks; what is used is asked when somebody lost by it.
    level: &'static str,
}

const WAIT_BEGIN: Mark = Mark::calm("wait_begin", true);
const WAIT_END: Mark = Mark::calm("wait_end", false);
const ACQUIRE: Mark = Mark::calm("acquire", true);
const RELEASE: Mark = Mark::calm("release", false);
const ENQUEUE: Mark = Mark::calm("enqueue", false);
const DEQUEUE: Mark = Mark::calm("dequeue", false);
const FETCH_BEGIN: Mark = Mark::suspect("wait_begin", Some("fetch_begin"), false);
const FETCH_END: Mark = Mark::suspect("wait_end", Some("fetch_end"), false);
const USE: Mark = Mark::suspect("use", None, true);
const EVICT: Mark = Mark::suspect("evict", None, true);

impl Mark {
    const fn calm(name: &'static str, has_value: bool) -> Self {
        Self {
            name,
            op: None,
            has_value,
            level: "calm",
        }
    }

    const fn suspect(name: &'static str, op: Option<&'static str>, has_value: bool) -> Self {
        Self {
            name,
            op,
            has_value,
            level: "suspect",
        }
    }
}

/// Declarations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    resources: Vec<Resource>,
    /// Signal that cancels a task.
    cancels_task: Option<String>,
    /// Signal that ends a session.
    ends_session: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Resource {
    number: u64,
    kind: &'static str,
    name: String,
}

/// The mapped file that carries marks, if one does; the program before its libraries.
///
/// # Errors
/// When a mapped file cannot be read.
pub fn carrier<'a>(
    process: &Process,
    files: &'a [MappedFile],
) -> Result<Option<&'a MappedFile>, TargetError> {
    let (program, libraries): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.is_exe);
    for file in program.into_iter().chain(libraries) {
        let notes = read(&process.file_parts(file)?).unwrap_or_default();
        if notes.iter().any(|note| note.fits("atropos:task_begin")) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

impl Declared {
    /// Reads the declarations among notes. One that several files of the program make in the same words is one.
    ///
    /// # Errors
    /// A sentence, when a declaration is not understood or speaks against another.
    pub fn read(notes: &[Usdt]) -> Result<Self, String> {
        let mut declared = Self::default();
        for note in notes.iter().filter(|note| note.provider == PROVIDER) {
            let words: Vec<&str> = note.name.split("__").collect();
            match words.as_slice() {
                ["resource", number, kind, name] => declared
                    .resource(number, kind, name)
                    .map_err(|why| format!("the note `{}`: {why}", note.name))?,
                ["resource", ..] => {
                    return Err(format!(
                        "the note `{}` is no resource: its name may have single `_` only",
                        note.name
                    ));
                }
                ["cancel", "task", signal] => signal_said(&mut declared.cancels_task, signal)?,
                ["cancel", "session", signal] => signal_said(&mut declared.ends_session, signal)?,
                _ => {}
            }
        }
        declared.resources.sort_by_key(|resource| resource.number);
        Ok(declared)
    }

    fn resource(&mut self, number: &str, kind: &str, name: &str) -> Result<(), String> {
        let number = number
            .parse()
            .map_err(|_| format!("`{number}` is no number"))?;
        let kind = KINDS
            .into_iter()
            .find(|known| *known == kind)
            .ok_or_else(|| format!("`{kind}` is no kind; there are: {}", KINDS.join(", ")))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err("its name must be made of letters, digits and `_`".to_owned());
        }
        let resource = Resource {
            number,
            kind,
            name: name.to_owned(),
        };
        if self.resources.contains(&resource) {
            return Ok(());
        }
        let taken = |one: &&Resource| one.number == number || one.name == name;
        if let Some(other) = self.resources.iter().find(taken) {
            return Err(format!(
                "number {} is `{}` already",
                other.number, other.name
            ));
        }
        self.resources.push(resource);
        Ok(())
    }

    /// The preset `atropos` with what is declared; or the one of a user that extends it, which keeps whatever it says itself
    /// of resources and of cancelling.
    ///
    /// # Errors
    /// A sentence, when nothing is declared that could be watched, or a signal is none.
    pub fn complete(&self, preset: Preset) -> Result<Preset, String> {
        let whole = config::parse("what the program declares", &self.text())
            .map_err(|problems| problems.to_string())?;
        let own_resources = !preset.resources.is_empty();
        if whole.resources.is_empty() && !own_resources {
            return Err(
                "it carries marks and declares no resource: add ATROPOS_RESOURCE (C) or usdt_probes::resource! (Rust) for each \
                 (presets/atropos/README.md)"
                    .to_owned(),
            );
        }
        let mut completed = preset;
        if completed.cancel.is_none() {
            completed.cancel = whole.cancel;
        }
        if !own_resources {
            let known: Vec<String> = completed
                .probes
                .iter()
                .map(|probe| probe.name.value.clone())
                .collect();
            completed.resources = whole.resources;
            completed.probes.extend(
                whole
                    .probes
                    .into_iter()
                    .filter(|probe| !known.contains(&probe.name.value)),
            );
        }
        Ok(completed)
    }

    /// What is declared in the language of presets.
    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        // A string takes whatever is written to it.
        for resource in &self.resources {
            let _ = write!(text, "{}", resource.text());
        }
        let signals = [
            ("cancel the task", "[\"busy\"]", "1s", &self.cancels_task),
            (
                "end the session",
                "[\"busy\", \"idle\"]",
                "5s",
                &self.ends_session,
            ),
        ];
        let rungs: Vec<String> = signals
            .into_iter()
            .filter_map(|(name, works, deadline, signal)| {
                let signal = signal.as_ref()?;
                Some(format!(
                    "[[cancel.rung]]\nname = \"{name}\"\ncommand = \"{signal}\"\nto = \"thread\"\nworks = {works}\ndeadline = \"{deadline}\"\n"
                ))
            })
            .collect();
        if !rungs.is_empty() {
            let _ = write!(text, "[cancel]\ninitiator = \"signal\"\n{}", rungs.concat());
        }
        text
    }
}

impl Resource {
    fn text(&self) -> String {
        let Self { number, kind, name } = self;
        let mut text = format!(
            "[[resource]]\nname = \"{name}\"\nkind = \"{kind}\"\ntitle = \"{name}\"\nmodes = [\"exclusive\", \"shared\"]\n"
        );
        let followed = FOLLOWED.iter().find(|(followed, _)| followed == kind);
        for mark in followed.map_or(&[][..], |(_, marks)| marks) {
            let Mark {
                name: mark,
                op,
                has_value,
                level,
            } = mark;
            let op = op.unwrap_or(mark);
            let value = if *has_value { "value = \"arg3\"\n" } else { "" };
            let _ = write!(
                text,
                "[[probe]]\nname = \"{name}: {mark}\"\nlevel = \"{level}\"\nop = \"{op}\"\nresource = \"{name}\"\n\
                 session = \"arg0\"\ninstance = \"arg2\"\n{value}when = \"arg1 == {number}\"\nat = [{{ usdt = \"{PROVIDER}:{mark}\" }}]\n"
            );
        }
        text
    }
}

fn signal_said(said: &mut Option<String>, signal: &str) -> Result<(), String> {
    match said {
        Some(other) if other != signal => Err(format!(
            "the program declares two signals for one purpose, {other} and {signal}"
        )),
        _ => {
            *said = Some(signal.to_owned());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal::{SIGUSR1, SIGUSR2};

    use atropos_common::op::Op;

    use super::*;
    use crate::config::{Command, Initiator};
    use crate::engine::record::Level;

    fn notes(names: &[&str]) -> Vec<Usdt> {
        let note = |name: &&str| Usdt {
            provider: PROVIDER.to_owned(),
            name: (*name).to_owned(),
            vaddr: 0,
            semaphore_vaddr: None,
            arguments: String::new(),
        };
        names.iter().map(note).collect()
    }

    fn base() -> Preset {
        config::load("atropos").unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn each_declared_resource_gets_the_probes_of_its_kind() {
        let names = [
            "resource__7__QUEUE__workers",
            "task_begin",
            "resource__0__LOCK__table_lock",
            "resource__0__LOCK__table_lock",
            "resource__3__MEMORY__cache",
        ];
        let preset = Declared::read(&notes(&names))
            .unwrap()
            .complete(base())
            .unwrap();
        let resources: Vec<&str> = preset
            .resources
            .iter()
            .map(|resource| resource.name.as_str())
            .collect();
        assert_eq!(resources, ["table_lock", "cache", "workers"]);
        let probes: Vec<&str> = preset
            .probes
            .iter()
            .map(|probe| probe.name.as_str())
            .collect();
        for probe in [
            "task_begin",
            "session_end",
            "table_lock: acquire",
            "workers: dequeue",
        ] {
            assert!(probes.contains(&probe), "{probe} in {probes:?}");
        }
        let cache: Vec<_> = preset
            .probes
            .iter()
            .filter(|probe| probe.name.starts_with("cache"))
            .map(|probe| (probe.name.as_str(), probe.op, probe.level))
            .collect();
        let expected = [
            ("cache: wait_begin", Op::FetchBegin),
            ("cache: wait_end", Op::FetchEnd),
            ("cache: use", Op::Use),
            ("cache: evict", Op::Evict),
        ];
        assert_eq!(
            cache,
            expected.map(|(name, op)| (name, op, Level::Suspect)),
            "what is used is only asked when somebody lost by it"
        );
        assert_eq!(preset.cancel, None);
    }

    #[test]
    fn the_declared_signals_become_the_ladder_gentlest_first() {
        let names = [
            "resource__0__LOCK__l",
            "cancel__session__SIGUSR2",
            "cancel__task__SIGUSR1",
        ];
        let preset = Declared::read(&notes(&names))
            .unwrap()
            .complete(base())
            .unwrap();
        let cancel = preset.cancel.unwrap();
        assert_eq!(cancel.initiator, Initiator::Signal);
        let rungs: Vec<_> = cancel
            .rungs
            .iter()
            .map(|rung| (rung.name.as_str(), rung.busy, rung.idle, &rung.command))
            .collect();
        let command = |signal| Command::Signal {
            signal,
            to_thread: true,
        };
        assert_eq!(
            rungs[0],
            ("cancel the task", true, false, &command(SIGUSR1))
        );
        assert_eq!(rungs[1], ("end the session", true, true, &command(SIGUSR2)));
    }

    #[test]
    fn a_declaration_that_cannot_be_meant_is_refused_with_its_own_words() {
        for (names, said) in [
            (&["resource__x__LOCK__l"][..], "`x` is no number"),
            (&["resource__0__BOLT__l"], "`BOLT` is no kind"),
            (&["resource__0__LOCK__a__b"], "single `_`"),
            (
                &["resource__0__LOCK__a", "resource__0__LOCK__b"],
                "number 0 is `a` already",
            ),
            (
                &["cancel__task__SIGUSR1", "cancel__task__SIGUSR2"],
                "two signals",
            ),
        ] {
            let error = Declared::read(&notes(names)).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let nothing = Declared::read(&notes(&["task_begin"])).unwrap();
        assert!(
            nothing
                .complete(base())
                .unwrap_err()
                .contains("declares no resource")
        );
        let odd = Declared::read(&notes(&["resource__0__LOCK__l", "cancel__task__SIGNONE"]));
        assert!(
            odd.unwrap()
                .complete(base())
                .unwrap_err()
                .contains("SIGNONE")
        );
    }
}
