//! Two controllers at once: one that steers what is inside, one that stands at the door.

use super::{Action, Controller, Ended, Job, Report, Seen, Verdict};

/// The one inside, and the one at the door. They do not know of each other.
pub(crate) struct Both {
    inside: Box<dyn Controller>,
    door: Box<dyn Controller>,
}

impl Both {
    /// Puts the two together. Both look at the pace of the one inside.
    pub(crate) fn new(inside: Box<dyn Controller>, door: Box<dyn Controller>) -> Self {
        Self { inside, door }
    }
}

impl Controller for Both {
    fn tick_ns(&self) -> u64 {
        self.inside.tick_ns()
    }

    fn keeps_cancelled(&self) -> bool {
        self.inside.keeps_cancelled()
    }

    fn admit(&mut self, job: &Job) -> Verdict {
        self.door.admit(job)
    }

    fn dequeue(&mut self, job: &Job) -> bool {
        self.door.dequeue(job)
    }

    fn ended(&mut self, ended: &Ended, out: &mut Vec<Action>) {
        self.door.ended(ended, out);
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        self.inside.tick(seen, out);
        self.door.tick(seen, out);
    }

    fn report(&mut self, report: &Report, out: &mut Vec<Action>) {
        self.inside.report(report, out);
    }

    fn explain(&self) -> Vec<String> {
        self.inside.explain()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{demand, lock_hog, summary};

    #[test]
    fn the_hog_is_ended_inside_and_demand_is_refused_at_the_door() {
        assert!(summary(&lock_hog(), "atropos+all").culprit_drops > 0.9);
        let demand = summary(&demand(), "atropos+all");
        assert!(
            demand.innocent_drops > 0.2 && demand.cancel_count < 1.0,
            "{demand:?}"
        );
    }
}
