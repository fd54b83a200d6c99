//! A map from consecutive numbers to values: a lookup reads two words of memory.

use crate::collections::slab::Slab;
use crate::types::units::{AllocationId, BidId};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Index;

/// A number that is assigned once, in rising order.
pub(crate) trait Number: Copy {
    fn of(number: u64) -> Self;
    fn number(self) -> u64;
}

/// A slot for each number. It costs four bytes for each number between the first and the last one that
/// have a slot.
#[derive(Debug)]
pub(crate) struct SlotIndex<K> {
    /// The number whose slot comes first.
    base: u64,
    places: VecDeque<u32>,
    numbers: PhantomData<K>,
}

/// The mark of a number without a slot.
pub(crate) const NONE: u32 = u32::MAX;

impl<K> Default for SlotIndex<K> {
    fn default() -> SlotIndex<K> {
        SlotIndex { base: 0, places: VecDeque::new(), numbers: PhantomData }
    }
}

impl<K: Number> SlotIndex<K> {
    fn at(&self, key: K) -> Option<usize> {
        usize::try_from(key.number().checked_sub(self.base)?).ok()
    }

    pub(crate) fn get(&self, key: K) -> Option<u32> {
        self.places.get(self.at(key)?).copied().filter(|place| *place != NONE)
    }

    /// Adds a number after all others.
    pub(crate) fn push(&mut self, key: K, place: u32) {
        if self.places.is_empty() {
            self.base = key.number();
        }
        let at = usize::try_from(key.number() - self.base).expect("numbers rise");
        debug_assert!(at >= self.places.len(), "numbers rise");
        if at > self.places.len() {
            self.places.resize(at, NONE);
        }
        self.places.push_back(place);
    }

    /// Sets another slot for a number that has one.
    pub(crate) fn move_to(&mut self, key: K, place: u32) {
        let at = self.at(key).expect("a number that has a place");
        self.places[at] = place;
    }

    fn remove(&mut self, key: K) {
        self.move_to(key, NONE);
        while self.places.front() == Some(&NONE) {
            self.places.pop_front();
            self.base += 1;
        }
    }

    /// Returns the numbers above `key` in order, with their slots.
    pub(crate) fn iter_after(&self, key: K) -> impl Iterator<Item = (K, u32)> {
        let first = self.at(key).map_or(0, |at| at + 1).min(self.places.len());
        let numbered = self.places.range(first..).copied().zip(self.base + first as u64..);
        numbered.filter(|(place, _)| *place != NONE).map(|(place, number)| (K::of(number), place))
    }

    /// Returns all numbers in order, with their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, u32)> {
        let numbered = self.places.iter().copied().zip(self.base..);
        numbered.filter(|(place, _)| *place != NONE).map(|(place, number)| (K::of(number), place))
    }
}

/// Values by number.
#[derive(Debug)]
pub(crate) struct DenseMap<K, V> {
    places: SlotIndex<K>,
    things: Slab<V>,
    len: usize,
}

impl<K, V> Default for DenseMap<K, V> {
    fn default() -> DenseMap<K, V> {
        DenseMap { places: SlotIndex::default(), things: Slab::default(), len: 0 }
    }
}

impl<K: Number, V> DenseMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.places.get(key).map(|place| &self.things[place])
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.places.get(key).map(|place| &mut self.things[place])
    }

    /// Adds a value with a number after all others.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let place = self.things.put(value);
        self.places.push(key, place);
        self.len += 1;
    }

    /// Returns all values in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.places.iter().map(|(key, place)| (key, &self.things[place]))
    }

    /// Returns the values with numbers above `key`, in order.
    pub(crate) fn iter_after(&self, key: K) -> impl Iterator<Item = (K, &V)> {
        self.places.iter_after(key).map(|(key, place)| (key, &self.things[place]))
    }
}

impl<K: Number, V: Copy> DenseMap<K, V> {
    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let place = self.places.get(key)?;
        self.places.remove(key);
        self.things.free(place);
        self.len -= 1;
        Some(self.things[place])
    }
}

impl<K: Number, V> Index<K> for DenseMap<K, V> {
    type Output = V;

    fn index(&self, key: K) -> &V {
        self.get(key).expect("a number that is there")
    }
}

impl<K: Number, V> FromIterator<(K, V)> for DenseMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(things: I) -> DenseMap<K, V> {
        let mut numbered = DenseMap::default();
        for (key, value) in things {
            numbered.insert(key, value);
        }
        numbered
    }
}

impl Number for BidId {
    fn of(number: u64) -> BidId {
        BidId(number)
    }

    fn number(self) -> u64 {
        self.0
    }
}

impl Number for AllocationId {
    fn of(number: u64) -> AllocationId {
        AllocationId(number)
    }

    fn number(self) -> u64 {
        self.0
    }
}

/// The number of a unit in its offer.
impl Number for u64 {
    fn of(number: u64) -> u64 {
        number
    }

    fn number(self) -> u64 {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_is_numbered_is_a_map_in_order() {
        let mut random = crate::collections::random::below(13);
        let (mut numbered, mut naive, mut last) = (DenseMap::<u64, u64>::default(), BTreeMap::new(), 7);
        for step in 0..10_000u64 {
            if random(5) < 2 {
                last += 1 + random(3);
                numbered.insert(last, step);
                naive.insert(last, step);
            } else {
                let number = random(last + 2);
                assert_eq!(numbered.get(number), naive.get(&number));
                assert_eq!(numbered.remove(number), naive.remove(&number));
            }
            if random(4) == 0
                && let Some((first, _)) = naive.pop_first()
            {
                assert!(numbered.remove(first).is_some());
            }
            assert_eq!(numbered.len(), naive.len());
            assert_eq!(numbered.is_empty(), naive.is_empty());
        }
        assert!(numbered.iter().map(|(k, v)| (k, *v)).eq(naive));
        assert_eq!(numbered.get(u64::MAX), None);
    }
}
