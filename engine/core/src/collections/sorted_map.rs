//! A sorted map: sorted leaves under one sorted array of their first keys. Wide leaves cost few cache misses.

#[derive(Debug)]
pub(crate) struct SortedMap<K, V> {
    /// The first key of each leaf.
    firsts: Vec<K>,
    /// Only a last remaining leaf may be empty.
    leaves: Vec<Leaf<K, V>>,
    len: usize,
}

#[derive(Debug)]
struct Leaf<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> SortedMap<K, V> {
        SortedMap { firsts: Vec::new(), leaves: Vec::new(), len: 0 }
    }
}

impl<K: Copy + Ord, V: Copy> SortedMap<K, V> {
    /// The number of keys in a leaf, which is a kilobyte of them.
    const LEAF: usize = 1024 / size_of::<K>();

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the leaf that has a key, or would have it.
    fn leaf_of(&self, key: K) -> usize {
        match self.firsts.len() {
            0 | 1 => 0,
            _ => self.firsts.partition_point(|first| *first <= key).saturating_sub(1),
        }
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let index = self.leaf_of(key);
        let leaf = self.leaves.get_mut(index)?;
        let at = leaf.keys.binary_search(&key).ok()?;
        Some(&mut leaf.values[at])
    }

    /// Returns the value of a key. A key that is missing is added with the value that `new` makes.
    pub(crate) fn or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        if self.leaves.is_empty() {
            self.firsts.push(key);
            self.leaves.push(Leaf { keys: Vec::new(), values: Vec::new() });
        }
        let mut index = self.leaf_of(key);
        let mut at = match self.leaves[index].keys.binary_search(&key) {
            Ok(at) => return &mut self.leaves[index].values[at],
            Err(at) => at,
        };
        if self.leaves[index].keys.len() == Self::LEAF {
            self.split(index);
            if at > Self::LEAF / 2 {
                (index, at) = (index + 1, at - Self::LEAF / 2);
            }
        }
        self.len += 1;
        let leaf = &mut self.leaves[index];
        leaf.keys.insert(at, key);
        leaf.values.insert(at, new());
        self.firsts[index] = leaf.keys[0];
        &mut leaf.values[at]
    }

    /// Sets the value of a key. Returns the previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.len;
        let place = self.or_insert_with(key, || value);
        let old = std::mem::replace(place, value);
        (self.len == before).then_some(old)
    }

    fn split(&mut self, index: usize) {
        let leaf = &mut self.leaves[index];
        let mut upper = Leaf { keys: Vec::with_capacity(Self::LEAF), values: Vec::with_capacity(Self::LEAF) };
        upper.keys.extend(leaf.keys.drain(Self::LEAF / 2..));
        upper.values.extend(leaf.values.drain(Self::LEAF / 2..));
        self.firsts.insert(index + 1, upper.keys[0]);
        self.leaves.insert(index + 1, upper);
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let index = self.leaf_of(key);
        let leaf = self.leaves.get_mut(index)?;
        let at = leaf.keys.binary_search(&key).ok()?;
        leaf.keys.remove(at);
        let value = leaf.values.remove(at);
        if let Some(first) = leaf.keys.first() {
            self.firsts[index] = *first;
        }
        self.len -= 1;
        self.tidy(index);
        Some(value)
    }

    /// Joins a leaf that has become small with the next one, if that is small too.
    fn tidy(&mut self, index: usize) {
        let small = self.leaves[index].keys.len();
        if small == 0 && self.leaves.len() > 1 {
            self.leaves.remove(index);
            self.firsts.remove(index);
        } else if let Some(next) = self.leaves.get(index + 1)
            && small + next.keys.len() <= Self::LEAF / 2
        {
            let next = self.leaves.remove(index + 1);
            self.firsts.remove(index + 1);
            self.leaves[index].keys.extend(next.keys);
            self.leaves[index].values.extend(next.values);
        }
    }

    pub(crate) fn first(&self) -> Option<(K, V)> {
        let leaf = self.leaves.first()?;
        Some((*leaf.keys.first()?, *leaf.values.first()?))
    }

    pub(crate) fn last(&self) -> Option<(K, V)> {
        let leaf = self.leaves.last()?;
        Some((*leaf.keys.last()?, *leaf.values.last()?))
    }

    /// Returns the highest entry whose key is at most `limit`.
    pub(crate) fn at_most(&self, limit: K) -> Option<(K, V)> {
        let leaf = self.leaves.get(self.leaf_of(limit))?;
        let at = leaf.keys.partition_point(|key| *key <= limit).checked_sub(1)?;
        Some((leaf.keys[at], leaf.values[at]))
    }

    /// Returns the entries with keys of at least `least`, the lowest first.
    pub(crate) fn at_least(&self, least: K) -> impl Iterator<Item = (K, V)> {
        let index = self.leaf_of(least);
        let skipped = self.leaves.get(index).map_or(0, |leaf| leaf.keys.partition_point(|key| *key < least));
        self.leaves.get(index..).unwrap_or_default().iter().flat_map(Leaf::iter).skip(skipped)
    }

    /// Returns all entries, the lowest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (K, V)> {
        self.leaves.iter().flat_map(Leaf::iter)
    }
}

