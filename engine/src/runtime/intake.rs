//! The intake: a bounded, lock-free queue from the callers to the exchange's thread.

mod work_queue;

/// Atomics and waker of the queue; `tests/loom` has its own.
mod sync {
    pub(super) use futures_util::task::AtomicWaker;
    pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
}

use crate::events::commit::Step;
use crossbeam_queue::ArrayQueue;
use kubebid_core::units::{ClientKey, Micros};
use kubebid_core::{Command, Exchange, StampedCommand};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;
use work_queue::{Queue, Refuse, WorkQueue};

/// An item of the intake.
pub(crate) enum Work {
    Commands(Ticket),
    /// A question to the exchange, answered between two commits.
    Question(Question),
}

/// A question to the exchange. It is called with the end of its turn, and returns true when it is
/// answered. If it returns false it gets another turn.
pub(crate) type Question = Box<dyn FnMut(&Exchange, Instant) -> bool + Send>;

/// Commands of one caller that wait to be stamped, in order.
pub(crate) struct Ticket {
    /// The commands. Their time is set when they are taken.
    pub(crate) commands: Vec<StampedCommand>,
    /// The time to move a stepped clock to.
    pub(crate) at: Option<Micros>,
    /// The time after which the commands are not taken any more.
    pub(crate) deadline: Option<Instant>,
    pub(crate) reply: Box<dyn Reply>,
}

/// Returns a command that has no stamp yet.
pub(crate) fn unstamped(key: Option<ClientKey>, command: Command) -> StampedCommand {
    StampedCommand { at: Micros::default(), key, command }
}

/// A command to submit.
#[derive(Debug)]
pub struct Submission {
    /// The client key; without one, a repeated request is another command.
    pub key: Option<ClientKey>,
    /// The command.
    pub command: Command,
    /// The time to move a stepped clock to; only for AdvanceTime.
    pub at: Option<Micros>,
    /// The time after which the command is not taken any more.
    pub deadline: Option<Instant>,
}

impl Submission {
    /// Returns a submission without a time to move to and without a deadline.
    pub fn new(key: Option<ClientKey>, command: Command) -> Submission {
        Submission { key, command, at: None, deadline: None }
    }
}

/// The caller of a ticket, which waits for the outcome of its commands.
pub(crate) trait Reply: Send {
    /// Returns true if the caller still waits.
    fn is_awaited(&self) -> bool;
    /// Answers that the commands were not taken. This is the only method that the exchange's thread
    /// calls.
    fn refuse(self: Box<Self>, reason: SubmitError);
    /// Takes the outcome of one command. Called for each command in order, before the commit is
    /// delivered.
    fn settle(&mut self, step: &Step);
    /// Answers the caller, after the commit has been delivered.
    fn answer(self: Box<Self>);
}

/// A caller that waits for a value made from the outcome of each of its commands.
pub(crate) struct Waiting<T, F> {
    sender: oneshot::Sender<Result<Outcomes<T>, SubmitError>>,
    settle: F,
    outcomes: Outcomes<T>,
}

/// The outcome of each command of a ticket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcomes<T> {
    /// The number of the last command.
    pub(crate) last: u64,
    pub(crate) values: Vec<T>,
}

/// The receiver of a ticket's outcomes.
pub(crate) type Answer<T> = oneshot::Receiver<Result<Outcomes<T>, SubmitError>>;

impl<T, F: FnMut(&Step) -> T> Waiting<T, F> {
    /// Returns the caller of a ticket with this many commands, and the receiver of its answer.
    pub(crate) fn new(commands: usize, settle: F) -> (Waiting<T, F>, Answer<T>) {
        let (sender, receiver) = oneshot::channel();
        let outcomes = Outcomes { last: 0, values: Vec::with_capacity(commands) };
        (Waiting { sender, settle, outcomes }, receiver)
    }
}

impl<T: Send, F: FnMut(&Step) -> T + Send> Reply for Waiting<T, F> {
    fn is_awaited(&self) -> bool {
        !self.sender.is_closed()
    }

    fn refuse(self: Box<Self>, reason: SubmitError) {
        let _ = self.sender.send(Err(reason));
    }

    fn settle(&mut self, step: &Step) {
        self.outcomes.last = step.seq.0;
        self.outcomes.values.push((self.settle)(step));
    }

    fn answer(self: Box<Self>) {
        // The caller may have gone. The commands count all the same.
        let _ = self.sender.send(Ok(self.outcomes));
    }
}

/// Held by the thread that takes work out of the intake. When that thread ends, even by a panic, the
/// intake refuses all further work and all that waits. Otherwise callers would wait for ever.
#[derive(Debug)]
pub(crate) struct Taker(pub(crate) Arc<Intake>);

impl Drop for Taker {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Why a command was not taken. Unless a variant says otherwise, the command is not in the journal and
/// its key is unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The intake has no room. The same command may be accepted a moment later.
    #[error("the intake is full")]
    Full,
    /// The deadline passed before the command was taken.
    #[error("the deadline passed before the command was taken")]
    TooLate,
    /// The command would move a stepped clock too far.
    #[error("time can be moved by a thousand years at once, and not beyond 2^62 microseconds")]
    TooFar,
    /// The engine is stopping and takes no more commands.
    #[error("the engine is stopping")]
    Stopping,
    /// The store refused the batch, for example because the disk is full.
    #[error("the store could not take the command")]
    StoreRefused,
    /// The command may be in the journal. Repeating it with its key finds out.
    #[error("the store did not say whether it took the command")]
    Unknown,
}

pub(crate) type Intake = WorkQueue<Ring>;

