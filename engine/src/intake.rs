//! The way in: a bounded queue without a lock between the callers and the thread that owns the exchange.

mod door;

/// What the door is made of; `tests/loom` has its own.
mod sync {
    pub(super) use futures_util::task::AtomicWaker;
    pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
}

use crate::chunk::Step;
use crossbeam_queue::ArrayQueue;
use door::{Door, Queue, Refuse};
use kubebid_core::units::{ClientKey, Micros};
use kubebid_core::{Command, Exchange};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// What is handed over.
pub(crate) enum Work {
    Command(Ticket),
    /// Something to be read off the exchange, between two commits.
    Question(Question),
}

pub(crate) type Question = Box<dyn FnOnce(&Exchange) + Send>;

/// A command that waits to be stamped.
pub(crate) struct Ticket {
    pub(crate) key: Option<ClientKey>,
    pub(crate) command: Command,
    /// Where the clock should stand: AdvanceTime on the stepped clock only.
    pub(crate) at: Option<Micros>,
    /// Not stamped any more behind this moment.
    pub(crate) deadline: Option<Instant>,
    pub(crate) reply: Box<dyn Reply>,
}

/// Tells the caller what became of the command. Called on the exchange's thread: be quick.
pub(crate) trait Reply: Send {
    /// Whether the caller still waits.
    fn is_awaited(&self) -> bool;
    fn refuse(self: Box<Self>, reason: NotDone);
    /// Looks at the state just behind the command. What comes back tells the caller, once all of the
    /// commit is published.
    fn look(self: Box<Self>, exchange: &Exchange, step: &Step) -> Tell;
}

pub(crate) type Tell = Box<dyn FnOnce() + Send>;

/// A caller that waits for what `look` sees behind its command.
pub(crate) struct Waiting<T, F> {
    pub(crate) sender: oneshot::Sender<Result<T, NotDone>>,
    pub(crate) look: F,
}

impl<T: Send + 'static, F: FnOnce(&Exchange, &Step) -> T + Send> Reply for Waiting<T, F> {
    fn is_awaited(&self) -> bool {
        !self.sender.is_closed()
    }

    fn refuse(self: Box<Self>, reason: NotDone) {
        let _ = self.sender.send(Err(reason));
    }

    fn look(self: Box<Self>, exchange: &Exchange, step: &Step) -> Tell {
        let Waiting { sender, look } = *self;
        let seen = look(exchange, step);
        // The caller may have gone: the command stands all the same.
        Box::new(move || drop(sender.send(Ok(seen))))
    }
}

/// Held by the thread that takes the work out. When that thread ends, also by a panic, nothing is handed over
/// any more, and whoever waits is refused: otherwise they would wait for nobody.
#[derive(Debug)]
pub(crate) struct Taker(pub(crate) Arc<Intake>);

impl Drop for Taker {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Why a command was not taken. It is not in the journal and its key is free, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    #[error("the intake is full")]
    Full,
    #[error("the deadline passed before the command was taken")]
    TooLate,
    #[error("the engine is stopping")]
    Stopping,
    #[error("the store could not take the command")]
    StoreRefused,
    /// It may be in the journal: repeat it with its key to learn.
    #[error("the store did not say whether it took the command")]
    Unknown,
}

pub(crate) type Intake = Door<ArrayQueue<Work>>;

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Work::Command(ticket) => f.debug_tuple("Command").field(&ticket.command).finish(),
            Work::Question(_) => f.write_str("Question"),
        }
    }
}

impl Intake {
    pub(crate) fn new(capacity: usize) -> Arc<Intake> {
        Arc::new(Door::before(ArrayQueue::new(capacity)))
    }
}

impl Queue for ArrayQueue<Work> {
    type Work = Work;

    fn push(&self, work: Work) -> Result<(), Work> {
        ArrayQueue::push(self, work)
    }

    fn pop(&self) -> Option<Work> {
        ArrayQueue::pop(self)
    }

    fn len(&self) -> usize {
        ArrayQueue::len(self)
    }
}

impl Refuse for Work {
    fn refuse(self) {
        match self {
            Work::Command(ticket) => ticket.reply.refuse(NotDone::Stopping),
            // Who asked learns it as the question is dropped.
            Work::Question(question) => drop(question),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn command(intake: &Intake) -> Result<oneshot::Receiver<Result<(), NotDone>>, NotDone> {
        let (sender, receiver) = oneshot::channel();
        let reply = Box::new(Waiting { sender, look: |_: &Exchange, _: &Step| () });
        let command = Command::AdvanceTime;
        intake.push(Work::Command(Ticket { key: None, command, at: None, deadline: None, reply }))?;
        Ok(receiver)
    }

    fn question(intake: &Intake) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        intake.push(Work::Question(Box::new(|_| drop(sender)))).expect("it is open");
        receiver
    }

    #[tokio::test]
    async fn a_taker_that_panics_leaves_nobody_waiting() {
        let intake = Intake::new(8);
        let (waiting, asked) = (command(&intake).expect("it is open"), question(&intake));
        let taker = Taker(intake.clone());
        let ended = thread::spawn(move || {
            let _taker = taker;
            panic!("as a bug would");
        });
        assert_eq!(waiting.await, Ok(Err(NotDone::Stopping)));
        assert!(asked.await.is_err());
        assert!(ended.join().is_err());
        assert!(intake.is_closed());
        assert_eq!(command(&intake).err(), Some(NotDone::Stopping));
    }

    #[tokio::test]
    async fn work_that_comes_as_the_taker_leaves_is_taken_or_refused() {
        for _ in 0..200 {
            let intake = Intake::new(64);
            let pushing = intake.clone();
            let pusher = thread::spawn(move || {
                let mut waiting = Vec::new();
                while let Ok(receiver) = command(&pushing) {
                    waiting.push(receiver);
                }
                waiting
            });
            let taker = Taker(intake);
            while taker.0.pop().is_none() {
                thread::yield_now();
            }
            drop(taker);
            let mut waiting = pusher.join().expect("it pushes").into_iter();
            // Taken, and dropped with its reply.
            assert!(waiting.next().expect("one was taken").await.is_err());
            for receiver in waiting {
                assert_eq!(receiver.await, Ok(Err(NotDone::Stopping)));
            }
        }
    }
}
