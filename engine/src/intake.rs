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
use kubebid_core::{Command, Exchange, Stamped};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;

/// What is handed over.
pub(crate) enum Work {
    Commands(Ticket),
    /// Something to be read off the exchange, between two commits.
    Question(Question),
}

pub(crate) type Question = Box<dyn FnOnce(&Exchange) + Send>;

/// Commands of one caller that wait to be stamped, one behind the other.
pub(crate) struct Ticket {
    /// Their time is set when they are taken.
    pub(crate) commands: Vec<Stamped>,
    /// Where to move a stepped clock.
    pub(crate) at: Option<Micros>,
    /// Not taken any more behind this moment.
    pub(crate) deadline: Option<Instant>,
    pub(crate) reply: Box<dyn Reply>,
}

/// A command that is to be stamped.
pub(crate) fn unstamped(key: Option<ClientKey>, command: Command) -> Stamped {
    Stamped { at: Micros::default(), key, command }
}

/// A command to be handed over.
#[derive(Debug)]
pub struct Submission {
    pub key: Option<ClientKey>,
    pub command: Command,
    /// Where to move a stepped clock: AdvanceTime only.
    pub at: Option<Micros>,
    /// Not taken any more behind this moment.
    pub deadline: Option<Instant>,
}

impl Submission {
    pub fn new(key: Option<ClientKey>, command: Command) -> Submission {
        Submission { key, command, at: None, deadline: None }
    }
}

/// Tells the caller what became of the commands of a ticket. Called on the exchange's thread: be quick.
pub(crate) trait Reply: Send {
    /// Whether the caller still waits.
    fn is_awaited(&self) -> bool;
    fn refuse(self: Box<Self>, reason: NotDone);
    /// Looks at the state just behind a command: once for each, in their order.
    fn look(&mut self, exchange: &Exchange, step: &Step);
    /// All of the commit is published: tells the caller.
    fn tell(self: Box<Self>);
}

/// A caller that waits for what `look` sees behind each of its commands.
pub(crate) struct Waiting<T, F> {
    sender: oneshot::Sender<Result<Looked<T>, NotDone>>,
    look: F,
    looked: Looked<T>,
}

/// What was seen behind each of a ticket's commands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Looked<T> {
    /// The number of the last one.
    pub(crate) last: u64,
    pub(crate) seen: Vec<T>,
}

/// What comes back to who waits.
pub(crate) type Answer<T> = oneshot::Receiver<Result<Looked<T>, NotDone>>;

impl<T, F: FnMut(&Exchange, &Step) -> T> Waiting<T, F> {
    /// And what it waits for.
    pub(crate) fn new(commands: usize, look: F) -> (Waiting<T, F>, Answer<T>) {
        let (sender, receiver) = oneshot::channel();
        (Waiting { sender, look, looked: Looked { last: 0, seen: Vec::with_capacity(commands) } }, receiver)
    }
}

impl<T: Send, F: FnMut(&Exchange, &Step) -> T + Send> Reply for Waiting<T, F> {
    fn is_awaited(&self) -> bool {
        !self.sender.is_closed()
    }

    fn refuse(self: Box<Self>, reason: NotDone) {
        let _ = self.sender.send(Err(reason));
    }

    fn look(&mut self, exchange: &Exchange, step: &Step) {
        self.looked.last = step.seq.0;
        self.looked.seen.push((self.look)(exchange, step));
    }

    fn tell(self: Box<Self>) {
        // The caller may have gone: the commands stand all the same.
        let _ = self.sender.send(Ok(self.looked));
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

pub(crate) type Intake = Door<Ring>;

/// The queue: a ring of work in which there may be no more than so many commands.
#[derive(Debug)]
pub(crate) struct Ring {
    work: ArrayQueue<Work>,
    commands: AtomicUsize,
    most: usize,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Work::Commands(ticket) => f.debug_tuple("Commands").field(&ticket.commands).finish(),
            Work::Question(_) => f.write_str("Question"),
        }
    }
}

impl Intake {
    pub(crate) fn new(capacity: usize) -> Arc<Intake> {
        let (work, commands) = (ArrayQueue::new(capacity), AtomicUsize::new(0));
        Arc::new(Door::before(Ring { work, commands, most: capacity }))
    }

    /// Commands and questions that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.commands.load(Ordering::Relaxed)
    }
}

impl Queue for Ring {
    type Work = Work;

    fn push(&self, work: Work) -> Result<(), Work> {
        let commands = work.commands();
        let before = self.commands.fetch_add(commands, Ordering::Relaxed);
        // What is larger than all the room there is goes in alone.
        let pushed =
            if before > 0 && before + commands > self.most { Err(work) } else { self.work.push(work) };
        pushed.inspect_err(|_| _ = self.commands.fetch_sub(commands, Ordering::Relaxed))
    }

    fn pop(&self) -> Option<Work> {
        let work = self.work.pop()?;
        self.commands.fetch_sub(work.commands(), Ordering::Relaxed);
        Some(work)
    }

    fn len(&self) -> usize {
        self.work.len()
    }
}

impl Work {
    /// How many it counts for.
    fn commands(&self) -> usize {
        match self {
            Work::Commands(ticket) => ticket.commands.len(),
            Work::Question(_) => 1,
        }
    }
}

impl Refuse for Work {
    fn refuse(self) {
        match self {
            Work::Commands(ticket) => ticket.reply.refuse(NotDone::Stopping),
            // Who asked learns it as the question is dropped.
            Work::Question(question) => drop(question),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn frame(intake: &Intake, bids: usize) -> Result<Answer<()>, NotDone> {
        let (waiting, receiver) = Waiting::new(bids, |_: &Exchange, _: &Step| ());
        let commands = (0..bids).map(|_| unstamped(None, Command::AdvanceTime)).collect();
        let reply = Box::new(waiting);
        intake.push(Work::Commands(Ticket { commands, at: None, deadline: None, reply }))?;
        Ok(receiver)
    }

    fn command(intake: &Intake) -> Result<Answer<()>, NotDone> {
        frame(intake, 1)
    }

    #[test]
    fn a_frame_counts_for_all_its_commands() {
        let intake = Intake::new(8);
        let (_five, _three) = (frame(&intake, 5).expect("room"), frame(&intake, 3).expect("room"));
        assert_eq!(frame(&intake, 1).err(), Some(NotDone::Full));
        assert_eq!(intake.waiting(), 8);
        assert!(intake.pop().is_some());
        assert!(frame(&intake, 6).is_err() && frame(&intake, 5).is_ok());
        while intake.pop().is_some() {}
        assert!(frame(&intake, 1000).is_ok(), "there is nothing that it could wait for");
        assert_eq!(intake.waiting(), 1000);
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
