//! Delivers each commit, after its views are published, to the callers, the subscribers and the readers
//! that wait for its number. A separate task does that, so that the exchange's thread runs nothing of a
//! caller.

use crate::events::commit::Commit;
use crate::runtime::intake::{Reply, Taker};
use crate::runtime::progress::Reaching;
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc};

/// A commit whose views are published.
pub(crate) struct Delivery {
    pub(crate) commit: Arc<Commit>,
    /// The callers of its commands, in their order, each with the number of its commands.
    pub(crate) replies: Vec<(usize, Box<dyn Reply>)>,
}

/// The receivers of commits.
pub(crate) struct Deliverer {
    /// The feed of the watches. A slow subscriber is told that it lost commits.
    pub(crate) feed: broadcast::Sender<Arc<Commit>>,
    /// The channel to the task of the account feeds, which encodes events.
    pub(crate) account_feeds: mpsc::UnboundedSender<Arc<Commit>>,
    pub(crate) applied: Reaching,
    /// Closes the intake if this task ends by a panic. Its callers would otherwise wait for ever.
    pub(crate) _taker: Taker,
}

impl Deliverer {
    /// Delivers commits until there are no more.
    pub(crate) async fn run(self, mut deliveries: mpsc::UnboundedReceiver<Delivery>) {
        while let Some(delivery) = deliveries.recv().await {
            self.deliver(delivery);
        }
    }

    fn deliver(&self, Delivery { commit, mut replies }: Delivery) {
        // Replies are settled before subscribers count the commit. Otherwise, what a caller had
        // reserved would count twice for a moment.
        let mut steps = commit.steps.iter();
        for (commands, reply) in &mut replies {
            steps.by_ref().take(*commands).for_each(|step| reply.settle(step));
        }
        // There may be no subscriber.
        let _ = self.feed.send(commit.clone());
        self.applied.reach(commit.last_seq().0);
        replies.into_iter().for_each(|(_, reply)| reply.answer());
        let _ = self.account_feeds.send(commit);
    }
}
