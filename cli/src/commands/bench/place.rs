//! `kubebid bench place`

use super::load::{self, Answer, Pace, Run, Tally};
use super::report::Shape;
use super::stage::Stage;
use super::{Load, Measured, Target, perform};
use crate::config::Connection;
use crate::failure::{Exit, Failure};
use clap::{Args, value_parser};
use futures_util::stream::{self, StreamExt as _};
use kubebid_client::v1::PlaceBidRequest;
use kubebid_client::{Client, add_bid, scan};
use prost::Message as _;
use prost::bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

/// Frames of a stream that are without an answer: as many as the engine works on at once.
const FRAMES: usize = 4;
/// How long a frame may be without its answer.
const SILENCE: Duration = Duration::from_secs(60);
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

/// The bids of one caller: the same but for ceiling and key.
struct Bids {
    bid: PlaceBidRequest,
    ceilings: Ceilings,
    caller: u64,
    n: u64,
    /// The last key; each is the one before and one more.
    key: u128,
}

impl Bids {
    fn new(market: &str, ceilings: &Ceilings, caller: u64) -> Bids {
        let bid =
            PlaceBidRequest { markets: vec![market.to_owned()], max_nodes: 1, ..PlaceBidRequest::default() };
        Bids { bid, ceilings: ceilings.clone(), caller, n: 0, key: Uuid::new_v4().as_u128() }
    }

    /// One with a key as clients make them.
    fn next(&mut self) -> &PlaceBidRequest {
        self.n += 1;
        let level = match &self.ceilings {
            Ceilings::Spread => (self.caller * 7919 + self.n * 104_729) % LEVELS,
            Ceilings::Rising(last) => last.fetch_add(1, Ordering::Relaxed),
        };
        self.bid.ceiling_micros = TICK * (1 + level);
        self.key = self.key.wrapping_add(1);
        self.bid.client_key.clear();
        let mut digits = Uuid::encode_buffer();
        self.bid.client_key.push_str(Uuid::from_u128(self.key).hyphenated().encode_lower(&mut digits));
        &self.bid
    }

    /// Some, encoded.
    fn frame(&mut self, bids: u32) -> Bytes {
        let mut frame = Vec::with_capacity(128 * bids as usize);
        for _ in 0..bids {
            add_bid(self.next(), &mut frame);
        }
        frame.into()
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
    let bids = (0..).map(|n| Bids::new(&stage.market, &ceilings, n));
    let paces = load::paces(run, load).into_iter().zip(bids);
    match frame {
        Some(frame) => {
            for ((pace, bids), client) in paces.zip(clients.iter().cycle()) {
                callers.spawn(in_frames(client.clone(), pace, run.clone(), bids, frame));
            }
        }
        None => {
            let connections = load::connections(clients, "/kubebid.auction.v1.BidService/PlaceBid").await?;
            for ((pace, mut bids), connection) in paces.zip(connections.iter().cycle()) {
                let messages = move || bids.next().encode_to_vec();
                callers.spawn(load::caller(pace, run.clone(), connection.clone(), messages));
            }
        }
    }
    Tally::of(callers).await
}

/// A stream of frames, so many of them on the way, each answered by one.
async fn in_frames(
    client: Client,
    mut pace: Pace,
    run: Run,
    mut bids: Bids,
    frame: u32,
) -> Result<Tally, Failure> {
    let (frames, mut to_send) = mpsc::unbounded_channel();
    let to_send = stream::poll_fn(move |context| to_send.poll_recv(context));
    let mut answers = client.place_bids_encoded(to_send).await?;
    let (mut sent, mut over, mut tally) = (VecDeque::with_capacity(FRAMES), false, Tally::new());
    while !over || !sent.is_empty() {
        tokio::select! {
            biased;
            answer = timeout(SILENCE, answers.next()), if !sent.is_empty() => {
                let answer = answer.map_err(|_| broken("a frame has no answer within a minute"))?;
                let answer = answer.ok_or_else(|| broken("the engine ended a stream of bids"))??;
                let outcomes = scan::outcomes(&answer).map_err(|error| broken(&format!("an answer: {error}")))?;
                if outcomes.len() != frame as usize {
                    return Err(broken(&format!("{} answers to a frame of {frame} bids", outcomes.len())));
                }
                let since = sent.pop_front().expect("a frame is on the way");
                tally.take_all(&run, since, outcomes.into_iter().map(Answer::of_bid));
            }
            since = pace.next(), if !over && sent.len() < FRAMES => match since {
                Some(since) => {
                    // Where the stream is broken there is no answer.
                    let _ = frames.send(bids.frame(frame));
                    sent.push_back(since);
                }
                None => over = true,
            },
        }
    }
    Ok(tally)
}

fn broken(what: &str) -> Failure {
    Failure::new(Exit::Fault, what.to_owned())
}
