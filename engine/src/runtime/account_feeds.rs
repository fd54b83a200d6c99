//! Per-account event feeds, so that a commit wakes only the subscribers it concerns.

use crate::events::commit::Commit;
use kubebid_core::units::AccountName;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{broadcast, mpsc};

/// The most commits that a subscriber to an account may lag behind. Room is reserved for each of them.
const LAG: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct AccountFeeds(Arc<Mutex<Followed>>);

#[derive(Debug)]
struct Followed {
    lag: usize,
    accounts: BTreeMap<AccountName, broadcast::Sender<Arc<Commit>>>,
    /// The last command whose commit was examined, and sent to all accounts that it concerns.
    looked: u64,
    ended: bool,
}

/// The commits that may concern an account, from the subscription on. The feed closes when there will be
/// no more.
#[derive(Debug)]
pub(crate) struct AccountFeed {
    pub(crate) commits: broadcast::Receiver<Arc<Commit>>,
    account: AccountName,
    feeds: AccountFeeds,
}

impl AccountFeeds {
    /// Creates the feeds. `feed` is the number of commits that a subscriber to everything may lag
    /// behind. An account feed may lag `LAG` at most.
    pub(crate) fn new(feed: usize) -> AccountFeeds {
        let (accounts, lag) = (BTreeMap::new(), feed.min(LAG));
        AccountFeeds(Arc::new(Mutex::new(Followed { lag, accounts, looked: 0, ended: false })))
    }

    /// Examines all commits until there are no more.
    pub(crate) async fn run(self, mut commits: mpsc::UnboundedReceiver<Arc<Commit>>) {
        while let Some(commit) = commits.recv().await {
            self.followed().look_at(&commit);
        }
        let mut followed = self.followed();
        followed.ended = true;
        followed.accounts.clear();
    }

    pub(crate) fn subscribe(&self, account: AccountName) -> AccountFeed {
        let mut followed = self.followed();
        let commits = if followed.ended {
            broadcast::channel(1).1
        } else {
            let lag = followed.lag;
            let follower = followed.accounts.entry(account.clone());
            follower.or_insert_with(|| broadcast::Sender::new(lag)).subscribe()
        };
        AccountFeed { commits, account, feeds: self.clone() }
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        // The value is consistent whenever the lock is released.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Followed {
    fn look_at(&mut self, commit: &Arc<Commit>) {
        self.looked = commit.last_seq().0;
        if self.accounts.is_empty() {
            return;
        }
        let encoded_events = commit.encoded_events();
        // A subscriber that does not receive any more is about to unsubscribe.
        if encoded_events.concerns_everybody() {
            self.accounts.values().for_each(|follower| drop(follower.send(commit.clone())));
        } else {
            let concerned = encoded_events.accounts().filter_map(|account| self.accounts.get(account));
            concerned.for_each(|follower| drop(follower.send(commit.clone())));
        }
    }
}

impl AccountFeed {
    /// Returns the command up to which everything that concerns the account was sent before this
    /// call.
    pub(crate) fn looked(&self) -> u64 {
        self.feeds.followed().looked
    }
}

impl Drop for AccountFeed {
    fn drop(&mut self) {
        let mut followed = self.feeds.followed();
        // Done under the lock, so that of two feeds that end at once the second one sees that it
        // is the last.
        self.commits = broadcast::channel(1).1;
        let follower = followed.accounts.get(&self.account);
        if follower.is_some_and(|follower| follower.receiver_count() == 0) {
            followed.accounts.remove(&self.account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::broadcast::error::RecvError;

    #[tokio::test]
    async fn a_feed_is_dropped_with_its_last_subscriber_and_closed_after_the_end() {
        let feeds = AccountFeeds::new(4096);
        let subscribe = || feeds.subscribe(AccountName::new("t1"));
        let (mut one, other) = (subscribe(), subscribe());
        drop(other);
        assert_eq!(feeds.followed().accounts.len(), 1);
        let (commits, to_look_at) = mpsc::unbounded_channel();
        drop(commits);
        feeds.clone().run(to_look_at).await;
        assert_eq!(one.commits.recv().await.unwrap_err(), RecvError::Closed);
        assert_eq!(subscribe().commits.recv().await.unwrap_err(), RecvError::Closed);
        drop(one);
        let feeds = AccountFeeds::new(4096);
        drop(feeds.subscribe(AccountName::new("t1")));
        assert!(feeds.followed().accounts.is_empty());
    }
}
