//! `kubebid bench place`

use super::load::{self, Answer, Pace, Run, Tally};
use super::report::Shape;
use super::stage::Stage;
use super::{Load, Measured, Target, perform};
use crate::config::Connection;
use crate::failure::Failure;
use clap::{Args, value_parser};
use futures_util::stream::{self, Stream, StreamExt as _};
use kubebid_client::v1::PlaceBidRequest;
use kubebid_client::{Client, Error, Options};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;
use tokio::task::JoinSet;

/// Frames of a stream that are without an answer: as many as the engine works on at once.
const FRAMES: usize = 4;
const TICK: u64 = 100;
/// Prices that bids are spread over.
const LEVELS: u64 = 5_000;

/// Durable bids: a call each, or in frames of a stream
#[derive(Args)]
#[command(after_help = "\
Each bid is for one node, waits, and is answered when it is durable and applied. With --frame each
caller has a stream with 4 frames on the way; a call is then a frame, and each bid has the time of
its frame.

Examples:
  kubebid bench place --callers 1                   how long a bid takes that is alone
  kubebid bench place --callers 256 --seconds 30
  kubebid bench place --frame 16 --callers 8
  kubebid bench place --rate 5000 --callers 256     5000 bids a second, whatever the engine does
  kubebid bench place --endpoint http://engine:7440 --token-file tenant.token --market h100/eu")]
pub(crate) struct Place {
    #[command(flatten)]
    load: Load,
    /// Bids in a frame of a stream; where absent each bid is a call of its own. With --rate that many bids fall due
    /// at once
    #[arg(long, value_name = "K", help_heading = "Load", value_parser = value_parser!(u32).range(1..=1000))]
    frame: Option<u32>,
    #[command(flatten)]
    target: Target,
}

impl Place {
    pub(super) async fn run(self, connection: &Connection) -> Result<(), Failure> {
        let (load, frame) = (&self.load.settled(), self.frame);
        let wire = if frame.is_some() { "PlaceBids, gRPC stream" } else { "PlaceBid, gRPC" };
        let shape = Shape { frame, ..Shape::new("place", wire) };
        perform(connection, &self.target, load, shape, async |stage, run| {
            let clients = stage.callers(load.connections)?;
            let tally = place(stage, &clients, run, load, frame, Ceilings::Spread).await?;
            Ok(Measured { tally, bids_per_call: Some(frame.unwrap_or(1)), watch: None })
        })
        .await
    }
}

/// What bids offer.
#[derive(Clone)]
pub(super) enum Ceilings {
    /// All over the levels: few of them change a price.
    Spread,
    /// Each more than the one before: each changes the price.
    Rising(Arc<AtomicU64>),
}

/// The bids of one caller.
pub(super) struct Bids {
    market: String,
    ceilings: Ceilings,
    caller: u64,
    n: u64,
}

impl Bids {
    pub(super) fn new(market: &str, ceilings: &Ceilings, caller: u64) -> Bids {
        Bids { market: market.to_owned(), ceilings: ceilings.clone(), caller, n: 0 }
    }

    pub(super) fn next(&mut self) -> PlaceBidRequest {
        self.n += 1;
        let level = match &self.ceilings {
            Ceilings::Spread => (self.caller * 7919 + self.n * 104_729) % LEVELS,
            Ceilings::Rising(last) => last.fetch_add(1, Ordering::Relaxed),
        };
        PlaceBidRequest {
            markets: vec![self.market.clone()],
            ceiling_micros: TICK * (1 + level),
            max_nodes: 1,
            ..PlaceBidRequest::default()
        }
    }
}

/// Places bids as long as the run lasts, by the clients in turn.
pub(super) async fn place(
    stage: &Stage,
    clients: &[Client],
    run: &Run,
    load: &Load,
    frame: Option<u32>,
    ceilings: Ceilings,
) -> Result<Tally, Failure> {
    let mut callers = JoinSet::new();
    for (n, (pace, client)) in load::paces(run, load).into_iter().zip(clients.iter().cycle()).enumerate() {
        let (run, client, mut bids) =
            (run.clone(), client.clone(), Bids::new(&stage.market, &ceilings, n as u64));
        match frame {
            Some(frame) => callers.spawn(in_frames(client, pace, run, bids, frame)),
            None => callers.spawn(load::caller(pace, run, move || {
                let (client, bid) = (client.clone(), bids.next());
                async move { load::answer(client.place_bid(bid).await) }
            })),
        };
    }
    Tally::of(callers).await
}

async fn in_frames(client: Client, pace: Pace, run: Run, bids: Bids, frame: u32) -> Result<Tally, Failure> {
    let frame = frame as usize;
    let client = client.with_options(Options { frame, window: FRAMES * frame, ..*client.options() });
    let (sent, since) = mpsc::channel();
    let mut answers = client.place_bids(frames(pace, bids, frame, sent));
    let mut tally = Tally::new();
    while let Some(placed) = answers.next().await {
        // One try each: answers come in the order of the bids.
        let since = since.try_recv().expect("a bid was sent before its answer");
        let outcome = placed?.outcome.map_err(|refusal| Error::Refused(Box::new(refusal)));
        let answer: Answer = load::answer(outcome)?;
        tally.take(&run, since, answer);
    }
    Ok(tally)
}

/// As many bids as a frame holds each time that the pace says so; `sent` is told the instant of each.
fn frames(
    pace: Pace,
    bids: Bids,
    frame: usize,
    sent: mpsc::Sender<Instant>,
) -> impl Stream<Item = PlaceBidRequest> + Send {
    let state = (pace, bids, VecDeque::with_capacity(frame), sent);
    stream::unfold(state, move |(mut pace, mut bids, mut ready, sent)| async move {
        if ready.is_empty() {
            let since = pace.next().await?;
            ready.extend((0..frame).map(|_| since));
        }
        // Nobody minds where the answers are read no more.
        let _ = sent.send(ready.pop_front()?);
        Some((bids.next(), (pace, bids, ready, sent)))
    })
    .fuse()
}
