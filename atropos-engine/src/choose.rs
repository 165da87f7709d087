//! Which tasks one decision ends: the best candidate, and those that are to blame beside it.
//!
//! Where several culprits together cause the overload, ending one changes nothing. After the best is chosen, the blame is worked
//! out again as if it were gone; whoever is still to blame for about as much, and would have been chosen by itself, goes as
//! well. What the first will free anyway is nobody else's fault by then: of a queued request and the holder that it waits
//! for, one goes.

use std::collections::BTreeSet;

use super::Engine;
use super::blame;
use super::decide::MINOR_SHARE;
use super::gain::{self, Scored};
use super::input::SessionKey;
use super::policy;

/// Another task goes in the same decision if its score is at least this share of the best one's. 0.5: a task that is nearly done
/// beside one that has just begun is left to finish; culprits that began within seconds of each other differ by less.
const ALIKE: f64 = 0.5;

/// All who may be ended must together be to blame for this share of the time lost to some contended resource. 0.25: below it the overload stays whatever is
/// done to them, so it is not theirs. Half of it would end a long job for a slot in eight of a pool that is too small.
const TOGETHER: f64 = 0.25;

/// The tasks that a decision ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub(super) tasks: Vec<Scored>,
    /// The budget did not allow for all of them.
    pub(super) cut: bool,
}

impl Engine {
    /// Chooses, given the best candidate that may be ended.
    pub(super) fn choose(&self, levels: &[f64], best: Scored) -> Choice {
        let room = self.guard.room(&self.settings, self.ledger.now_ns);
        let limit = room.min(self.settings.tuning.per_decision as usize);
        let least = (
            ALIKE * policy::score(levels, &best),
            MINOR_SHARE * policy::blame(levels, &best),
        );
        let mut gone = BTreeSet::from([best.session]);
        let mut choice = Choice {
            tasks: vec![best],
            cut: false,
        };
        while let Some(next) = self.next_best(levels, &gone, least) {
            if choice.tasks.len() >= limit {
                choice.cut = room <= limit;
                break;
            }
            gone.insert(next.session);
            choice.tasks.push(next);
        }
        choice
    }

    fn next_best(
        &self,
        levels: &[f64],
        gone: &BTreeSet<SessionKey>,
        (least_score, least_blame): (f64, f64),
    ) -> Option<Scored> {
        let graph = blame::assign_without(&self.ledger, gone);
        let scored = gain::score(&self.settings, &self.ledger, &graph);
        self.judge(levels, &graph, scored, false)
            .into_iter()
            .find(|judged| judged.verdict.is_none())
            .filter(|judged| {
                judged.score >= least_score && policy::blame(levels, &judged.scored) >= least_blame
            })
            .map(|judged| judged.scored)
    }

    /// Whether these together are the reason for what is lost to some contended resource.
    pub(super) fn explain_together<'a>(
        levels: &[f64],
        tasks: impl Iterator<Item = &'a Scored>,
    ) -> bool {
        let mut shares = vec![0.0; levels.len()];
        for task in tasks {
            for (share, part) in shares.iter_mut().zip(&task.parts) {
                *share += part.blame;
            }
        }
        let contended = shares.iter().zip(levels).filter(|(_, level)| **level > 0.0);
        contended.map(|(share, _)| *share).fold(0.0, f64::max) >= TOGETHER
    }
}
