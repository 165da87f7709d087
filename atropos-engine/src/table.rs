//! A map that is found in like a hash table, and walked in the order of its keys.
//!
//! No answer of the engine may depend on a hash seed or a machine: the hash is a fixed one, and its own order is never
//! walked. Places are used again, so that what comes and goes allocates nothing; the order is sorted out when it is asked
//! for, which is at ticks and not at events.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Index;
use std::sync::OnceLock;

use rustc_hash::FxBuildHasher;

/// Fewer places than this are kept, however few are in use.
const KEPT_PLACES: usize = 64;

/// The map.
#[derive(Clone, Debug)]
pub(super) struct Table<K, V> {
    places: HashMap<K, usize, FxBuildHasher>,
    entries: Vec<Option<(K, V)>>,
    free: Vec<usize>,
    /// Keys in order with their places; unset since something was added or removed.
    order: OnceLock<Vec<(K, usize)>>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            places: HashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            order: OnceLock::new(),
        }
    }
}

impl<K: Copy + Ord + Hash, V> Table<K, V> {
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
        self.entries[place].take().map(|(_, value)| value)
    }

    /// Drops one where it is: nothing large is moved.
    pub(super) fn discard(&mut self, key: &K) {
        if let Some(place) = self.vacate(key) {
            self.entries[place] = None;
        }
    }

    fn vacate(&mut self, key: &K) -> Option<usize> {
        let place = self.places.remove(key)?;
        self.order.take();
        self.free.push(place);
        Some(place)
    }

    /// The place of a key: it finds the value without a search until something is removed.
    pub(super) fn place_of(&self, key: &K) -> Option<usize> {
        self.places.get(key).copied()
    }

    /// Whether this key is in that place.
    pub(super) fn is_at(&self, place: usize, key: &K) -> bool {
        let entry = self.entries.get(place).and_then(Option::as_ref);
        entry.is_some_and(|(known, _)| known == key)
    }

    /// The value in a place.
    pub(super) fn at(&self, place: usize) -> Option<&V> {
        self.entries[place].as_ref().map(|(_, value)| value)
    }

    /// The value in a place, to be changed.
    pub(super) fn at_mut(&mut self, place: usize) -> Option<&mut V> {
        self.entries[place].as_mut().map(|(_, value)| value)
    }

    /// The place of a key, to be filled if it is empty.
    pub(super) fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        Entry { table: self, key }
    }

    /// All, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let order = self.order.get_or_init(|| self.sorted());
        order.iter().filter_map(|(_, place)| {
            let (key, value) = self.entries[*place].as_ref()?;
            Some((key, value))
        })
    }

    /// All, in no order that means anything: for what does not depend on one, at no cost of sorting.
    pub(super) fn iter_any(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries
            .iter()
            .flatten()
            .map(|(key, value)| (key, value))
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
        self.entries.iter_mut().flatten().map(|(_, value)| value)
    }

    /// Keeps those that `keep` wants; it is asked for each by itself. Gives memory back if few are left of many.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for (place, entry) in self.entries.iter_mut().enumerate() {
            if let Some((key, value)) = entry
                && !keep(key, value)
            {
                self.places.remove(key);
                self.free.push(place);
                self.order.take();
                *entry = None;
            }
        }
        self.give_back();
    }

    /// Gives memory back if few are left of many.
    pub(super) fn give_back(&mut self) {
        if self.entries.len() <= KEPT_PLACES || self.len() * 4 >= self.entries.len() {
            return;
        }
        let entries = std::mem::take(self).entries;
        for (key, value) in entries.into_iter().flatten() {
            self.add(key, value);
        }
    }

    fn add(&mut self, key: K, value: V) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[place] = Some((key, value));
        self.places.insert(key, place);
        self.order.take();
        place
    }

    fn sorted(&self) -> Vec<(K, usize)> {
        let places = self.entries.iter().enumerate();
        let mut order: Vec<(K, usize)> = places
            .filter_map(|(place, entry)| entry.as_ref().map(|(key, _)| (*key, place)))
            .collect();
        order.sort_unstable_by_key(|(key, _)| *key);
        order
    }
}

impl<K: Copy + Ord + Hash, V> Index<&K> for Table<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key)
            .expect("whoever indexes knows that it is there")
    }
}

/// The place of a key.
pub(super) struct Entry<'a, K, V> {
    table: &'a mut Table<K, V>,
    key: K,
}

impl<'a, K: Copy + Ord + Hash, V: Default> Entry<'a, K, V> {
    /// The value, the default one if there was none.
    pub(super) fn or_default(mut self) -> &'a mut V {
        let place = self.place();
        let Self { table, key } = self;
        let (_, value) = table.entries[place].get_or_insert_with(|| (key, V::default()));
        value
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
        assert!(table.entries.capacity() < 100 && table.places.capacity() < 100);
        table.insert(1, 1);
        assert_eq!(table.keys().next(), Some(&1));
    }

    #[test]
    fn places_are_used_again() {
        let mut table = table(&[1, 2, 3]);
        for key in 10..1000 {
            table.remove(&(key - 9));
            table.remove(&(key - 1));
            table.insert(key, key);
        }
        assert!(table.entries.len() <= 4, "{}", table.entries.len());
    }
}
