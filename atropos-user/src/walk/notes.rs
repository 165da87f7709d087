//! What is worth telling of a session beside whom it keeps waiting, and from when on it is ended for it.

use super::{Unbound, bind, bind_some};
use crate::config::Note;
use crate::config::expr::{Bindings, Bound};
use crate::memory::Memory;

/// The bound notes.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    notes: Vec<BoundNote>,
}

#[derive(Clone, Debug)]
struct BoundNote {
    value: Bound,
    least: u64,
    end: Option<BoundEnd>,
}

/// From when on a session is ended for it.
#[derive(Clone, Debug)]
struct BoundEnd {
    may_end: Option<Bound>,
    above: u64,
}

impl Notes {
    /// Binds notes whose expressions know `names`.
    pub(super) fn bind(notes: &[Note], names: &Bindings) -> Result<Self, Unbound> {
        let end = |note: &Note| -> Result<_, Unbound> {
            let Some(end) = &note.end else {
                return Ok(None);
            };
            Ok(Some(BoundEnd {
                may_end: bind_some(end.may_end.as_ref(), names)?,
                above: end.above,
            }))
        };
        let notes = notes.iter().map(|note| {
            Ok(BoundNote {
                value: bind(&note.value, names)?,
                least: note.least,
                end: end(note)?,
            })
        });
        Ok(Self {
            notes: notes.collect::<Result<_, _>>()?,
        })
    }

    /// Index and value of each note that is worth telling of this session.
    pub(super) fn of(&self, of: &[u64], memory: &dyn Memory) -> Vec<(usize, u64)> {
        let worth = |(index, note): (usize, &BoundNote)| {
            let value = note.value.eval(of, memory).ok()?;
            (value >= note.least).then_some((index, value))
        };
        self.notes.iter().enumerate().filter_map(worth).collect()
    }

    /// Whether sessions are ended for any.
    pub(super) fn end_sessions(&self) -> bool {
        self.notes.iter().any(|note| note.end.is_some())
    }

    /// Each note with more than sessions may have, where they are ended for it: its index, the value, and whether this
    /// session may be ended for it. What cannot be read is no reason.
    pub(super) fn beyond(&self, of: &[u64], memory: &dyn Memory) -> Vec<(usize, u64, bool)> {
        let is_beyond = |(index, note): (usize, &BoundNote)| {
            let end = note.end.as_ref()?;
            let value = note.value.eval(of, memory).ok()?;
            let may_end = end
                .may_end
                .as_ref()
                .is_none_or(|may_end| may_end.eval(of, memory).is_ok_and(|may_end| may_end != 0));
            (value > end.above).then_some((index, value, may_end))
        };
        self.notes
            .iter()
            .enumerate()
            .filter_map(is_beyond)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::expr::Expr;
    use crate::memory::Fault;

    /// Memory that nobody reads.
    struct Nothing;

    impl Memory for Nothing {
        fn read(&self, address: u64, _: &mut [u8]) -> Result<(), Fault> {
            Err(Fault { address })
        }
    }

    fn bound(text: &str) -> Bound {
        let names = Bindings::new().with_variables(["phase", "value"]);
        Expr::parse(text).unwrap().bind(&names).unwrap()
    }

    fn note(value: &str, end: Option<BoundEnd>) -> BoundNote {
        BoundNote {
            value: bound(value),
            least: 10,
            end,
        }
    }

    #[test]
    fn a_note_is_told_from_its_least_value_on() {
        let notes = Notes {
            notes: vec![note("value", None), note("value + 1", None)],
        };
        assert_eq!(notes.of(&[0, 9], &Nothing), [(1, 10)]);
    }

    #[test]
    fn a_session_is_beyond_a_note_by_its_value_and_may_be_ended_only_if_the_note_says_so() {
        let end = |may_end: Option<&str>| {
            Some(BoundEnd {
                may_end: may_end.map(bound),
                above: 20,
            })
        };
        let beyond = |note: BoundNote, value: u64| {
            let notes = Notes { notes: vec![note] };
            notes.beyond(&[1, value], &Nothing)
        };
        assert_eq!(beyond(note("value", end(None)), 21), [(0, 21, true)]);
        assert_eq!(beyond(note("value", end(None)), 20), []);
        assert_eq!(beyond(note("value", None), 21), []);
        assert_eq!(beyond(note("*4096", end(None)), 21), [], "not to be read");
        for (may_end, may) in [
            ("phase == 1", true),
            ("phase == 2", false),
            ("*4096", false),
        ] {
            let note = note("value", end(Some(may_end)));
            assert_eq!(beyond(note, 21), [(0, 21, may)], "{may_end}");
        }
    }
}
