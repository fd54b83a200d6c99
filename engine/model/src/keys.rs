//! Client keys: the same command sent twice is executed once (R16).

use kubebid_core::Reject;
use kubebid_core::answer::Outcome;
use kubebid_core::command::{Command, KeySpace};
use kubebid_core::units::{AccountId, ClientKey, Micros, Seq};
use std::collections::{BTreeMap, VecDeque};

const LIFE: Micros = Micros::DAY;
const MOST_OF_ONE_ACCOUNT: usize = 1_000_000;
/// Keys of funds have no life, so that no retry funds twice.
const MOST_OF_FUNDS: usize = 1_000;

/// The used keys by account and space, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(BTreeMap<(AccountId, KeySpace), VecDeque<Used>>);

#[derive(Clone, Debug)]
struct Used {
    key: ClientKey,
    command: Command,
    at: Micros,
    seq: Seq,
    refusal: Option<Reject>,
}

impl Used {
    fn lives(&self, space: KeySpace, now: Micros) -> bool {
        space == KeySpace::Funds || now < self.at.after(LIFE)
    }
}

impl Keys {
    /// Returns the answer to a command whose key is known.
    pub(crate) fn recall(
        &self,
        account: AccountId,
        key: &ClientKey,
        command: &Command,
        now: Micros,
    ) -> Option<Outcome> {
        let space = command.key_space();
        let mut keys = self.0.get(&(account, space))?.iter();
        let used = keys.find(|used| used.key == *key && used.lives(space, now))?;
        Some(if used.command == *command {
            Outcome::Repeated { first: used.seq, refusal: used.refusal }
        } else {
            Outcome::Rejected(Reject::KeyConflict)
        })
    }

    /// Stores a key with its answer, also if the command was refused.
    pub(crate) fn remember(
        &mut self,
        account: AccountId,
        key: &ClientKey,
        command: &Command,
        now: Micros,
        seq: Seq,
        outcome: Outcome,
    ) {
        let refusal = match outcome {
            Outcome::Rejected(reason) => Some(reason),
            Outcome::Accepted | Outcome::Repeated { .. } => None,
        };
        let space = command.key_space();
        let most = match space {
            KeySpace::Account => MOST_OF_ONE_ACCOUNT,
            KeySpace::Funds => MOST_OF_FUNDS,
        };
        let used = self.0.entry((account, space)).or_default();
        used.push_back(Used { key: key.clone(), command: command.clone(), at: now, seq, refusal });
        while used.len() > most || used.front().is_some_and(|used| !used.lives(space, now)) {
            used.pop_front();
        }
    }
}
