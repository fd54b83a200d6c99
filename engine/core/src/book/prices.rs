//! Prices in order, each with a value: sorted leaves under one sorted row of their first prices. Wide
//! leaves cost few misses of the cache, which is what a lookup among many prices is made of.

use crate::money::Price;

/// How many prices a leaf has room for.
const LEAF: usize = 128;

#[derive(Debug)]
pub(crate) struct PriceMap<V> {
    /// The first price of each leaf.
    firsts: Vec<Price>,
    /// Only the last one that is left may be empty.
    leaves: Vec<Leaf<V>>,
}

#[derive(Debug)]
struct Leaf<V> {
    prices: Vec<Price>,
    values: Vec<V>,
}

impl<V> Default for PriceMap<V> {
    fn default() -> PriceMap<V> {
        PriceMap { firsts: Vec::new(), leaves: Vec::new() }
    }
}

impl<V: Copy> PriceMap<V> {
    /// The leaf that has a price, or would have it.
    fn leaf_of(&self, price: Price) -> usize {
        self.firsts.partition_point(|first| *first <= price).saturating_sub(1)
    }

    pub(crate) fn get_mut(&mut self, price: Price) -> Option<&mut V> {
        let index = self.leaf_of(price);
        let leaf = self.leaves.get_mut(index)?;
        let at = leaf.prices.binary_search(&price).ok()?;
        Some(&mut leaf.values[at])
    }

    /// The value of a price; of one that is not there yet, what `new` makes.
    pub(crate) fn or_insert_with(&mut self, price: Price, new: impl FnOnce() -> V) -> &mut V {
        if self.leaves.is_empty() {
            self.firsts.push(price);
            self.leaves.push(Leaf::with(&[], &[]));
        }
        let mut index = self.leaf_of(price);
        let mut at = match self.leaves[index].prices.binary_search(&price) {
            Ok(at) => return &mut self.leaves[index].values[at],
            Err(at) => at,
        };
        if self.leaves[index].prices.len() == LEAF {
            self.split(index);
            if at > LEAF / 2 {
                (index, at) = (index + 1, at - LEAF / 2);
            }
        }
        let leaf = &mut self.leaves[index];
        leaf.prices.insert(at, price);
        leaf.values.insert(at, new());
        self.firsts[index] = leaf.prices[0];
        &mut leaf.values[at]
    }

    fn split(&mut self, index: usize) {
        let leaf = &mut self.leaves[index];
        let upper = Leaf::with(&leaf.prices[LEAF / 2..], &leaf.values[LEAF / 2..]);
        leaf.prices.truncate(LEAF / 2);
        leaf.values.truncate(LEAF / 2);
        self.firsts.insert(index + 1, upper.prices[0]);
        self.leaves.insert(index + 1, upper);
    }

    pub(crate) fn remove(&mut self, price: Price) -> Option<V> {
        let index = self.leaf_of(price);
        let leaf = self.leaves.get_mut(index)?;
        let at = leaf.prices.binary_search(&price).ok()?;
        leaf.prices.remove(at);
        let value = leaf.values.remove(at);
        if let Some(first) = leaf.prices.first() {
            self.firsts[index] = *first;
        }
        self.tidy(index);
        Some(value)
    }

    /// Joins a leaf that has become small with the next one, if that is small too.
    fn tidy(&mut self, index: usize) {
        let small = self.leaves[index].prices.len();
        if small == 0 && self.leaves.len() > 1 {
            self.leaves.remove(index);
            self.firsts.remove(index);
        } else if let Some(next) = self.leaves.get(index + 1)
            && small + next.prices.len() <= LEAF / 2
        {
            let next = self.leaves.remove(index + 1);
            self.firsts.remove(index + 1);
            self.leaves[index].prices.extend(next.prices);
            self.leaves[index].values.extend(next.values);
        }
    }

    pub(crate) fn first(&self) -> Option<(Price, V)> {
        self.iter().next()
    }

    pub(crate) fn last(&self) -> Option<(Price, V)> {
        let leaf = self.leaves.last()?;
        Some((*leaf.prices.last()?, *leaf.values.last()?))
    }

    /// The highest that is at most `limit`.
    pub(crate) fn at_most(&self, limit: Price) -> Option<(Price, V)> {
        let leaf = self.leaves.get(self.leaf_of(limit))?;
        let at = leaf.prices.partition_point(|price| *price <= limit).checked_sub(1)?;
        Some((leaf.prices[at], leaf.values[at]))
    }

    /// Lowest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (Price, V)> {
        let leaves = self.leaves.iter();
        leaves.flat_map(|leaf| leaf.prices.iter().copied().zip(leaf.values.iter().copied()))
    }
}

impl<V: Copy> Leaf<V> {
    fn with(prices: &[Price], values: &[V]) -> Leaf<V> {
        let mut leaf = Leaf { prices: Vec::with_capacity(LEAF), values: Vec::with_capacity(LEAF) };
        leaf.prices.extend_from_slice(prices);
        leaf.values.extend_from_slice(values);
        leaf
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_price_map_is_a_map_in_order() {
        let mut random = crate::random::below(11);
        for range in [10, 1000, 100_000] {
            let (mut map, mut naive) = (PriceMap::default(), BTreeMap::new());
            for step in 0..20_000u64 {
                let price = Price(random(range));
                // Fills at first, empties later.
                if random(3) > u64::from(step > 10_000) {
                    *map.or_insert_with(price, || 0) += step;
                    *naive.entry(price).or_insert(0) += step;
                } else {
                    assert_eq!(map.remove(price), naive.remove(&price));
                }
                let limit = Price(random(range));
                assert_eq!(map.get_mut(limit).copied(), naive.get(&limit).copied());
                let at_most = naive.range(..=limit).next_back().map(|(p, v)| (*p, *v));
                assert_eq!(map.at_most(limit), at_most);
                assert_eq!(map.first(), naive.first_key_value().map(|(p, v)| (*p, *v)));
                assert_eq!(map.last(), naive.last_key_value().map(|(p, v)| (*p, *v)));
            }
            assert!(map.iter().eq(naive.iter().map(|(p, v)| (*p, *v))));
            assert!(map.iter().rev().eq(naive.iter().rev().map(|(p, v)| (*p, *v))));
        }
    }
}