impl<K: Copy + Ord> SortedMap<K, u64> {
    /// Adds one to the count of a key.
    pub(crate) fn count(&mut self, key: K) {
        *self.or_insert_with(key, || 0) += 1;
    }

    /// Takes one from the count of a key, and removes the key when its count is 0.
    pub(crate) fn discount(&mut self, key: K) {
        let count = self.get_mut(key).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            self.remove(key);
        }
    }
}

impl<K: Copy, V: Copy> Leaf<K, V> {
    fn iter(&self) -> impl DoubleEndedIterator<Item = (K, V)> {
        self.keys.iter().copied().zip(self.values.iter().copied())
    }
}

/// A sorted set.
#[derive(Debug)]
pub(crate) struct SortedSet<K>(SortedMap<K, ()>);

impl<K> Default for SortedSet<K> {
    fn default() -> SortedSet<K> {
        SortedSet(SortedMap::default())
    }
}

impl<K: Copy + Ord> SortedSet<K> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, key: K) {
        self.0.insert(key, ());
    }

    /// Removes a key. Returns true if the set had it.
    pub(crate) fn remove(&mut self, key: K) -> bool {
        self.0.remove(key).is_some()
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.0.at_most(key).is_some_and(|(found, ())| found == key)
    }

    pub(crate) fn first(&self) -> Option<K> {
        self.0.first().map(|(key, ())| key)
    }

    pub(crate) fn last(&self) -> Option<K> {
        self.0.last().map(|(key, ())| key)
    }

    /// Returns all keys, the lowest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = K> {
        self.0.iter().map(|(key, ())| key)
    }
}

impl<K: Copy + Ord> FromIterator<K> for SortedSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> SortedSet<K> {
        let mut set = SortedSet::default();
        for key in keys {
            set.insert(key);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_sorted_map_is_a_map_in_order() {
        let mut random = crate::collections::random::below(11);
        for range in [10, 1000, 100_000] {
            let (mut map, mut naive) = (SortedMap::default(), BTreeMap::new());
            for step in 0..20_000u64 {
                let price = random(range);
                // The map grows at first, and shrinks later.
                if random(3) > u64::from(step > 10_000) {
                    *map.or_insert_with(price, || 0) += step;
                    *naive.entry(price).or_insert(0) += step;
                } else {
                    assert_eq!(map.remove(price), naive.remove(&price));
                }
                let limit = random(range);
                assert_eq!(map.get_mut(limit).copied(), naive.get(&limit).copied());
                let at_most = naive.range(..=limit).next_back().map(|(p, v)| (*p, *v));
                assert_eq!(map.at_most(limit), at_most);
                assert!(map.at_least(limit).take(3).eq(naive.range(limit..).take(3).map(|(p, v)| (*p, *v))));
                assert_eq!((map.len(), map.is_empty()), (naive.len(), naive.is_empty()));
                assert_eq!(map.first(), naive.first_key_value().map(|(p, v)| (*p, *v)));
                assert_eq!(map.last(), naive.last_key_value().map(|(p, v)| (*p, *v)));
            }
            assert!(map.iter().eq(naive.iter().map(|(p, v)| (*p, *v))));
            assert!(map.iter().rev().eq(naive.iter().rev().map(|(p, v)| (*p, *v))));
        }
    }
}
