//! The one thread that owns the exchange: stamps what waits, makes it durable, applies it, tells.

use crate::chunk::{Chunk, Step};
use crate::clock::Clock;
use crate::intake::{Intake, NotDone, Question, Reply, Submission, Ticket, Work};
use crate::metrics;
use crate::progress::Reaching;
use crate::replay::{BEHAVIOUR, Replay};
use crate::store::record::{Batch, BatchBuilder, Position};
use crate::store::{AppendError, JournalWriter, Resolution};
use crate::view::Publisher;
use kubebid_core::units::Micros;
use kubebid_core::{Command, Stamped};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, mpsc};
use tracing::{error, info, warn};

/// As many share one commit; those that came together are not parted.
const BATCH_COMMANDS: usize = 8192;
/// How long to wait before a store that does not answer is asked again.
const RETRY: Duration = Duration::from_millis(200);

pub(crate) struct Sequencer {
    pub(crate) intake: Arc<Intake>,
    pub(crate) clock: Clock,
    pub(crate) replay: Replay,
    pub(crate) head: Position,
    pub(crate) writer: Box<dyn JournalWriter>,
    pub(crate) publisher: Publisher,
    /// To those who watch; a slow one is told that it missed some.
    pub(crate) feed: broadcast::Sender<Arc<Chunk>>,
    pub(crate) own_feeds: mpsc::UnboundedSender<Arc<Chunk>>,
    /// To the projections, which miss nothing.
    pub(crate) projections: mpsc::UnboundedSender<Arc<Chunk>>,
    pub(crate) applied: Reaching,
}

/// Why the sequencer ended.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// Somebody else leads, or the store holds another history than we wrote.
    #[error("this engine may not write any more: {0}")]
    Superseded(String),
}

impl Sequencer {
    /// Runs until the intake is closed and empty.
    pub(crate) async fn run(mut self) -> Result<(Replay, Position), Stopped> {
        let (mut tickets, mut questions) = (Vec::new(), Vec::new());
        loop {
            self.wait().await;
            self.drain(&mut tickets, &mut questions);
            if tickets.is_empty() && !self.is_due() {
                self.answer(&mut questions);
                if self.intake.is_closed() && self.intake.len() == 0 {
                    return Ok((self.replay, self.head));
                }
                continue;
            }
            self.commit(&mut tickets).await?;
            self.answer(&mut questions);
        }
    }

    /// Until there is work, or something falls due.
    async fn wait(&self) {
        let due = match (self.clock, self.replay.exchange.next_due()) {
            (Clock::Real, Some(due)) => due,
            (Clock::Real, None) | (Clock::Stepped, _) => return self.intake.ready().await,
        };
        let left = Duration::from_micros(due.since(self.now()).0);
        // A commit may take a while: what falls due within it has been waited for already.
        let _ = tokio::time::timeout(left, self.intake.ready()).await;
    }

    fn now(&self) -> Micros {
        self.clock.now(self.replay.exchange.now())
    }

    fn is_due(&self) -> bool {
        let due = self.replay.exchange.next_due();
        self.clock == Clock::Real && due.is_some_and(|due| due <= self.now())
    }

    fn drain(&self, tickets: &mut Vec<Ticket>, questions: &mut Vec<Question>) {
        let mut commands = 0;
        while commands < BATCH_COMMANDS {
            match self.intake.pop() {
                Some(Work::Commands(ticket)) => {
                    commands += ticket.commands.len();
                    tickets.push(ticket);
                }
                Some(Work::Question(question)) => questions.push(question),
                None => break,
            }
        }
    }

    /// Answers what was asked before or while the last commit ran: all of it is durable.
    fn answer(&self, questions: &mut Vec<Question>) {
        for question in questions.drain(..) {
            question(&self.replay.exchange);
        }
    }

    async fn commit(&mut self, tickets: &mut Vec<Ticket>) -> Result<(), Stopped> {
        let now = self.now();
        let (commands, mut replies) = stamp(tickets, now);
        let mut builder = BatchBuilder::with_capacity(self.head, 128 * commands.len());
        let mut stamped = Vec::with_capacity(commands.len().max(1));
        for command in commands {
            builder.push_with(command.at.0, BEHAVIOUR, |bytes| command.encode(bytes));
            stamped.push(command);
        }
        if stamped.is_empty() {
            if !self.is_due() {
                return Ok(());
            }
            // What is due and no command brings: time itself.
            let advance = Stamped { at: now, key: None, command: Command::AdvanceTime };
            builder.push_with(now.0, BEHAVIOUR, |bytes| advance.encode(bytes));
            stamped.push(advance);
        }
        let batch = builder.finish();
        let started = Instant::now();
        match self.append(&batch).await? {
            Ok(()) => {}
            Err(not_done) => {
                replies.drain(..).for_each(|(reply, _)| reply.refuse(not_done));
                return Ok(());
            }
        }
        metrics::commit(batch.count(), batch.bytes().len(), started.elapsed());
        self.head = batch.end();
        self.apply(stamped, replies);
        Ok(())
    }

