//! Data to set up nodes and to reach them: rows beside the journal, written before their command is answered.
//!
//! A tenant gives a bid's `node_config`, which the providers of its nodes read. A party of an allocation gives
//! its `access` data, which its holder reads. Both are part of what a client key stands for, like labels. The
//! content is deleted after the bid or the allocation has ended; its hash stays for repeated requests.

use super::pending_rows::PendingRows;
use super::{Api, Inner};
use crate::auth::caller::Caller;
use crate::events::commit::Commit;
use crate::store::{NodeData, NodeDataKey, NodeDataKind, Rows};
use crate::wire::status::{ApiError, Code};
use bytes::Bytes;
use kubebid_core::Reject;
use kubebid_core::event::Fact;
use kubebid_core::units::{AllocationId, BidId};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use tracing::warn;

/// The number of keys that are examined at a time for content to delete.
const AT_A_TIME: u32 = 1000;
/// The least time between two searches for content to delete.
const PAUSE: Duration = Duration::from_secs(2);
/// The least time between two searches, as a multiple of what the last one took.
const PAUSES: u32 = 20;

/// Data of nodes that may not be rows yet.
pub(super) type PendingNodeData = PendingRows<NodeDataKey, NodeData>;

/// Starts the task that writes data of nodes. It ends when the returned value is dropped.
pub(super) fn start(inherited: u64, rows: Rows) -> Arc<PendingNodeData> {
    PendingRows::start("rows of node data", inherited, move |data: Vec<_>| {
        let rows = rows.clone();
        async move { rows.put_node_data(&data).await }
    })
}

impl Api {
    /// Returns the content of data of nodes, unless its bid or allocation has ended.
    pub(super) async fn content_of(&self, key: NodeDataKey) -> Result<Option<Bytes>, ApiError> {
        let Some(content) = self.node_data(key).await?.and_then(|data| data.content) else { return Ok(None) };
        let over = self.over(vec![key]).await?;
        Ok((over != [true]).then_some(content))
    }

    /// Returns for each key whether its bid is closed and holds no node, or its allocation has ended.
    async fn over(&self, keys: Vec<NodeDataKey>) -> Result<Vec<bool>, ApiError> {
        let asked = self.0.engine.ask_each(keys, |exchange, key| match key.kind {
            NodeDataKind::Config => exchange.is_bid_over(BidId(key.number)),
            NodeDataKind::Access => exchange.view_allocation(AllocationId(key.number)).is_none(),
        });
        Ok(asked.await?)
    }

    /// Returns data of nodes, also if it is not written yet.
    async fn node_data(&self, key: NodeDataKey) -> Result<Option<NodeData>, ApiError> {
        let noted = self.0.pending_node_data.get(&key);
        let stored = self.rows().node_data(key).await?;
        // What an earlier command brought may be noted late. The store keeps that of the later one.
        Ok(noted.into_iter().chain(stored).max_by_key(|data| data.seq))
    }

    /// Compares the data of a repeated request with what its first execution, under `seq`, brought. If that is
    /// missing because of a crash, or `always` says so, the data is noted again.
    pub(super) async fn compare_node_data(
        &self,
        caller: &Caller,
        key: NodeDataKey,
        seq: u64,
        given: Option<&NodeData>,
        always: bool,
    ) -> Result<(), ApiError> {
        let pending = &self.0.pending_node_data;
        let mut kept = self.node_data(key).await?;
        if let Some(given) = given
            && kept.as_ref().is_none_or(|kept| kept.seq < seq)
            && (always || seq <= pending.inherited)
        {
            pending.note_unless(key, given.brought_by(seq), |noted| noted.seq >= seq);
            self.0.late_node_data.notify_one();
            pending.kept(caller, &key).await?;
            // Another request may have brought something first.
            kept = self.node_data(key).await?;
        }
        let is_kept = match (kept, given) {
            // A later command has replaced it.
            (Some(kept), _) if kept.seq > seq => true,
            (Some(kept), given) if kept.seq == seq => given.is_some_and(|given| given.sha256 == kept.sha256),
            (_, given) => given.is_none(),
        };
        if !is_kept {
            let said = match key.kind {
                NodeDataKind::Config => "the client_key was used with another node_config",
                NodeDataKind::Access => "the client_key was used with other access data",
            };
            return Err(ApiError::new(Code::Market(Reject::KeyConflict)).saying(said));
        }
        pending.kept(caller, &key).await
    }

    /// Starts the task that deletes the content that has no reader any more. It ends with the engine.
    pub(super) fn delete_node_data_of_ended(&self) {
        let (feed, late) = (self.0.engine.subscribe(), self.0.late_node_data.clone());
        tokio::spawn(delete_when_over(Arc::downgrade(&self.0), feed, late));
    }

    /// Deletes the content whose bid or allocation has ended.
    async fn delete_what_is_over(&self) -> Result<(), ApiError> {
        let Inner { engine, pending_node_data: pending, .. } = &*self.0;
        let mut last = None;
        let noted_so_far = |data: &BTreeMap<NodeDataKey, NodeData>| {
            let seqs = || data.values().map(|data| data.seq);
            let last = *last.get_or_insert_with(|| seqs().max());
            seqs().any(|seq| Some(seq) <= last)
        };
        pending.until_not(noted_so_far).await;
        for kind in [NodeDataKind::Config, NodeDataKind::Access] {
            let mut after = 0;
            loop {
                let kept = self.rows().kept_node_data(kind, after, AT_A_TIME).await?;
                let Some((last, _)) = kept.last() else { break };
                after = last.number;
                // An engine that has lost the lead does not know what later commands have brought.
                let applied = engine.ask(|exchange| exchange.seq().0).await?;
                let known = kept.into_iter().filter(|(_, seq)| *seq <= applied);
                let keys: Vec<_> = known.map(|(key, _)| key).collect();
                let over = self.over(keys.clone()).await?;
                let ended = keys.iter().zip(over).filter(|(_, over)| *over);
                let numbers: Vec<u64> = ended.map(|(key, _)| key.number).collect();
                self.rows().clear_node_data(kind, &numbers).await?;
            }
        }
        Ok(())
    }
}

/// Deletes content at the start, after bids and allocations have ended, and after content came late.
async fn delete_when_over(api: Weak<Inner>, mut feed: Receiver<Arc<Commit>>, late: Arc<Notify>) {
    let (mut next, mut may_be_over) = (Instant::now(), true);
    loop {
        tokio::select! {
            received = feed.recv() => match received {
                Ok(commit) => may_be_over |= ends_something(&commit),
                Err(RecvError::Lagged(_)) => may_be_over = true,
                Err(RecvError::Closed) => return,
            },
            () = late.notified() => may_be_over = true,
            () = tokio::time::sleep_until(next), if may_be_over => {
                let Some(api) = api.upgrade().map(Api) else { return };
                may_be_over = false;
                let began = Instant::now();
                if let Err(error) = api.delete_what_is_over().await {
                    if !api.0.engine.is_open() {
                        return;
                    }
                    warn!(%error, "data of nodes that have ended could not be deleted");
                    may_be_over = true;
                }
                next = Instant::now() + PAUSE.max(began.elapsed() * PAUSES);
            }
        }
    }
}

fn ends_something(commit: &Commit) -> bool {
    let mut facts = commit.steps.iter().flat_map(|step| &step.events).map(|event| &event.fact);
    facts.any(|fact| matches!(fact, Fact::Ended { .. } | Fact::BidClosed { .. }))
}
