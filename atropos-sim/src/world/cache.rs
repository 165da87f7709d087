//! A cache of pages that evicts the one not used for longest.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u32,
    owner: u32,
    before: u32,
    after: u32,
}

/// A cache.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    capacity: usize,
    /// Slot of each page, or `NONE`.
    slot_of: Vec<u32>,
    slots: Vec<Slot>,
    /// Pages that were ever there.
    known: Vec<bool>,
    newest: u32,
    oldest: u32,
    pub(crate) hit_count: u64,
    pub(crate) miss_count: u64,
    pub(crate) eviction_count: u64,
}

impl Cache {
    /// An empty cache for `capacity` of the pages `0..page_count`.
    pub(crate) fn new(capacity: usize, page_count: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            slot_of: vec![NONE; page_count],
            slots: Vec::with_capacity(capacity),
            known: vec![false; page_count],
            newest: NONE,
            oldest: NONE,
            hit_count: 0,
            miss_count: 0,
            eviction_count: 0,
        }
    }

    /// Uses a page; true if it was there.
    pub(crate) fn touch(&mut self, page: u64) -> bool {
        let slot = self.slot_of.get(page as usize).copied().unwrap_or(NONE);
        if slot == NONE {
            self.miss_count += 1;
            return false;
        }
        self.hit_count += 1;
        self.unlink(slot);
        self.push(slot);
        true
    }

    /// Puts a page in for an owner; returns the owner of the page that had to go for it, if one had to.
    pub(crate) fn insert(&mut self, page: u64, owner: u32) -> Option<u32> {
        let at = page as usize;
        if at >= self.slot_of.len() || self.slot_of[at] != NONE {
            return None;
        }
        let mut evicted = None;
        let fresh = Slot {
            page: page as u32,
            owner,
            before: NONE,
            after: NONE,
        };
        let slot = if self.slots.len() < self.capacity {
            self.slots.push(fresh);
            self.slots.len() as u32 - 1
        } else {
            let slot = self.oldest;
            self.unlink(slot);
            let old = std::mem::replace(&mut self.slots[slot as usize], fresh);
            self.slot_of[old.page as usize] = NONE;
            self.eviction_count += 1;
            evicted = Some(old.owner);
            slot
        };
        self.slot_of[at] = slot;
        self.known[at] = true;
        self.push(slot);
        evicted
    }

    /// Whether a page was ever there: if it is not any more, it was driven out.
    pub(crate) fn was_there(&self, page: u64) -> bool {
        self.known.get(page as usize).copied().unwrap_or(false)
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { before, after, .. } = self.slots[slot as usize];
        match before {
            NONE => self.newest = after,
            _ => self.slots[before as usize].after = after,
        }
        match after {
            NONE => self.oldest = before,
            _ => self.slots[after as usize].before = before,
        }
    }

    fn push(&mut self, slot: u32) {
        let newest = self.newest;
        let this = &mut self.slots[slot as usize];
        this.before = NONE;
        this.after = newest;
        match newest {
            NONE => self.oldest = slot,
            _ => self.slots[newest as usize].before = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_not_used_for_longest_goes_first() {
        let mut cache = Cache::new(2, 10);
        assert_eq!(cache.insert(1, 7), None);
        assert_eq!(cache.insert(2, 8), None);
        assert!(cache.touch(1));
        assert_eq!(cache.insert(3, 9), Some(8));
        assert!(!cache.touch(2));
        assert!(cache.touch(1) && cache.touch(3));
        assert_eq!(cache.eviction_count, 1);
    }

    #[test]
    fn a_cache_of_one_page_holds_the_latest() {
        let mut cache = Cache::new(1, 10);
        cache.insert(4, 0);
        assert_eq!(cache.insert(5, 1), Some(0));
        assert!(!cache.touch(4));
        assert!(cache.touch(5));
    }
}
