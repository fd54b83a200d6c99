//! The sequencer: stamps the commands that wait, journals them as one batch, applies them, and answers. While a large
//! batch is applied, the next one is being journaled.

mod journaling;
mod market;
mod questions;

pub(crate) use journaling::Journaling;
pub(crate) use market::Market;
pub(crate) use questions::Questions;

use crate::runtime::clock::{Clock, MarketClock};
use crate::runtime::intake::{Intake, SubmitError, Ticket};
use crate::runtime::metrics;
use crate::runtime::replay::{BEHAVIOUR, Replay, may_advance};
use crate::store::Store;
use crate::store::record::{Batch, BatchBuilder, Position};
use futures_util::future::join;
use kubebid_core::units::Micros;
use kubebid_core::{Command, Content, StampedCommand};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::yield_now;
use tracing::warn;

/// The most commands in one commit. The commands of one ticket are not divided.
const BATCH_COMMANDS: usize = 8192;
/// The smallest batch that is applied while the next one is being journaled. A smaller batch is applied first,
/// because a commit that fewer callers share costs more than that moment.
const OVERLAP_MIN_COMMANDS: usize = 64;
/// The number of callers that share a commit from which on the next commit is delayed (PostgreSQL's
/// `commit_siblings`). They are answered first, so that their next commands share a commit again: a
/// commit costs as much as thirty commands.
const COMMIT_SIBLINGS: usize = 24;
/// The delay before the next commit, so that these callers can send their next commands (PostgreSQL's `commit_delay`).
const COMMIT_DELAY: Duration = Duration::from_millis(1);
/// The longest wait for a timer. Timers stand still in a suspended machine, and a jump of its clock must be noticed while
/// nothing happens.
const WAIT: Duration = Duration::from_secs(1);

/// The sequencer. One thread runs it.
pub(crate) struct Sequencer {
    pub(crate) intake: Arc<Intake>,
    pub(crate) clock: MarketClock,
    /// The store, for the clock mark of the next engine.
    pub(crate) store: Store,
    pub(crate) journaling: Journaling,
    pub(crate) market: Market,
    pub(crate) questions: Questions,
    /// The time of the last command that was stamped.
    pub(crate) stamped: Micros,
}

/// The reason why the sequencer ended.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// Another engine leads.
    #[error("this engine may not write any more: {0}")]
    Superseded(String),
    /// The database was restored under the engine, or another program changed its journal.
    #[error(
        "the store holds another history than this engine wrote: {0}. If the database was restored, see \"Restoring\" in \
         docs/operations.md, and start the engine again"
    )]
    OtherHistory(String),
    /// Writes are not kept, or are not in the place where the next engine looks for them.
    #[error("the store is lost: {0}")]
    StoreLost(String),
}

/// The tickets taken from the intake at once.
#[derive(Default)]
struct Taken {
    tickets: Vec<Ticket>,
    /// A command that only moves time, if a timer or a full hour is due and no command waits.
    advance: Option<StampedCommand>,
    /// The fingerprint of each command that has a key, set when the batch was packed.
    contents: Vec<Option<Content>>,
}

impl Taken {
    /// Returns the number of commands.
    fn count(&self) -> usize {
        self.commands().count()
    }

    fn commands(&self) -> impl Iterator<Item = &StampedCommand> {
        self.tickets.iter().flat_map(|ticket| &ticket.commands).chain(&self.advance)
    }

    /// Returns true if many callers with about one command each share this commit.
    fn waits_for_siblings(&self) -> bool {
        self.tickets.len() >= COMMIT_SIBLINGS && self.count() < 2 * self.tickets.len()
    }
}

