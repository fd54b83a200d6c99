//! Counts each account's open bids and the nodes they want, from the commit feed. Room for commands in flight is
//! reserved, so that concurrent requests cannot exceed a limit together.

use crate::events::commit::Commit;
use crate::lifecycle::engine::Engine;
use crate::runtime::intake::SubmitError;
use kubebid_core::account_usage::AccountUsage;
use kubebid_core::units::AccountName;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::broadcast::error::RecvError;

/// The open bids of each account and the nodes they want. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Usage(Arc<Mutex<Table>>);

/// Bids and nodes: counted, wanted, or allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The number of bids.
    pub bids: u64,
    /// The number of nodes.
    pub nodes: u64,
}

#[derive(Debug, Default)]
struct Table {
    /// The last command whose commit is counted.
    counted: u64,
    accounts: BTreeMap<AccountName, Account>,
    /// Executed commands that are not counted yet, by number.
    stamped: BTreeMap<u64, (AccountName, Room)>,
}

#[derive(Debug, Default)]
struct Account {
    counted: Room,
    on_the_way: Room,
}

/// Room that is set aside for commands on their way. It is given back when this value is dropped.
#[derive(Debug)]
pub struct Reservation {
    usage: Usage,
    account: AccountName,
    room: Room,
}

impl Usage {
    /// Counts what every account has open, and keeps counting from the commits.
    pub async fn follow(engine: &Engine) -> Result<Usage, SubmitError> {
        let usage = Usage::default();
        let mut feed = engine.subscribe();
        usage.count_afresh(engine).await?;
        // A strong handle would keep the feed open, and with it this task and the store of a stopped engine.
        let (counting, engine) = (Arc::downgrade(&usage.0), engine.downgrade());
        tokio::spawn(async move {
            loop {
                let received = feed.recv().await;
                let Some(usage) = counting.upgrade().map(Usage) else { return };
                match received {
                    Ok(commit) => usage.table().count(&commit),
                    Err(RecvError::Lagged(_)) => {
                        let Some(engine) = engine.upgrade() else { return };
                        if usage.count_afresh(&engine).await.is_err() && !engine.is_open() {
                            return;
                        }
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
        Ok(usage)
    }

    async fn count_afresh(&self, engine: &Engine) -> Result<(), SubmitError> {
        let (seq, usages) = engine.ask(|exchange| (exchange.seq().0, exchange.account_usages())).await?;
        self.table().begin(seq, usages);
        Ok(())
    }

    /// Returns the open bids of an account and the nodes they want, those of commands in flight included.
    pub fn of(&self, account: &AccountName) -> Room {
        self.table().accounts.get(account).map(Account::has).unwrap_or_default()
    }

    /// Sets `room` aside for an account that may have `most` in all.
    ///
    /// # Errors
    /// What the account has, if that is too much together with `room`.
    pub fn reserve(&self, account: &AccountName, room: Room, most: Room) -> Result<Reservation, Room> {
        let (reservation, refused) = self.reserve_each(account, &[room], most);
        match refused.first() {
            Some((_, has)) => Err(*has),
            None => Ok(reservation),
        }
    }

    /// Works like [`Usage::reserve`], for commands that follow each other. Returns one reservation
    /// for all commands that have room, and the positions of the others, each with what the account
    /// has at that point.
    pub fn reserve_each(
        &self,
        account: &AccountName,
        rooms: &[Room],
        most: Room,
    ) -> (Reservation, Vec<(usize, Room)>) {
        let (mut all, mut refused) = (Room::default(), Vec::new());
        let mut table = self.table();
        let used = table.accounts.entry(account.clone()).or_default();
        let mut has = used.has();
        // A command that asks for nothing more is not refused because the account has too much.
        let too_many = |has: u64, more: u64, most: u64| more > 0 && has.saturating_add(more) > most;
        for (at, room) in rooms.iter().enumerate() {
            if too_many(has.bids, room.bids, most.bids) || too_many(has.nodes, room.nodes, most.nodes) {
                refused.push((at, has));
            } else {
                has.add(*room);
                all.add(*room);
            }
        }
        used.on_the_way.add(all);
        (Reservation { usage: self.clone(), account: account.clone(), room: all }, refused)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Reservation {
    /// Gives back a part of the reservation that is not needed.
    pub fn give_back(&mut self, room: Room) {
        self.room.remove(room);
        self.usage.table().give_back(&self.account, room);
    }

    /// Ends the reservation after the last of its commands was executed under this number. From their
    /// commit on the commands are counted instead.
    pub fn taken(&mut self, seq: u64) {
        let mut table = self.usage.table();
        let room = std::mem::take(&mut self.room);
        if seq > table.counted {
            // Reserved until that commit is counted.
            table.stamped.insert(seq, (self.account.clone(), room));
        } else {
            table.give_back(&self.account, room);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.room != Room::default() {
            self.usage.table().give_back(&self.account, self.room);
        }
    }
}

impl Room {
    fn add(&mut self, other: Room) {
        self.bids = self.bids.saturating_add(other.bids);
        self.nodes = self.nodes.saturating_add(other.nodes);
    }

    fn remove(&mut self, other: Room) {
        self.bids = self.bids.saturating_sub(other.bids);
        self.nodes = self.nodes.saturating_sub(other.nodes);
    }
}

impl Account {
    fn has(&self) -> Room {
        let mut all = self.counted;
        all.add(self.on_the_way);
        all
    }
}

impl Table {
    /// Sets the usage of all accounts as it is after a command.
    fn begin(&mut self, seq: u64, usages: Vec<(AccountName, AccountUsage)>) {
        self.accounts.values_mut().for_each(|account| account.counted = Room::default());
        for (name, usage) in usages {
            self.set(name, usage);
        }
        self.settle(seq);
    }

    fn count(&mut self, commit: &Commit) {
        let seq = commit.last_seq().0;
        if seq > self.counted {
            for (account, usage) in &commit.open {
                self.set(commit.names.account(*account).clone(), *usage);
            }
            self.settle(seq);
        }
    }

    fn set(&mut self, account: AccountName, AccountUsage { bids, nodes }: AccountUsage) {
        self.accounts.entry(account).or_default().counted = Room { bids, nodes };
    }

    /// Drops the reservations of commands up to this one, because their commits are counted.
    fn settle(&mut self, seq: u64) {
        self.counted = seq;
        let later = self.stamped.split_off(&(seq + 1));
        for (account, room) in std::mem::replace(&mut self.stamped, later).into_values() {
            self.give_back(&account, room);
        }
    }

    fn give_back(&mut self, account: &AccountName, room: Room) {
        if let Some(account) = self.accounts.get_mut(account) {
            account.on_the_way.remove(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Room = Room { bids: 2, nodes: 10 };

    fn one(nodes: u64) -> Room {
        Room { bids: 1, nodes }
    }

    #[test]
    fn a_reservation_counts_until_it_is_given_back() {
        let (usage, t1) = (Usage::default(), AccountName::new("t1"));
        let first = usage.reserve(&t1, one(4), MOST).unwrap();
        let mut second = usage.reserve(&t1, one(6), MOST).unwrap();
        assert_eq!(usage.reserve(&t1, one(0), MOST).unwrap_err(), Room { bids: 2, nodes: 10 });
        drop(first);
        assert!(usage.reserve(&t1, one(5), MOST).is_err());
        second.taken(7);
        assert_eq!(usage.reserve(&t1, one(5), MOST).unwrap_err(), Room { bids: 1, nodes: 6 });
        assert!(usage.reserve(&AccountName::new("t2"), one(10), MOST).is_ok());
    }

    #[test]
    fn commands_that_follow_each_other_have_room_one_after_the_other() {
        let (usage, t1) = (Usage::default(), AccountName::new("t1"));
        let (mut three, refused) = usage.reserve_each(&t1, &[one(4), one(7), one(6), one(0)], MOST);
        assert_eq!(refused, [(1, one(4)), (3, Room { bids: 2, nodes: 10 })]);
        three.give_back(one(4));
        assert_eq!(usage.reserve(&t1, one(5), MOST).unwrap_err(), one(6));
        three.taken(7);
        drop(three);
        assert_eq!(usage.table().accounts[&t1].has(), one(6));
    }

    #[test]
    fn a_command_is_counted_once_whether_its_answer_or_its_commit_comes_first() {
        let (usage, t1) = (Usage::default(), AccountName::new("t1"));
        let count = |seq, bids, nodes| {
            let mut table = usage.table();
            table.set(t1.clone(), AccountUsage { bids, nodes });
            table.settle(seq);
        };
        let mut reserved = usage.reserve(&t1, one(4), MOST).unwrap();
        reserved.taken(7);
        count(7, 1, 4);
        assert_eq!(usage.table().accounts[&t1].has(), one(4));

        let mut reserved = usage.reserve(&t1, one(2), MOST).unwrap();
        count(8, 2, 6);
        reserved.taken(8);
        assert_eq!(usage.table().accounts[&t1].has(), Room { bids: 2, nodes: 6 });
    }
}
