//! The callers of a bench, their pace, and what is kept of the answers.

use super::Load;
use crate::commands::local;
use crate::failure::{Exit, Failure};
use hdrhistogram::Histogram;
use kubebid_client::v1::Refusal;
use kubebid_client::{Bare, Client, Error};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A call that takes longer counts as this long.
const LONGEST_US: u64 = 60_000_000;
/// For how long calls that were due are still sent after the end of an open loop.
const LATE: Duration = Duration::from_secs(5);

/// Whether somebody wants us to stop.
#[derive(Clone, Debug)]
pub(super) struct Stopped(watch::Receiver<bool>);

impl Stopped {
    pub(super) fn now(&self) -> bool {
        *self.0.borrow()
    }

    pub(super) async fn wait(mut self) {
        if self.0.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending().await
        }
    }
}

/// From here on Ctrl-C and SIGTERM stop the run, not the process.
pub(super) fn until_stopped() -> Stopped {
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        local::stop_signal().await;
        stop.send_replace(true);
        stop.closed().await;
    });
    Stopped(stopped)
}

/// When a load runs and what of it counts.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// The warm-up is over: calls that are sent or due from here on count.
    pub(super) begin: Instant,
    end: Instant,
    stopped: Stopped,
    unsent: Arc<AtomicU64>,
}

impl Run {
    pub(super) fn new(warmup: Duration, measured: Duration, stopped: Stopped) -> Run {
        let begin = Instant::now() + warmup;
        Run { begin, end: begin + measured, stopped, unsent: Arc::default() }
    }

    pub(super) fn over(&self) -> bool {
        self.interrupted() || Instant::now() >= self.end
    }

    pub(super) fn interrupted(&self) -> bool {
        self.stopped.now()
    }

    /// Calls of an open loop that were due and not sent: their callers were still waiting for earlier answers.
    pub(super) fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Relaxed)
    }
}

/// When a caller calls.
#[derive(Debug)]
pub(super) enum Pace {
    /// At once, as long as the run lasts.
    Closed(Run),
    /// When it is due.
    Open(Run, UnboundedReceiver<Instant>),
}

impl Pace {
    /// The instant that the time of the next call counts from; none when there is no further call.
    pub(super) async fn next(&mut self) -> Option<Instant> {
        match self {
            Pace::Closed(run) => (!run.over()).then(Instant::now),
            Pace::Open(run, due) => {
                let next = due.recv().await?;
                if !run.interrupted() && Instant::now() < run.end + LATE {
                    return Some(next);
                }
                run.unsent.fetch_add(1 + due.len() as u64, Ordering::Relaxed);
                None
            }
        }
    }
}

/// A pace for each caller.
pub(super) fn paces(run: &Run, load: &Load) -> Vec<Pace> {
    let Some(rate) = load.rate else {
        return (0..load.callers).map(|_| Pace::Closed(run.clone())).collect();
    };
    let (senders, paces): (Vec<_>, _) = (0..load.callers)
        .map(|_| {
            let (sender, due) = unbounded_channel();
            (sender, Pace::Open(run.clone(), due))
        })
        .unzip();
    let run = run.clone();
    thread::spawn(move || beat(&run, rate, &senders));
    paces
}

/// Tells the callers in turn that a call is due. On a thread of its own: the runtime's timer knows whole
/// milliseconds only.
fn beat(run: &Run, rate: u64, callers: &[UnboundedSender<Instant>]) {
    let start = Instant::now();
    for (n, caller) in (0u64..).zip(callers.iter().cycle()) {
        let after = u128::from(n) * 1_000_000_000 / u128::from(rate);
        let due = start + Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX));
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if run.over() {
                return;
            }
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left.min(Duration::from_millis(50)));
        }
        // Who has ended does not mind.
        let _ = caller.send(due);
    }
}

/// What a call came to.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    /// With its code.
    Refused(String),
}

