//! `kubebid bench watch`

use super::load::{self, Run};
use super::place::{Ceilings, place};
use super::report::{Quantiles, Shape, Watched};
use super::stage::Stage;
use super::{Load, Measured, Target, perform};
use crate::config::Connection;
use crate::failure::{Exit, Failure};
use crate::time::now_us;
use clap::{Args, ValueEnum, value_parser};
use futures_util::stream::{Stream, StreamExt as _};
use hdrhistogram::Histogram;
use kubebid_client::v1::{WatchEventsRequest, WatchPricesRequest};
use kubebid_client::{Error, scan};
use prost::DecodeError;
use prost::bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Watches on one connection: more would wait for one another (HTTP/2 allows 200).
const ON_A_CONNECTION: u32 = 100;
/// After this long without a frame a watch is thought to have had everything.
const QUIET: Duration = Duration::from_secs(2);

/// Events or prices to many subscribers while bids are placed
#[derive(Args)]
#[command(after_help = "\
Each bid makes an event. With --feed prices each offers more than the one before, which changes the
price unless they overtake one another: with --callers 1 --frame 100 none does. The delay of what is
delivered is from its time, which the engine stamps before the commit, to its arrival here; with
--endpoint both have to be by the same clock. Events are watched as administrator, or with
--endpoint as the one who places the bids. Of what arrives only its number and its times are read.

Examples:
  kubebid bench watch --subscribers 100
  kubebid bench watch --feed prices --callers 1 --frame 100
  kubebid bench watch --subscribers 1000 --rate 1000 --seconds 30
  kubebid bench watch --subscribers 1000 --own --frame 10 --rate 500")]
pub(crate) struct Watch {
    /// How many watch
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Load", value_parser = value_parser!(u32).range(1..=100_000))]
    subscribers: u32,
    /// What they watch
    #[arg(long, value_name = "WHAT", default_value = "events", help_heading = "Load", value_enum)]
    feed: What,
    /// Each subscriber is a tenant, and its own bids are what it watches: there are as many callers
    #[arg(long, help_heading = "Load", conflicts_with_all = ["endpoint", "feed", "callers"])]
    own: bool,
    /// Bids in a frame of a stream; where absent each bid is a call of its own
    #[arg(long, value_name = "K", help_heading = "Load", value_parser = value_parser!(u32).range(1..=1000))]
    frame: Option<u32>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Events,
    Prices,
}

impl Watch {
    pub(super) async fn run(self, connection: &Connection) -> Result<(), Failure> {
        let load = if self.own { self.load.by_tenants(self.subscribers) } else { self.load.settled() };
        let load = &load;
        let wire = match self.feed {
            What::Events => "WatchEvents, gRPC",
            What::Prices => "WatchPrices, gRPC",
        };
        let shape =
            Shape { frame: self.frame, subscribers: Some(self.subscribers), ..Shape::new("watch", wire) };
        perform(connection, &self.target, load, shape, async |stage, run| {
            self.measure(stage, run, load).await
        })
        .await
    }

    async fn measure(&self, stage: &Stage, run: &Run, load: &Load) -> Result<Measured, Failure> {
        let ceilings = match self.feed {
            What::Events => Ceilings::Spread,
            What::Prices => Ceilings::Rising(Arc::default()),
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
                What::Events => subscribers.spawn(async move {
                    let frames = client.watch_events_encoded(&WatchEventsRequest::default()).await?;
                    subscriber.watch(frames, scan::event_times).await
                }),
                What::Prices => {
                    let markets = vec![stage.market.clone()];
                    let request = WatchPricesRequest { markets, ..WatchPricesRequest::default() };
                    subscribers.spawn(async move {
                        let frames = client.watch_prices_encoded(&request).await?;
                        subscriber.watch(frames, scan::point_times).await
                    })
                }
            };
        }
        let tally = place(stage, &callers, run, load, self.frame, ceilings).await?;
        over.send_replace(true);
        let mut got = Vec::new();
        while let Some(watched) = subscribers.join_next().await {
            let watched = watched.map_err(|error| Failure::new(Exit::Fault, error.to_string()))?;
            got.push(watched?);
        }
        Ok(Measured { tally, bids_per_call: Some(self.frame.unwrap_or(1)), watch: Some(watched(run, &got)?) })
    }
}

/// All of the subscribers together.
fn watched(run: &Run, got: &[Got]) -> Result<Watched, Failure> {
    if !run.interrupted() && got.iter().any(|got| !got.in_time) {
        let what = "not every subscriber had its first frame within the warm-up";
        return Err(Failure::new(Exit::Fault, what).next("give it longer with --warmup"));
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

/// One to a minute, in microseconds, to two digits: there may be thousands of them.
fn delays() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000, 2).expect("two digits are allowed")
}

/// One who watches.
#[derive(Clone)]
struct Subscriber {
    begin: Instant,
    /// The same instant by the wall clock, as events have it.
    begin_us: u64,
    placed: watch::Receiver<bool>,
}

/// What a subscriber got.
struct Got {
    delays: Histogram<u64>,
    frames: u64,
    last: Option<Instant>,
    /// The first frame came before anything counted.
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
    ) -> Result<Got, Failure> {
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
            let times = times.map_err(|error| Failure::new(Exit::Fault, format!("a frame: {error}")))?;
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

/// When all is placed and nothing has come for a while since.
async fn quiet(placed: &mut watch::Receiver<bool>) {
    // Who placed has gone: that is the end too.
    let _ = placed.wait_for(|placed| *placed).await;
    tokio::time::sleep(QUIET).await;
}
