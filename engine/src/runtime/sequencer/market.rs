//! Applies durable batches, publishes the result, and answers the callers.

use super::Taken;
use crate::events::commit::{Commit, Step};
use crate::runtime::intake::Ticket;
use crate::runtime::metrics;
use crate::runtime::progress::Reaching;
use crate::runtime::replay::Replay;
use crate::runtime::views::Publisher;
use kubebid_core::{Content, Stamped};
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc};

pub(crate) struct Market {
    pub(crate) replay: Replay,
    pub(crate) publisher: Publisher,
    /// The feed of the watches. A slow one learns that it missed some.
    pub(crate) feed: broadcast::Sender<Arc<Commit>>,
    pub(crate) account_feeds: mpsc::UnboundedSender<Arc<Commit>>,
    /// The channel to the projector, which misses nothing.
    pub(crate) projections: mpsc::UnboundedSender<Arc<Commit>>,
    pub(crate) applied: Reaching,
}

impl Market {
    /// Everything here is durable: apply it, publish it, tell the callers, in this order. So many wait meanwhile.
    pub(super) fn apply(&mut self, taken: Taken, waiting: usize) {
        let mut steps: Vec<Step> = Vec::with_capacity(taken.count());
        let mut replies = Vec::with_capacity(taken.tickets.len());
        let mut contents = taken.contents.into_iter();
        for Ticket { commands, mut reply, .. } in taken.tickets {
            for command in commands {
                let step = self.step(command, contents.next().flatten());
                reply.look(&self.replay.exchange, &step);
                steps.push(step);
            }
            replies.push(reply);
        }
        // Time that nobody waits for.
        steps.extend(taken.advance.map(|advance| self.step(advance, None)));
        metrics::applied(&steps, waiting);
        self.publisher.publish(&mut self.replay.exchange);
        let seq = self.replay.exchange.seq().0;
        let commit = Arc::new(Commit::gather(steps, &self.replay.exchange, self.publisher.names()));
        // Nobody may be watching, and the others end when the engine does.
        let _ = self.feed.send(commit.clone());
        let _ = self.account_feeds.send(commit.clone());
        let _ = self.projections.send(commit);
        self.applied.reach(seq);
        replies.into_iter().for_each(|reply| reply.tell());
    }

    fn step(&mut self, command: Stamped, content: Option<Content>) -> Step {
        let step = self.replay.step(command, content);
        self.publisher.note(&step.events);
        step
    }
}