impl Answer {
    /// Of a bid in a frame.
    pub(super) fn of_bid(refusal: Option<Refusal>) -> Answer {
        refusal.map_or(Answer::Done, |refusal| Answer::Refused(refusal.reason))
    }
}

/// A refusal is an answer; that nobody can answer is not.
fn answer<T>(result: Result<T, Error>) -> Result<Answer, Failure> {
    match result {
        Ok(_) => Ok(Answer::Done),
        Err(error) => match &error {
            Error::Refused(refusal) => Ok(Answer::Refused(refusal.code.to_string())),
            Error::Busy(_) => Ok(Answer::Refused("BUSY".to_owned())),
            Error::Late(_) => Ok(Answer::Refused("NOT_YET".to_owned())),
            Error::Config(_)
            | Error::Unauthenticated(_)
            | Error::Denied(_)
            | Error::Gone(_)
            | Error::Unavailable(_)
            | Error::Fault(_) => Err(error.into()),
        },
    }
}

/// What is kept of answers.
#[derive(Debug)]
pub(super) struct Tally {
    /// In microseconds.
    pub(super) times: Histogram<u64>,
    pub(super) done: u64,
    pub(super) refused: BTreeMap<String, u64>,
    last: Option<Instant>,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally { times: times(), done: 0, refused: BTreeMap::new(), last: None }
    }

    /// Of something that was sent, or due, at `since`.
    pub(super) fn take(&mut self, run: &Run, since: Instant, answer: Answer) {
        self.take_all(run, since, [answer]);
    }

    /// Of things that were sent, or due, together and are answered together.
    pub(super) fn take_all(&mut self, run: &Run, since: Instant, answers: impl IntoIterator<Item = Answer>) {
        if since < run.begin {
            return;
        }
        let (now, mut count) = (Instant::now(), 0);
        for answer in answers {
            count += 1;
            match answer {
                Answer::Done => self.done += 1,
                Answer::Refused(code) => *self.refused.entry(code).or_default() += 1,
            }
        }
        self.times.saturating_record_n(micros(now - since), count);
        self.last = Some(now);
    }

    fn add(&mut self, other: Tally) {
        self.times.add(other.times).expect("the same shape");
        self.done += other.done;
        for (code, count) in other.refused {
            *self.refused.entry(code).or_default() += count;
        }
        self.last = self.last.max(other.last);
    }

    /// How long it took from the end of the warm-up to the last answer.
    pub(super) fn seconds(&self, run: &Run) -> f64 {
        self.last.map_or(0.0, |last| (last - run.begin).as_secs_f64())
    }

    /// Until all of the callers have ended; one that fails ends all.
    pub(super) async fn of(mut callers: JoinSet<Result<Tally, Failure>>) -> Result<Tally, Failure> {
        let mut all = Tally::new();
        while let Some(caller) = callers.join_next().await {
            let tally = caller.map_err(|error| Failure::new(Exit::Fault, error.to_string()))?;
            all.add(tally?);
        }
        Ok(all)
    }
}

/// One to a minute, in microseconds, to three digits.
pub(super) fn times() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_US, 3).expect("three digits are allowed")
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// For calls of one rpc, a connection for each client.
pub(super) async fn connections(clients: &[Client], rpc: &'static str) -> Result<Vec<Bare>, Failure> {
    let mut connections = Vec::with_capacity(clients.len());
    for client in clients {
        connections.push(client.bare(rpc).await?);
    }
    Ok(connections)
}

/// One caller: asks, waits for the answer, and asks again as its pace says.
pub(super) async fn caller(
    mut pace: Pace,
    run: Run,
    connection: Bare,
    mut messages: impl FnMut() -> Vec<u8>,
) -> Result<Tally, Failure> {
    let mut tally = Tally::new();
    while let Some(since) = pace.next().await {
        let answer = answer(connection.call(&messages()).await)?;
        tally.take(&run, since, answer);
    }
    Ok(tally)
}
