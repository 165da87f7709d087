//! How many rounds a measurement has: a number of them, or as many as fit into a time. Pure.

/// The time between two rounds is given to parts (a workload at a pace) in turns: each gets its share of what is left.
#[derive(Debug)]
pub(super) struct Rounds {
    most: u32,
    ends_ns: Option<u64>,
    parts_left: u64,
}

/// The rounds of one part.
#[derive(Debug)]
pub(super) struct Part {
    most: u32,
    ends_ns: Option<u64>,
    done: u32,
    begun_ns: u64,
    longest_ns: u64,
}

impl Rounds {
    /// So many rounds of each part or, if minutes are given, as many as fit into that time.
    pub(super) fn new(count: u32, minutes: Option<u32>, parts: usize, now_ns: u64) -> Self {
        const MINUTE_NS: u64 = 60_000_000_000;
        Self {
            most: minutes.map_or(count, |_| u32::MAX),
            ends_ns: minutes.map(|minutes| now_ns + u64::from(minutes) * MINUTE_NS),
            parts_left: parts as u64,
        }
    }

    /// The next part begins.
    pub(super) fn part(&mut self, now_ns: u64) -> Part {
        let parts = self.parts_left.max(1);
        self.parts_left = parts - 1;
        let share_ns = |ends_ns: u64| ends_ns.saturating_sub(now_ns) / parts;
        Part {
            most: self.most,
            ends_ns: self.ends_ns.map(|ends_ns| now_ns + share_ns(ends_ns)),
            done: 0,
            begun_ns: now_ns,
            longest_ns: 0,
        }
    }
}

impl Part {
    /// Number of the next round, from 1; nothing if the part is done. There is always one.
    pub(super) fn another(&mut self, now_ns: u64) -> Option<u32> {
        if self.done > 0 {
            self.longest_ns = self.longest_ns.max(now_ns.saturating_sub(self.begun_ns));
            let fits = self
                .ends_ns
                .is_none_or(|ends_ns| now_ns + self.longest_ns <= ends_ns);
            if self.done >= self.most || !fits {
                return None;
            }
        }
        self.done += 1;
        self.begun_ns = now_ns;
        Some(self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Rounds of a part, each of that many seconds.
    fn count(part: &mut Part, now_ns: &mut u64, seconds: u64) -> u32 {
        let mut last = 0;
        while let Some(number) = part.another(*now_ns) {
            assert_eq!(number, last + 1);
            last = number;
            *now_ns += seconds * S;
        }
        last
    }

    #[test]
    fn without_a_time_each_part_has_its_number() {
        let (mut now_ns, mut rounds) = (7, Rounds::new(3, None, 2, 7));
        for _ in 0..2 {
            let mut part = rounds.part(now_ns);
            assert_eq!(count(&mut part, &mut now_ns, 100), 3);
        }
    }

    #[test]
    fn the_time_is_shared_and_what_one_leaves_the_next_may_have() {
        let (mut now_ns, mut rounds) = (0, Rounds::new(12, Some(10), 2, 0));
        now_ns += 60 * S;
        let mut part = rounds.part(now_ns);
        assert_eq!(count(&mut part, &mut now_ns, 50), 5, "of 270 s");
        let mut part = rounds.part(now_ns);
        assert_eq!(count(&mut part, &mut now_ns, 50), 5, "of 290 s");
        assert!(now_ns <= 600 * S);
    }

    #[test]
    fn there_is_one_round_however_short_the_time() {
        let (mut now_ns, mut rounds) = (0, Rounds::new(12, Some(1), 1, 0));
        now_ns += 1000 * S;
        let mut part = rounds.part(now_ns);
        assert_eq!(count(&mut part, &mut now_ns, 50), 1);
    }
}
