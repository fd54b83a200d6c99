//! The callers of a bench, their pace, and the tally of the answers.

use crate::error::BenchError;
use crate::options::Load;
use crate::unary::Unary;
use hdrhistogram::Histogram;
use kubebid_client::v1::Refusal;
use kubebid_client::{Client, Error};
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
/// The time after the end of an open loop in which calls that were due are still sent.
const LATE: Duration = Duration::from_secs(5);

/// A signal that ends the run before its time.
#[derive(Clone, Debug)]
pub(crate) struct Stopped(watch::Receiver<bool>);

impl Stopped {
    /// Returns a signal that is given when `stop` completes.
    pub(crate) fn when(stop: impl Future<Output = ()> + Send + 'static) -> Stopped {
        let (sender, stopped) = watch::channel(false);
        tokio::spawn(async move {
            stop.await;
            sender.send_replace(true);
            sender.closed().await;
        });
        Stopped(stopped)
    }

    /// Returns true if the signal was given.
    pub(crate) fn now(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the signal is given.
    pub(crate) async fn wait(mut self) {
        if self.0.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending().await
        }
    }
}

/// The period in which a load runs, and the part of it that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The end of the warm-up: calls that are sent or due from here on count.
    pub(crate) begin: Instant,
    end: Instant,
    stopped: Stopped,
    unsent: Arc<AtomicU64>,
}

impl Run {
    /// Begins a run.
    pub(crate) fn new(warmup: Duration, measured: Duration, stopped: Stopped) -> Run {
        let begin = Instant::now() + warmup;
        Run { begin, end: begin + measured, stopped, unsent: Arc::default() }
    }

    /// Returns true if no more calls are to be made.
    pub(crate) fn over(&self) -> bool {
        self.interrupted() || Instant::now() >= self.end
    }

    /// Returns true if the run was stopped before its end.
    pub(crate) fn interrupted(&self) -> bool {
        self.stopped.now()
    }

    /// Returns the number of calls of an open loop that were due and not sent, because their callers were still waiting
    /// for earlier answers.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Relaxed)
    }
}

/// The times at which a caller calls.
#[derive(Debug)]
pub(crate) enum Pace {
    /// Calls one after the other, as long as the run lasts.
    Closed(Run),
    /// Calls that fall due.
    Open(Run, UnboundedReceiver<Instant>),
}

impl Pace {
    /// Waits for the next call and returns the instant from which its time counts, or None after the last call.
    pub(crate) async fn next(&mut self) -> Option<Instant> {
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

/// Returns a pace for each caller.
pub(crate) fn paces(run: &Run, load: &Load) -> Vec<Pace> {
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

/// Tells the callers in turn that a call is due. It runs on a thread of its own, because the runtime's timer knows
/// whole milliseconds only.
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
        // A caller that has ended needs no call.
        let _ = caller.send(due);
    }
}

/// The result of a call that was answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    /// Refused, with this code.
    Refused(String),
}

impl Answer {
    /// Returns the result of a bid in a frame.
    pub(crate) fn of_bid(refusal: Option<Refusal>) -> Answer {
        refusal.map_or(Answer::Done, |refusal| Answer::Refused(refusal.reason))
    }
}

/// Returns the result of a call. A refusal is an answer; other errors are not.
fn answer<T>(result: Result<T, Error>) -> Result<Answer, BenchError> {
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

/// The answers of a run: their times and how many there were of each kind.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The times of calls, in microseconds.
    pub(crate) times: Histogram<u64>,
    pub(crate) done: u64,
    pub(crate) refused: BTreeMap<String, u64>,
    last: Option<Instant>,
}

impl Tally {
    /// Returns an empty tally.
    pub(crate) fn new() -> Tally {
        Tally { times: times(), done: 0, refused: BTreeMap::new(), last: None }
    }

    /// Counts the answer to a call that was sent, or due, at `since`.
    pub(crate) fn take(&mut self, run: &Run, since: Instant, answer: Answer) {
        self.take_all(run, since, [answer]);
    }

    /// Counts the answers to bids of one frame, which was sent, or due, at `since`.
    pub(crate) fn take_all(&mut self, run: &Run, since: Instant, answers: impl IntoIterator<Item = Answer>) {
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

    /// Returns the time from the end of the warm-up to the last answer.
    pub(crate) fn seconds(&self, run: &Run) -> f64 {
        self.last.map_or(0.0, |last| (last - run.begin).as_secs_f64())
    }

    /// Waits until all callers have ended, and returns their sum. A caller that fails ends all.
    pub(crate) async fn of(mut callers: JoinSet<Result<Tally, BenchError>>) -> Result<Tally, BenchError> {
        let mut all = Tally::new();
        while let Some(caller) = callers.join_next().await {
            let tally = caller.map_err(|error| BenchError::fault(error.to_string()))?;
            all.add(tally?);
        }
        Ok(all)
    }
}

/// Returns an empty histogram of 1 µs to a minute, with three digits.
pub(crate) fn times() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_US, 3).expect("three digits are allowed")
}

/// Returns a duration in microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Opens a connection for each client, for calls of one rpc.
pub(crate) async fn connections(clients: &[Client], rpc: &'static str) -> Result<Vec<Unary>, BenchError> {
    let mut connections = Vec::with_capacity(clients.len());
    for client in clients {
        connections.push(Unary::connect(client, rpc).await?);
    }
    Ok(connections)
}

/// Runs one caller: it calls, waits for the answer, and calls again when its pace says so.
pub(crate) async fn caller(
    mut pace: Pace,
    run: Run,
    connection: Unary,
    mut messages: impl FnMut() -> Vec<u8>,
) -> Result<Tally, BenchError> {
    let mut tally = Tally::new();
    while let Some(since) = pace.next().await {
        let answer = answer(connection.call(&messages()).await)?;
        tally.take(&run, since, answer);
    }
    Ok(tally)
}