    /// Appends a batch, and when that has no answer finds out what became of it.
    async fn append(&mut self, batch: &Batch) -> Result<Result<(), NotDone>, Stopped> {
        loop {
            match self.writer.append(batch).await {
                Ok(()) => return Ok(Ok(())),
                Err(AppendError::Fenced { epoch }) => {
                    return Err(Stopped::Superseded(format!("another engine took over from epoch {epoch}")));
                }
                Err(AppendError::Refused(refused)) => {
                    error!(error = %refused, "the store refused a batch");
                    metrics::store_refused();
                    return Ok(Err(NotDone::StoreRefused));
                }
                Err(AppendError::Unknown { source }) => {
                    warn!(error = %source, "an append has no answer; finding out what became of it");
                    metrics::store_unknown();
                }
            }
            match self.resolve(batch).await? {
                Resolution::Committed => return Ok(Ok(())),
                Resolution::NotCommitted => {}
                Resolution::Fenced => {
                    return Err(Stopped::Superseded("another engine took over".to_owned()));
                }
            }
        }
    }

    async fn resolve(&mut self, batch: &Batch) -> Result<Resolution, Stopped> {
        loop {
            match self.writer.resolve(batch).await {
                Ok(resolution) => {
                    info!(?resolution, "the append is resolved");
                    return Ok(resolution);
                }
                Err(fault @ crate::store::Fault::Diverged { .. }) => {
                    return Err(Stopped::Superseded(fault.to_string()));
                }
                Err(fault) => {
                    warn!(error = %fault, "the store does not answer");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Everything here is durable: apply it, publish it, tell the callers, in this order.
    fn apply(&mut self, commands: Vec<Stamped>, mut replies: Replies) {
        let mut steps: Vec<Step> = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter();
        for (reply, count) in &mut replies {
            for command in commands.by_ref().take(*count) {
                let step = self.step(command);
                reply.look(&self.replay.exchange, &step);
                steps.push(step);
            }
        }
        // Time that nobody waits for.
        steps.extend(commands.map(|command| self.step(command)));
        metrics::applied(&steps, self.intake.waiting());
        self.publisher.publish(&mut self.replay.exchange);
        let seq = self.replay.exchange.seq().0;
        let chunk = Arc::new(Chunk::gather(steps, &self.replay.exchange, self.publisher.names()));
        // Nobody may be watching, and the others end when the engine does.
        let _ = self.feed.send(chunk.clone());
        let _ = self.own_feeds.send(chunk.clone());
        let _ = self.projections.send(chunk);
        self.applied.reach(seq);
        replies.into_iter().for_each(|(reply, _)| reply.tell());
    }

    fn step(&mut self, command: Stamped) -> Step {
        let step = self.replay.step(command);
        self.publisher.note(&step.events);
        step
    }
}

/// Who waits, and for how many commands.
type Replies = Vec<(Box<dyn Reply>, usize)>;

/// Leaves out those whose caller has gone or whose deadline has passed, unjournaled.
fn stamp(tickets: &mut Vec<Ticket>, now: Micros) -> (Vec<Stamped>, Replies) {
    let moment = Instant::now();
    let mut replies = Vec::with_capacity(tickets.len());
    let mut commands = Vec::with_capacity(tickets.len());
    for ticket in tickets.drain(..) {
        if !ticket.reply.is_awaited() {
            metrics::dropped();
        } else if ticket.deadline().is_some_and(|deadline| deadline <= moment) {
            metrics::dropped();
            ticket.reply.refuse(NotDone::TooLate);
        } else {
            replies.push((ticket.reply, ticket.commands.len()));
            commands.extend(ticket.commands.into_iter().map(|Submission { key, command, at, .. }| Stamped {
                at: at.unwrap_or(now),
                key,
                command,
            }));
        }
    }
    (commands, replies)
}
