//! Maps from names to ids, and sets of markets. No caller iterates them where the order could be seen.

use crate::types::units::MarketId;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by id. Ids are dense numbers, so one multiplication spreads them well enough.
pub(crate) type Table<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A map by a name, which an attacker may choose. Its hash is seeded anew in each process.
pub(crate) type ByName<K, V> = HashMap<K, V, foldhash::quality::RandomState>;

#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A few markets in the order in which they were opened.
#[derive(Debug, Default)]
pub(crate) struct MarketSet(Vec<MarketId>);

impl MarketSet {
    pub(crate) fn insert(&mut self, market: MarketId) {
        if let Err(at) = self.0.binary_search(&market) {
            self.0.insert(at, market);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = MarketId> {
        self.0.iter().copied()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes the market that was opened first, and returns it.
    pub(crate) fn pop_first(&mut self) -> Option<MarketId> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    pub(crate) fn take(&mut self) -> Vec<MarketId> {
        std::mem::take(&mut self.0)
    }
}
