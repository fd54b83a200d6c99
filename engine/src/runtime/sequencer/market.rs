//! Applies durable batches, publishes the views, and hands each commit to its delivery.

use super::Taken;
use crate::events::commit::{Commit, Step};
use crate::runtime::delivery::Delivery;
use crate::runtime::intake::Ticket;
use crate::runtime::metrics;
use crate::runtime::replay::Replay;
use crate::runtime::views::Publisher;
use kubebid_core::{Content, StampedCommand};
use std::sync::Arc;
use tokio::sync::mpsc;

pub(crate) struct Market {
    pub(crate) replay: Replay,
    pub(crate) publisher: Publisher,
    /// The channel to the projector, which loses nothing.
    pub(crate) projections: mpsc::UnboundedSender<Arc<Commit>>,
    /// The channel to the task that informs subscribers and callers.
    pub(crate) deliveries: mpsc::UnboundedSender<Delivery>,
}

impl Market {
    /// Applies and publishes commands that are durable. `waiting` is the number of commands in the
    /// intake.
    pub(super) fn apply(&mut self, taken: Taken, waiting: usize) {
        let mut steps: Vec<Step> = Vec::with_capacity(taken.count());
        let mut replies = Vec::with_capacity(taken.tickets.len());
        let mut contents = taken.contents.into_iter();
        for Ticket { commands, reply, .. } in taken.tickets {
            replies.push((commands.len(), reply));
            for command in commands {
                steps.push(self.step(command, contents.next().flatten()));
            }
        }
        // A step of time for which no caller waits.
        steps.extend(taken.advance.map(|advance| self.step(advance, None)));
        metrics::applied(&steps, waiting);
        self.publisher.publish(&mut self.replay.exchange);
        let commit = Arc::new(Commit::gather(steps, &self.replay.exchange, self.publisher.names()));
        // Both receivers end only when the engine ends.
        let _ = self.projections.send(commit.clone());
        let _ = self.deliveries.send(Delivery { commit, replies });
    }

    fn step(&mut self, command: StampedCommand, content: Option<Content>) -> Step {
        let step = self.replay.step(command, content);
        self.publisher.note(&step.events);
        step
    }
}
