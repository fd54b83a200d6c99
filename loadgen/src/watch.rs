//! The workload of subscribers: events or prices to many of them while bids are placed.

use crate::error::BenchError;
use crate::load::{self, Run};
use crate::options::{Feed, Load, Watch};
use crate::place::{Ceilings, place};
use crate::report::{Measured, Quantiles, Watched};
use crate::stage::Stage;
use crate::{scan, streams};
use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt as _};
use hdrhistogram::Histogram;
use kubebid_client::Error;
use kubebid_client::v1::{WatchEventsRequest, WatchPricesRequest};
use prost::DecodeError;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The number of watches on one connection. More would wait for one another (HTTP/2 allows 200).
const ON_A_CONNECTION: u32 = 100;
/// The time without a frame after which a watch is taken to have received everything.
const QUIET: Duration = Duration::from_secs(2);

impl Watch {
    /// Places bids while subscribers watch, and measures both.
    pub(crate) async fn measure(
        &self,
        stage: &Stage,
        run: &Run,
        load: &Load,
    ) -> Result<Measured, BenchError> {
        let ceilings = match self.feed {
            Feed::Events => Ceilings::Spread,
            Feed::Prices => Ceilings::Rising(Arc::default()),
        };
        let (over, placed) = watch::channel(false);
        let subscriber = Subscriber::new(run, placed);
        let callers = stage.callers(load.connections)?;
        let watchers = if self.own {
            callers.clone()
        } else {
            stage.watchers(self.subscribers.div_ceil(ON_A_CONNECTION))?
        };
        let mut subscribers = JoinSet::new();
        for client in watchers.iter().cycle().take(self.subscribers as usize) {
            let (subscriber, client) = (subscriber.clone(), client.clone());
            match self.feed {
                Feed::Events => subscribers.spawn(async move {
                    let frames = streams::watch_events(&client, &WatchEventsRequest::default()).await?;
                    subscriber.watch(frames, scan::event_times).await
                }),
                Feed::Prices => {
                    let markets = vec![stage.market.clone()];
                    let request = WatchPricesRequest { markets, ..WatchPricesRequest::default() };
                    subscribers.spawn(async move {
                        let frames = streams::watch_prices(&client, &request).await?;
                        subscriber.watch(frames, scan::point_times).await
                    })
                }
            };
        }
        let tally = place(stage, &callers, run, load, self.frame, ceilings).await?;
        over.send_replace(true);
        let mut got = Vec::new();
        while let Some(watched) = subscribers.join_next().await {
            let watched = watched.map_err(|error| BenchError::fault(error.to_string()))?;
            got.push(watched?);
        }
        Ok(Measured { tally, bids_per_call: Some(self.frame.unwrap_or(1)), watch: Some(watched(run, &got)?) })
    }
}

/// Returns the sum of all subscribers.
fn watched(run: &Run, got: &[Got]) -> Result<Watched, BenchError> {
    if !run.interrupted() && got.iter().any(|got| !got.in_time) {
        return Err(BenchError::Fault {
            what: "not every subscriber had its first frame within the warm-up".to_owned(),
            advice: Some("give it longer with --warmup"),
        });
    }
    let mut delays = delays();
    for got in got {
        delays.add(&got.delays).expect("the same shape");
    }
    let last = got.iter().filter_map(|got| got.last).max();
    let seconds = last.map_or(0.0, |last| (last - run.begin).as_secs_f64());
    let delivered: u64 = got.iter().map(|got| got.delays.len()).sum();
    Ok(Watched {
        delivered,
        delivered_per_second: if seconds > 0.0 { delivered as f64 / seconds } else { 0.0 },
        fewest: got.iter().map(|got| got.delays.len()).min().unwrap_or_default(),
        most: got.iter().map(|got| got.delays.len()).max().unwrap_or_default(),
        frames: got.iter().map(|got| got.frames).sum(),
        delay_us: Quantiles::of(&delays),
    })
}

/// Returns an empty histogram of 1 µs to a minute, with two digits: there may be thousands of histograms.
fn delays() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000, 2).expect("two digits are allowed")
}

/// A subscriber.
#[derive(Clone)]
struct Subscriber {
    begin: Instant,
    /// The same instant by the wall clock, which stamps events.
    begin_us: u64,
    placed: watch::Receiver<bool>,
}

/// The frames that a subscriber received.
struct Got {
    delays: Histogram<u64>,
    frames: u64,
    last: Option<Instant>,
    /// True if the first frame came within the warm-up.
    in_time: bool,
}

impl Subscriber {
    fn new(run: &Run, placed: watch::Receiver<bool>) -> Subscriber {
        let begin_us = now_us() + load::micros(run.begin.saturating_duration_since(Instant::now()));
        Subscriber { begin: run.begin, begin_us, placed }
    }

    async fn watch(
        mut self,
        mut frames: impl Stream<Item = Result<Bytes, Error>> + Unpin,
        times: fn(&[u8]) -> Result<scan::Times, DecodeError>,
    ) -> Result<Got, BenchError> {
        let mut got = Got { delays: delays(), frames: 0, last: None, in_time: false };
        loop {
            let frame = tokio::select! {
                biased;
                frame = frames.next() => frame,
                () = quiet(&mut self.placed) => return Ok(got),
            };
            let Some(frame) = frame else { return Ok(got) };
            let (frame, now, now_us) = (frame?, Instant::now(), now_us());
            got.in_time |= now < self.begin;
            let times = times(&frame);
            let times = times.map_err(|error| BenchError::fault(format!("a frame: {error}")))?;
            let mut counted = false;
            for (at_us, count) in times.into_iter().filter(|(at_us, _)| *at_us >= self.begin_us) {
                got.delays.saturating_record_n(now_us.saturating_sub(at_us), count);
                counted = true;
            }
            if counted {
                got.frames += 1;
                got.last = Some(now);
            }
        }
    }
}

/// Waits until all bids are placed and no frame has come for a while.
async fn quiet(placed: &mut watch::Receiver<bool>) {
    // If the sender is gone, no bids are placed either.
    let _ = placed.wait_for(|placed| *placed).await;
    tokio::time::sleep(QUIET).await;
}

/// Returns the time of the wall clock, in microseconds since the epoch.
#[expect(clippy::disallowed_methods, reason = "events have the wall time; nothing of it is journaled")]
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    load::micros(since)
}
