//! The protocol of the intake: many threads push, one pops, and it can be closed at any time. Every accepted item is
//! answered or refused, and the consumer never sleeps while there is work.
//!
//! It works with any queue, and with the atomics that `super` names: `tests/loom` tries it in every order
//! of events.

use super::SubmitError;
use super::sync::{AtomicBool, AtomicWaker, Ordering, fence};
use std::future::poll_fn;
use std::task::Poll;

/// A bounded queue. Many threads may push and pop at once.
pub(crate) trait Queue {
    type Work: Refuse;
    /// Adds work, or returns it if there is no room.
    fn push(&self, work: Self::Work) -> Result<(), Self::Work>;
    /// Takes work out. Returns `None` only if everything that was pushed completely before this call
    /// is out.
    fn pop(&self) -> Option<Self::Work>;
    fn len(&self) -> usize;
}

pub(crate) trait Refuse {
    /// Answers the caller that its work will not be done.
    fn refuse(self);
}

#[derive(Debug)]
pub(crate) struct WorkQueue<Q> {
    pub(super) queue: Q,
    waker: AtomicWaker,
    closed: AtomicBool,
    /// True once the consumer has gone.
    left: AtomicBool,
}

impl<Q: Queue> WorkQueue<Q> {
    pub(crate) fn before(queue: Q) -> WorkQueue<Q> {
        let (closed, left) = (AtomicBool::new(false), AtomicBool::new(false));
        WorkQueue { queue, waker: AtomicWaker::new(), closed, left }
    }

    /// Adds work, or drops it and returns the reason.
    pub(crate) fn push(&self, work: Q::Work) -> Result<(), SubmitError> {
        if self.is_closed() {
            return Err(SubmitError::Stopping);
        }
        self.queue.push(work).map_err(|_| SubmitError::Full)?;
        // Either this thread sees here that the consumer has left, or the consumer saw our work
        // when it left.
        fence(Ordering::SeqCst);
        if self.left.load(Ordering::SeqCst) {
            self.refuse_all();
        }
        self.waker.wake();
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<Q::Work> {
        self.queue.pop()
    }

    /// Refuses further work. What is in the queue can still be taken out.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Waits until there is work or the queue is closed. For one consumer.
    pub(crate) async fn ready(&self) {
        poll_fn(|context| {
            self.waker.register(context.waker());
            if self.len() == 0 && !self.is_closed() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Called by the consumer when it goes. Refuses what is in the queue and everything that is added
    /// later.
    pub(crate) fn leave(&self) {
        self.close();
        self.left.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.refuse_all();
    }

    fn refuse_all(&self) {
        while let Some(work) = self.pop() {
            work.refuse();
        }
    }
}
