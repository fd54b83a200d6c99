//! Idempotency keys (R16): the first answer to a client's key. An account's own keys are kept for 24 hours of market
//! time, at most a million of them. Of its keys of funds the last thousand are kept, however old they are.

use crate::answer::Outcome;
use crate::codec::Content;
use crate::collections::slab::Slab;
use crate::types::reject::Reject;
use crate::types::units::{ClientKey, Micros, Seq};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::hash::BuildHasher;

const LIFE: Micros = Micros::DAY;
const MOST: usize = 1_000_000;
const MOST_OF_FUNDS: usize = 1_000;
/// The number of forgotten keys that are removed from the table together. Each is somewhere else in
/// memory, and reading many at once costs one wait.
const OUT_TOGETHER: usize = 64;

#[derive(Debug)]
pub(crate) struct Keys {
    /// The time for which a key is kept.
    life: Micros,
    /// The number of keys that are kept.
    most: usize,
    used: Slab<Used>,
    /// The keys, the oldest first.
    by_age: VecDeque<KeyHandle>,
    /// Keys that are forgotten but still in the table.
    forgotten: Vec<KeyHandle>,
    table: HashTable<KeyHandle>,
    /// An attacker may choose keys, so their hash is seeded anew in each process.
    hasher: RandomState,
}

#[derive(Debug)]
struct Used {
    at: Micros,
    key: ClientKey,
    first: First,
    forgotten: bool,
}

/// Handle of a key. It is so small that a million of them can be moved to a larger table within
/// milliseconds, without reading the keys.
#[derive(Clone, Copy, Debug)]
struct KeyHandle {
    /// A part of the key's hash.
    hash: u32,
    /// The slot of the key in the slab.
    slot: u32,
}

/// The first use of a key, and the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    pub(crate) seq: Seq,
    pub(crate) content: Content,
    pub(crate) refusal: Option<Reject>,
}

impl First {
    pub(crate) fn of(seq: Seq, content: Content, outcome: Outcome) -> First {
        let refusal = match outcome {
            Outcome::Rejected(reject) => Some(reject),
            Outcome::Accepted | Outcome::Repeated { .. } => None,
        };
        First { seq, content, refusal }
    }
}

impl Default for Keys {
    /// Returns the keys of an account's own commands, of which there are none.
    fn default() -> Keys {
        Keys::new(LIFE, MOST)
    }
}

impl Keys {
    /// Returns the keys of the commands that fund an account, of which there are none (R19).
    pub(crate) fn of_funds() -> Keys {
        Keys::new(Micros(u64::MAX), MOST_OF_FUNDS)
    }

    fn new(life: Micros, most: usize) -> Keys {
        Keys {
            life,
            most,
            used: Slab::default(),
            by_age: VecDeque::new(),
            forgotten: Vec::new(),
            table: HashTable::new(),
            hasher: RandomState::default(),
        }
    }

    /// Returns the first use of a key, and forgets keys that are too old at `now`.
    pub(crate) fn find(&mut self, key: &ClientKey, now: Micros) -> Option<First> {
        while self.by_age.front().is_some_and(|oldest| self.used[oldest.slot].at.after(self.life) <= now) {
            self.forget_oldest();
        }
        self.used(key).map(|used| used.first)
    }

    /// Returns true if a command with this key was answered and is not forgotten.
    pub(crate) fn knows(&self, key: &ClientKey) -> bool {
        self.used(key).is_some()
    }

    fn used(&self, key: &ClientKey) -> Option<&Used> {
        let hash = self.hash(key);
        let is_it = |used: &Used| !used.forgotten && used.key == *key;
        let handle =
            self.table.find(spread(hash), |found| found.hash == hash && is_it(&self.used[found.slot]));
        handle.map(|found| &self.used[found.slot])
    }

    /// Adds a key that is not known.
    pub(crate) fn remember(&mut self, key: ClientKey, now: Micros, first: First) {
        let hash = self.hash(&key);
        let handle = KeyHandle { hash, slot: self.used.put(Used { at: now, key, first, forgotten: false }) };
        self.table.insert_unique(spread(hash), handle, |handle| spread(handle.hash));
        self.by_age.push_back(handle);
        if self.by_age.len() > self.most {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.by_age.pop_front() else { return };
        self.used[oldest.slot].forgotten = true;
        self.forgotten.push(oldest);
        if self.forgotten.len() < OUT_TOGETHER {
            return;
        }
        for gone in &self.forgotten {
            let found = self.table.find_entry(spread(gone.hash), |found| found.slot == gone.slot);
            found.expect("what is forgotten is in the table").remove();
        }
        self.forgotten.drain(..).for_each(|gone| self.used.free(gone.slot));
    }

    /// Returns all keys with their first use, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Micros, &ClientKey, First)> {
        self.by_age.iter().map(|found| {
            let Used { at, key, first, .. } = &self.used[found.slot];
            (*at, key, *first)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.by_age.len()
    }

    fn hash(&self, key: &ClientKey) -> u32 {
        // Half of the hash is enough. Keys with the same half are distinguished by the keys
        // themselves.
        (self.hasher.hash_one(key) >> 32) as u32
    }
}

/// Spreads a hash, because the table uses the lowest and the highest bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_million_of_a_day_is_known_by_all_that_was_answered() {
        let mut keys = Keys::default();
        let key = |n: u64| ClientKey::new(&format!("key {n}"));
        let first = |n: u64| First { seq: Seq(n), content: Content(u128::from(n) << 64), refusal: None };
        let most = MOST as u64;
        for n in 0..most + 1_000 {
            assert!(keys.find(&key(n), Micros(n)).is_none());
            keys.remember(key(n), Micros(n), first(n));
        }
        assert_eq!(keys.len(), MOST);
        assert!(!keys.knows(&key(999)) && keys.knows(&key(1_000)));
        let all = keys.iter().map(|(at, known, first)| (at, known.clone(), first.seq));
        assert!(all.eq((1_000..most + 1_000).map(|n| (Micros(n), key(n), Seq(n)))));
        let late = Micros(most).after(LIFE);
        assert_eq!(keys.find(&key(most + 1), late).unwrap().content, Content(u128::from(most + 1) << 64));
        assert!(keys.find(&key(most), late).is_none());
        assert_eq!(keys.len(), 999);
        // The key was forgotten and is known again. Its old entry in the table has no effect.
        keys.remember(key(most), late, first(7));
        assert_eq!(keys.find(&key(most), late).unwrap().seq, Seq(7));
    }
}
