//! Idempotency keys (R16): the first answer to a client's key, for 24 hours of market time or the
//! account's last million.

use crate::answer::Outcome;
use crate::codec::Writer;
use crate::command::Command;
use crate::reject::Reject;
use crate::table::ByName;
use crate::units::{ClientKey, Micros, Seq};
use std::collections::VecDeque;

const LIFE: Micros = Micros::DAY;
const MOST: usize = 1_000_000;

#[derive(Debug, Default)]
pub(crate) struct Keys {
    firsts: ByName<ClientKey, First>,
    by_age: VecDeque<(Micros, ClientKey)>,
}

/// What a key was first used for, and what the answer was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    pub(crate) seq: Seq,
    pub(crate) content: u128,
    pub(crate) refusal: Option<Reject>,
}

/// All fields of a command but its time and key, as a fingerprint.
pub(crate) fn content(command: &Command) -> u128 {
    let mut writer = Writer::with_capacity(256);
    writer.command(command);
    xxhash_rust::xxh3::xxh3_128(writer.bytes())
}

impl First {
    pub(crate) fn of(seq: Seq, command: &Command, outcome: Outcome) -> First {
        let refusal = match outcome {
            Outcome::Rejected(reject) => Some(reject),
            Outcome::Accepted | Outcome::Repeated { .. } => None,
        };
        First { seq, content: content(command), refusal }
    }
}

impl Keys {
    /// What the key is known for at `now`; forgets what has grown too old.
    pub(crate) fn find(&mut self, key: &ClientKey, now: Micros) -> Option<First> {
        while self.by_age.front().is_some_and(|(at, _)| at.after(LIFE) <= now) {
            self.forget_oldest();
        }
        self.firsts.get(key).copied()
    }

    /// Whether a command with this key was answered, as far as that is remembered.
    pub(crate) fn knows(&self, key: &ClientKey) -> bool {
        self.firsts.contains_key(key)
    }

    pub(crate) fn remember(&mut self, key: ClientKey, now: Micros, first: First) {
        self.firsts.insert(key.clone(), first);
        self.by_age.push_back((now, key));
        if self.by_age.len() > MOST {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.by_age.pop_front() {
            self.firsts.remove(&key);
        }
    }

    /// All that is remembered, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Micros, &ClientKey, First)> {
        self.by_age.iter().map(|(at, key)| (*at, key, self.firsts[key]))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_age.len()
    }
}
