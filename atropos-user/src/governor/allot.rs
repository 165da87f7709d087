//! Who fits into a budget: the most valuable first, each as much as is left.

use super::unit::Standing;

/// What a unit asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Demand {
    /// What all of its time would cost, as a share of the target's CPU time.
    pub(super) share: f64,
    /// Whether a part of the time is worth anything.
    pub(super) divisible: bool,
}

/// How much of its time each unit may have: at least what it `has`, and what fits beyond that. `order` names the units by
/// worth; one that asks for nothing gets all.
pub(super) fn allot(
    order: &[usize],
    demands: &[Option<Demand>],
    has: &[Standing],
    budget: f64,
) -> Vec<Standing> {
    let mut left = budget;
    let mut standings = vec![Standing::Whole; demands.len()];
    for index in order {
        let Some(Demand { share, divisible }) = demands[*index] else {
            continue;
        };
        let mut standing = Standing::fitting(share, left, divisible);
        if standing < has[*index] {
            standing = has[*index];
        }
        left -= share * standing.duty();
        standings[*index] = standing;
    }
    standings
}
