//! Which candidate to choose, by what each would free and how contended each resource is.

use super::gain::Scored;

/// A candidate's place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ranked {
    /// Index into the candidates.
    pub(super) index: usize,
    /// Sum of level times gain.
    pub(super) score: f64,
    /// A candidate that gains at least as much on every resource.
    pub(super) dominated_by: Option<usize>,
}

/// The paper's rule: whoever is dominated on all resources drops out; among the rest the largest sum of level times gain
/// wins. Equal scores go to the larger blame, then to who is in the way for longer, then to the smaller key. Best first; `levels` are
/// the contention levels by resource.
pub(super) fn rank(levels: &[f64], candidates: &[Scored]) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> = candidates
        .iter()
        .enumerate()
        .map(|(index, candidate)| Ranked {
            index,
            score: score(levels, candidate),
            dominated_by: candidates
                .iter()
                .position(|other| dominates(levels, other, candidate)),
        })
        .collect();
    ranked.sort_by(|a, b| {
        let (left, right) = (&candidates[a.index], &candidates[b.index]);
        (a.dominated_by.is_some().cmp(&b.dominated_by.is_some()))
            .then(b.score.total_cmp(&a.score))
            .then(blame(levels, right).total_cmp(&blame(levels, left)))
            .then(right.in_way_ns.cmp(&left.in_way_ns))
            .then(left.session.cmp(&right.session))
    });
    ranked
}

/// Sum of level times gain.
pub(super) fn score(levels: &[f64], candidate: &Scored) -> f64 {
    candidate
        .parts
        .iter()
        .zip(levels)
        .map(|(part, level)| part.gain_s * level)
        .sum()
}

/// Sum of level times blame.
pub(super) fn blame(levels: &[f64], candidate: &Scored) -> f64 {
    candidate
        .parts
        .iter()
        .zip(levels)
        .map(|(part, level)| part.blame * level)
        .sum()
}

/// Resources that are not contended say nothing: a gain there is worth nothing.
fn dominates(levels: &[f64], other: &Scored, candidate: &Scored) -> bool {
    let pairs = || {
        let gains = other
            .parts
            .iter()
            .zip(&candidate.parts)
            .map(|(o, c)| (o.gain_s, c.gain_s));
        gains
            .zip(levels)
            .filter(|(_, level)| **level > 0.0)
            .map(|(pair, _)| pair)
    };
    pairs().all(|(o, c)| o >= c) && pairs().any(|(o, c)| o > c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gain::{Part, Role};
    use crate::input::{Evidence, ResourceId, SessionKey};

    fn task(key: u64, gains: &[f64]) -> Scored {
        let part = |(r, gain_s): (usize, &f64)| Part {
            resource: ResourceId(r as u16),
            usage_s: 1.0,
            progress: None,
            blame: 0.5,
            undo_s: 0.0,
            gain_s: *gain_s,
        };
        Scored {
            session: SessionKey(key),
            role: Role::Root,
            parts: gains.iter().enumerate().map(part).collect(),
            in_way_ns: 50,
            evidence: Evidence::Event,
            seen_ns: 0,
        }
    }

    #[test]
    fn three_and_one_score_two_point_two_and_beat_two_and_two() {
        let ranked = rank(&[0.6, 0.4], &[task(1, &[2.0, 2.0]), task(2, &[3.0, 1.0])]);
        assert_eq!(ranked[0].index, 1);
        assert!((ranked[0].score - 2.2).abs() < 1e-12);
        assert!((ranked[1].score - 2.0).abs() < 1e-12);
        assert_eq!(ranked[1].dominated_by, None);
    }

    #[test]
    fn a_dominated_candidate_never_wins_and_names_who_dominates_it() {
        let ranked = rank(&[0.6, 0.4], &[task(1, &[2.0, 1.0]), task(2, &[3.0, 1.0])]);
        assert_eq!(ranked[0].index, 1);
        assert_eq!(ranked[1].dominated_by, Some(1));
    }

    #[test]
    fn a_gain_on_a_resource_that_nobody_lacks_counts_for_nothing() {
        let ranked = rank(&[0.6, 0.0], &[task(1, &[1.0, 500.0]), task(2, &[1.1, 0.0])]);
        assert_eq!(ranked[0].index, 1);
        assert_eq!(ranked[1].dominated_by, Some(1));
    }

    #[test]
    fn equal_scores_go_to_the_larger_blame_where_it_is_contended() {
        let with_blame = |key: u64, blame: [f64; 2]| {
            let mut task = task(key, &[1.0, 1.0]);
            for (part, blame) in task.parts.iter_mut().zip(blame) {
                part.blame = blame;
            }
            task
        };
        let much_of_little = with_blame(1, [0.1, 0.8]);
        let some_of_much = with_blame(2, [0.6, 0.1]);
        let ranked = rank(&[0.8, 0.2], &[much_of_little, some_of_much]);
        assert_eq!(ranked[0].index, 1);
    }

    #[test]
    fn equal_scores_go_to_who_is_in_the_way_for_longer_and_then_to_the_smaller_key() {
        let mut older = task(9, &[1.0]);
        older.in_way_ns = 100;
        let ranked = rank(&[1.0], &[task(3, &[1.0]), task(2, &[1.0]), older]);
        assert_eq!(
            ranked.iter().map(|r| r.index).collect::<Vec<_>>(),
            [2, 1, 0]
        );
    }
}
