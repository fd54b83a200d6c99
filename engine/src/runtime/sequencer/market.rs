//! The exchange and all who hear of it: what is durable is applied, published, and told to its callers.

use super::Taken;
use crate::chunk::{Chunk, Step};
use crate::intake::Ticket;
use crate::metrics;
use crate::progress::Reaching;
use crate::replay::Replay;
use crate::view::Publisher;
use kubebid_core::{Content, Stamped};
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc};

pub(crate) struct Market {
    pub(crate) replay: Replay,
    pub(crate) publisher: Publisher,
    /// To those who watch; a slow one is told that it missed some.
    pub(crate) feed: broadcast::Sender<Arc<Chunk>>,
    pub(crate) own_feeds: mpsc::UnboundedSender<Arc<Chunk>>,
    /// To the projections, which miss nothing.
    pub(crate) projections: mpsc::UnboundedSender<Arc<Chunk>>,
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
        let chunk = Arc::new(Chunk::gather(steps, &self.replay.exchange, self.publisher.names()));
        // Nobody may be watching, and the others end when the engine does.
        let _ = self.feed.send(chunk.clone());
        let _ = self.own_feeds.send(chunk.clone());
        let _ = self.projections.send(chunk);
        self.applied.reach(seq);
        replies.into_iter().for_each(|reply| reply.tell());
    }

    fn step(&mut self, command: Stamped, content: Option<Content>) -> Step {
        let step = self.replay.step(command, content);
        self.publisher.note(&step.events);
        step
    }
}