/// The queue: a ring of tickets with a limit on their commands, and a second ring with as many questions,
/// so that questions take no room from commands.
pub(crate) struct Ring {
    tickets: ArrayQueue<Ticket>,
    questions: ArrayQueue<Question>,
    commands: AtomicUsize,
    most: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tickets, questions) = (self.tickets.len(), self.questions.len());
        f.debug_struct("Ring")
            .field("tickets", &tickets)
            .field("questions", &questions)
            .finish_non_exhaustive()
    }
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
        let (tickets, questions) = (ArrayQueue::new(capacity), ArrayQueue::new(capacity));
        Arc::new(WorkQueue::before(Ring {
            tickets,
            questions,
            commands: AtomicUsize::new(0),
            most: capacity,
        }))
    }

    /// Returns the number of commands and questions that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.commands.load(Ordering::Relaxed) + self.queue.questions.len()
    }

    /// Takes the next ticket out.
    pub(crate) fn pop_ticket(&self) -> Option<Ticket> {
        self.queue.pop_ticket()
    }

    /// Takes the next question out.
    pub(crate) fn pop_question(&self) -> Option<Question> {
        self.queue.questions.pop()
    }
}

impl Queue for Ring {
    type Work = Work;

    fn push(&self, work: Work) -> Result<(), Work> {
        let ticket = match work {
            Work::Commands(ticket) => ticket,
            Work::Question(question) => return self.questions.push(question).map_err(Work::Question),
        };
        let commands = ticket.commands.len();
        let before = self.commands.fetch_add(commands, Ordering::Relaxed);
        // A ticket that is larger than the whole limit enters alone.
        let pushed =
            if before > 0 && before + commands > self.most { Err(ticket) } else { self.tickets.push(ticket) };
        pushed.map_err(|ticket| {
            self.commands.fetch_sub(commands, Ordering::Relaxed);
            Work::Commands(ticket)
        })
    }

    fn pop(&self) -> Option<Work> {
        let ticket = self.pop_ticket().map(Work::Commands);
        ticket.or_else(|| self.questions.pop().map(Work::Question))
    }

    fn len(&self) -> usize {
        self.tickets.len() + self.questions.len()
    }
}

impl Ring {
    fn pop_ticket(&self) -> Option<Ticket> {
        let ticket = self.tickets.pop()?;
        self.commands.fetch_sub(ticket.commands.len(), Ordering::Relaxed);
        Some(ticket)
    }
}

impl Refuse for Work {
    fn refuse(self) {
        match self {
            Work::Commands(ticket) => ticket.reply.refuse(SubmitError::Stopping),
            // The caller sees the refusal when the question is dropped.
            Work::Question(question) => drop(question),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn frame(intake: &Intake, bids: usize) -> Result<Answer<()>, SubmitError> {
        let (waiting, receiver) = Waiting::new(bids, |_: &Step| ());
        let commands = (0..bids).map(|_| unstamped(None, Command::AdvanceTime)).collect();
        let reply = Box::new(waiting);
        intake.push(Work::Commands(Ticket { commands, at: None, deadline: None, reply }))?;
        Ok(receiver)
    }

    fn command(intake: &Intake) -> Result<Answer<()>, SubmitError> {
        frame(intake, 1)
    }

    #[test]
    fn a_frame_counts_for_all_its_commands() {
        let intake = Intake::new(8);
        let (_five, _three) = (frame(&intake, 5).expect("room"), frame(&intake, 3).expect("room"));
        assert_eq!(frame(&intake, 1).err(), Some(SubmitError::Full));
        assert_eq!(intake.waiting(), 8);
        assert!(intake.pop().is_some());
        assert!(frame(&intake, 6).is_err() && frame(&intake, 5).is_ok());
        while intake.pop().is_some() {}
        assert!(frame(&intake, 1000).is_ok(), "there is nothing that it could wait for");
        assert_eq!(intake.waiting(), 1000);
    }

    fn question(intake: &Intake) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut sender = Some(sender);
        let asked = Work::Question(Box::new(move |_, _| sender.take().is_some()));
        intake.push(asked).expect("it is open");
        receiver
    }

    #[test]
    fn questions_take_no_room_from_commands() {
        let intake = Intake::new(2);
        let _asked = (question(&intake), question(&intake));
        assert_eq!(intake.push(Work::Question(Box::new(|_, _| true))).err(), Some(SubmitError::Full));
        let _waiting = frame(&intake, 2).expect("there is room for commands");
        assert_eq!((intake.waiting(), intake.len()), (4, 3));
        assert!(intake.pop_ticket().is_some() && intake.pop_ticket().is_none());
        assert!(intake.pop_question().is_some());
    }

    #[tokio::test]
    async fn a_consumer_that_panics_leaves_no_caller_waiting() {
        let intake = Intake::new(8);
        let (waiting, asked) = (command(&intake).expect("it is open"), question(&intake));
        let taker = Taker(intake.clone());
        let ended = thread::spawn(move || {
            let _taker = taker;
            panic!("as a bug would");
        });
        assert_eq!(waiting.await, Ok(Err(SubmitError::Stopping)));
        assert!(asked.await.is_err());
        assert!(ended.join().is_err());
        assert!(intake.is_closed());
        assert_eq!(command(&intake).err(), Some(SubmitError::Stopping));
    }

    #[tokio::test]
    async fn work_that_is_pushed_while_the_consumer_leaves_is_taken_or_refused() {
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
            // This one was taken, and dropped with its reply.
            assert!(waiting.next().expect("one was taken").await.is_err());
            for receiver in waiting {
                assert_eq!(receiver.await, Ok(Err(SubmitError::Stopping)));
            }
        }
    }
}
