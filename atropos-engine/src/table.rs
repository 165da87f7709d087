//! A map that is found in like a hash table, and walked in the order of its keys.
//!
//! No answer of the engine may depend on a hash seed or a machine: the hash is a fixed one, and its own order is never
//! walked. Places are used again, so that what comes and goes allocates nothing; the order is sorted out when it is asked
//! for, which is at ticks and not at events.
//!
//! Of each value something can be kept in brief, apart from it: whoever walks thousands of large values and asks each for
//! little fetches only that from memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Index;
use std::sync::OnceLock;

use rustc_hash::FxBuildHasher;

/// Fewer places than this are kept, however few are in use.
const KEPT_PLACES: usize = 64;

/// The map: `B` is what is kept of each value in brief, apart from it.
#[derive(Clone, Debug)]
pub(super) struct Table<K, V, B = ()> {
    places: HashMap<K, usize, FxBuildHasher>,
    briefs: Vec<Option<(K, B)>>,
    /// There is one where there is a brief.
    values: Vec<Option<V>>,
    free: Vec<usize>,
    /// Keys in order with their places; unset since something was added or removed.
    order: OnceLock<Vec<(K, usize)>>,
}

impl<K, V, B> Default for Table<K, V, B> {
    fn default() -> Self {
        Self {
            places: HashMap::default(),
            briefs: Vec::new(),
            values: Vec::new(),
            free: Vec::new(),
            order: OnceLock::new(),
        }
    }
}

impl<K: Copy + Ord + Hash, V, B: Default> Table<K, V, B> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// There are none.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether there is one of this key.
    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.places.contains_key(key)
    }

    /// The value of this key.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.at(self.place_of(key)?)
    }

    /// The value of this key, to be changed.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.at_mut(self.place_of(key)?)
    }

    /// What is kept in brief of this key.
    pub(super) fn brief(&self, key: &K) -> Option<&B> {
        self.brief_at(self.place_of(key)?)
    }

    /// What is kept in brief of this key, to be changed.
    pub(super) fn brief_mut(&mut self, key: &K) -> Option<&mut B> {
        self.brief_at_mut(self.place_of(key)?)
    }

    /// Adds one, or puts it in the place of the former.
    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.get_mut(&key) {
            Some(former) => *former = value,
            None => {
                self.add(key, value);
            }
        }
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.vacate(key)?;
        self.values[place].take()
    }

    /// Drops one where it is: nothing large is moved.
    pub(super) fn discard(&mut self, key: &K) {
        if let Some(place) = self.vacate(key) {
            self.values[place] = None;
        }
    }

    fn vacate(&mut self, key: &K) -> Option<usize> {
        let place = self.places.remove(key)?;
        self.order.take();
        self.free.push(place);
        self.briefs[place] = None;
        Some(place)
    }

    /// The place of a key: it finds the value without a search until something is removed.
    pub(super) fn place_of(&self, key: &K) -> Option<usize> {
        self.places.get(key).copied()
    }

    /// Whether this key is in that place.
    pub(super) fn is_at(&self, place: usize, key: &K) -> bool {
        let brief = self.briefs.get(place).and_then(Option::as_ref);
        brief.is_some_and(|(known, _)| known == key)
    }

    /// The value in a place.
    pub(super) fn at(&self, place: usize) -> Option<&V> {
        self.values[place].as_ref()
    }

    /// The value in a place, to be changed.
    pub(super) fn at_mut(&mut self, place: usize) -> Option<&mut V> {
        self.values[place].as_mut()
    }

    /// What is kept in brief in a place.
    pub(super) fn brief_at(&self, place: usize) -> Option<&B> {
        self.briefs[place].as_ref().map(|(_, brief)| brief)
    }

    /// What is kept in brief in a place, to be changed.
    pub(super) fn brief_at_mut(&mut self, place: usize) -> Option<&mut B> {
        self.briefs[place].as_mut().map(|(_, brief)| brief)
    }

    /// The place of a key, to be filled if it is empty.
    pub(super) fn entry(&mut self, key: K) -> Entry<'_, K, V, B> {
        Entry { table: self, key }
    }

    /// All, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let order = self.order.get_or_init(|| self.sorted());
        order
            .iter()
            .filter_map(|(key, place)| Some((key, self.values[*place].as_ref()?)))
    }

    /// All, in no order that means anything: for what does not depend on one, at no cost of sorting.
    pub(super) fn iter_any(&self) -> impl Iterator<Item = (&K, &V)> {
        let all = self.briefs.iter().zip(&self.values);
        all.filter_map(|(brief, value)| Some((&brief.as_ref()?.0, value.as_ref()?)))
    }

    /// What is kept in brief of all, in no order that means anything.
    pub(super) fn briefs(&self) -> impl Iterator<Item = (&K, &B)> {
        let briefs = self.briefs.iter();
        briefs.filter_map(|brief| brief.as_ref().map(|(key, brief)| (key, brief)))
    }

    /// Keys, in order.
    #[cfg(test)]
    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Values, in the order of their keys.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Values to be changed, each by itself: their order is that in which places were filled.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.iter_mut().flatten()
    }

    /// Keeps those that `keep` wants; it is asked for each by itself. Gives memory back if few are left of many.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for (place, value) in self.values.iter_mut().enumerate() {
            if let (Some((key, _)), Some(known)) = (&self.briefs[place], value.as_mut())
                && !keep(key, known)
            {
                self.places.remove(key);
                self.free.push(place);
                self.order.take();
                self.briefs[place] = None;
                *value = None;
            }
        }
        self.give_back();
    }

    /// Gives memory back if few are left of many.
    pub(super) fn give_back(&mut self) {
        if self.values.len() <= KEPT_PLACES || self.len() * 4 >= self.values.len() {
            return;
        }
        let Self { briefs, values, .. } = std::mem::take(self);
        for ((key, brief), value) in briefs
            .into_iter()
            .flatten()
            .zip(values.into_iter().flatten())
        {
            let place = self.add(key, value);
            self.briefs[place] = Some((key, brief));
        }
    }

    fn add(&mut self, key: K, value: V) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.briefs.push(None);
            self.values.push(None);
            self.values.len() - 1
        });
        self.briefs[place] = Some((key, B::default()));
        self.values[place] = Some(value);
        self.places.insert(key, place);
        self.order.take();
        place
    }

    fn sorted(&self) -> Vec<(K, usize)> {
        let places = self.briefs.iter().enumerate();
        let mut order: Vec<(K, usize)> = places
            .filter_map(|(place, brief)| brief.as_ref().map(|(key, _)| (*key, place)))
            .collect();
        order.sort_unstable_by_key(|(key, _)| *key);
        order
    }
}