impl Sequencer {
    /// Runs until the intake is closed and empty.
    pub(crate) async fn run(mut self) -> Result<(Replay, Position), Stopped> {
        // The batch that is in the journal and not applied yet.
        let mut durable = None;
        loop {
            let at_once =
                |durable: &mut Taken| durable.count() < OVERLAP_MIN_COMMANDS || durable.waits_for_siblings();
            if let Some(few) = durable.take_if(at_once) {
                let is_delayed = few.waits_for_siblings();
                self.market.apply(few, self.intake.waiting());
                if is_delayed {
                    tokio::time::sleep(COMMIT_DELAY).await;
                }
            }
            if durable.is_none() {
                self.note_clock().await;
            }
            if durable.is_none() && !self.questions.is_in_the_middle() {
                self.wait().await;
            }
            let mut taken = self.take();
            if taken.count() == 0 {
                if durable.is_none() && self.is_due() {
                    let now = self.now();
                    taken.advance =
                        Some(StampedCommand { at: now, key: None, command: Command::AdvanceTime });
                } else {
                    if let Some(much) = durable.take() {
                        self.market.apply(much, self.intake.waiting());
                    }
                    let any_left = self.questions.take_a_turn(&self.market.replay.exchange);
                    if self.intake.is_closed() && self.intake.len() == 0 && !any_left {
                        return Ok((self.market.replay, self.journaling.head));
                    }
                    if any_left {
                        yield_now().await;
                    }
                    continue;
                }
            }
            let batch = self.pack(&mut taken);
            let Sequencer { journaling, market, questions, intake, stamped, .. } = &mut self;
            let is_committed = Cell::new(false);
            let committing = async {
                let committed = journaling.commit(&batch).await;
                is_committed.set(true);
                committed
            };
            // The store gets the batch before anything is applied here. In each commit,
            // questions have one turn and the time that the store takes.
            let meanwhile = async {
                if let Some(much) = durable.take() {
                    market.apply(much, intake.waiting());
                }
                while questions.take_a_turn(&market.replay.exchange) && !is_committed.get() {
                    yield_now().await;
                }
            };
            let (committed, ()) = join(committing, meanwhile).await;
            match committed? {
                Ok(()) => durable = Some(taken),
                Err(not_done) => {
                    // The commands were refused, so the stamp goes back to the last
                    // applied one.
                    *stamped = market.replay.exchange.now();
                    taken.tickets.into_iter().for_each(|ticket| ticket.reply.refuse(not_done));
                }
            }
        }
    }

    /// Waits until there is work, or a timer is due.
    async fn wait(&self) {
        if self.clock.kind() == Clock::Stepped {
            return self.intake.ready().await;
        }
        let now = self.now();
        let due = self.market.replay.exchange.next_due();
        let left = due.map_or(WAIT, |due| WAIT.min(Duration::from_micros(due.since(now).0)));
        // An instant that fell due during the commit is in the past, and is not waited for.
        let _ = tokio::time::timeout(left, self.intake.ready()).await;
    }

    /// Writes the state of this engine's clock for the next engine, if it has changed.
    async fn note_clock(&self) {
        if let Some(mark) = self.clock.to_note()
            && let Err(fault) = self.store.note_clock(&mark).await
        {
            warn!(error = %fault, "the machine's clock could not be noted for the next engine");
        }
    }

    /// Returns the present market time. It is never before the last stamp, whose command may not be
    /// applied yet.
    fn now(&self) -> Micros {
        self.clock.now(self.market.replay.exchange.now().max(self.stamped))
    }

    fn is_due(&self) -> bool {
        let (due, now) = (self.market.replay.exchange.next_due(), self.now());
        // The bills at a full hour are noted even if no command comes, so that a statement up to then is closed.
        let is_due = due.is_some_and(|due| due <= now) || self.market.replay.is_hour_due(now);
        self.clock.kind() == Clock::Real && is_due
    }

    /// Takes what waits, and stamps it. Leaves out commands whose caller has gone or whose deadline
    /// has passed; they are not journaled.
    fn take(&mut self) -> Taken {
        let (now, moment) = (self.now(), Instant::now());
        let (mut taken, mut commands) = (Taken::default(), 0);
        while commands < BATCH_COMMANDS {
            let Some(mut ticket) = self.intake.pop_ticket() else { break };
            if !ticket.reply.is_awaited() {
                metrics::dropped();
            } else if ticket.deadline.is_some_and(|deadline| deadline <= moment) {
                metrics::dropped();
                ticket.reply.refuse(SubmitError::TooLate);
            } else if ticket.at.is_some_and(|at| !may_advance(self.now(), at)) {
                // Refused before it is journaled; otherwise it would be applied again at
                // each start.
                ticket.reply.refuse(SubmitError::TooFar);
            } else {
                commands += ticket.commands.len();
                let at = ticket.at.unwrap_or(now);
                self.stamped = self.stamped.max(at);
                ticket.commands.iter_mut().for_each(|command| command.at = at);
                taken.tickets.push(ticket);
            }
        }
        taken
    }

    fn pack(&self, taken: &mut Taken) -> Batch {
        let count = taken.count();
        let mut builder = BatchBuilder::with_capacity(self.journaling.head, 128 * count);
        let mut contents = Vec::with_capacity(count);
        for command in taken.commands() {
            builder.push_with(command.at.0, BEHAVIOUR, |bytes| contents.push(command.encode_keyed(bytes)));
        }
        taken.contents = contents;
        builder.finish()
    }
}