impl<K: Copy + Ord + Hash, V, B: Default> Index<&K> for Table<K, V, B> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key)
            .expect("whoever indexes knows that it is there")
    }
}

/// The place of a key.
pub(super) struct Entry<'a, K, V, B> {
    table: &'a mut Table<K, V, B>,
    key: K,
}

impl<'a, K: Copy + Ord + Hash, V: Default, B: Default> Entry<'a, K, V, B> {
    /// The value, the default one if there was none.
    pub(super) fn or_default(mut self) -> &'a mut V {
        let place = self.place();
        self.table.values[place].get_or_insert_default()
    }

    /// The value and what is kept of it in brief, the default ones if there was none.
    pub(super) fn both(mut self) -> (&'a mut V, &'a mut B) {
        let place = self.place();
        let Self { table, key } = self;
        let (_, brief) = table.briefs[place].get_or_insert_with(|| (key, B::default()));
        (table.values[place].get_or_insert_default(), brief)
    }

    /// What is kept in brief, the default one if there was none.
    pub(super) fn brief(self) -> &'a mut B {
        self.both().1
    }

    /// The place, filled with the default value if there was none.
    pub(super) fn place(&mut self) -> usize {
        let Self { table, key } = self;
        match table.place_of(key) {
            Some(place) => place,
            None => table.add(*key, V::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(keys: &[u64]) -> Table<u64, u64> {
        let mut table = Table::default();
        for key in keys {
            table.insert(*key, key * 10);
        }
        table
    }

    #[test]
    fn it_is_walked_in_the_order_of_keys_whatever_came_first() {
        let mut table = table(&[5, 1, 9, 3]);
        let walked =
            |table: &Table<u64, u64>| table.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>();
        assert_eq!(walked(&table), [(1, 10), (3, 30), (5, 50), (9, 90)]);
        assert_eq!(table.remove(&3), Some(30));
        assert_eq!(table.remove(&3), None);
        table.insert(2, 7);
        table.insert(9, 1);
        *table.entry(4).or_default() += 2;
        *table.entry(5).or_default() += 2;
        assert_eq!(walked(&table), [(1, 10), (2, 7), (4, 2), (5, 52), (9, 1)]);
        assert_eq!(
            (table.len(), table.get(&2), table.get(&3)),
            (5, Some(&7), None)
        );
    }

    #[test]
    fn what_is_left_after_many_have_gone_takes_little_room() {
        let mut table = table(&(0..10_000).collect::<Vec<_>>());
        table.retain(|key, _| key % 1000 == 7);
        assert_eq!(table.keys().copied().collect::<Vec<_>>().len(), 10);
        assert_eq!(table.get(&7007), Some(&70_070));
        assert!(table.values.capacity() < 100 && table.places.capacity() < 100);
        table.insert(1, 1);
        assert_eq!(table.keys().next(), Some(&1));
    }

    #[test]
    fn what_is_kept_in_brief_goes_where_its_value_goes() {
        let mut table: Table<u64, u64, u64> = Table::default();
        for key in 0..1000 {
            let (value, brief) = table.entry(key).both();
            (*value, *brief) = (key * 10, key);
        }
        table.remove(&3);
        assert_eq!((table.brief(&3), table.brief(&4)), (None, Some(&4)));
        assert_eq!(*table.entry(3).brief(), 0);
        table.retain(|key, _| key % 100 == 7);
        let mut left: Vec<(u64, u64)> = table.briefs().map(|(k, b)| (*k, *b)).collect();
        left.sort_unstable();
        assert_eq!(
            left,
            (7..1000).step_by(100).map(|k| (k, k)).collect::<Vec<_>>()
        );
        assert!(
            left.iter()
                .all(|(key, _)| table.get(key) == Some(&(key * 10)))
        );
    }

    #[test]
    fn places_are_used_again() {
        let mut table = table(&[1, 2, 3]);
        for key in 10..1000 {
            table.remove(&(key - 9));
            table.remove(&(key - 1));
            table.insert(key, key);
        }
        assert!(table.values.len() <= 4, "{}", table.values.len());
    }
}
