//! The workload of bids: a call each, or in frames of a stream.

use crate::error::BenchError;
use crate::load::{self, Answer, Pace, Run, Tally};
use crate::options::Load;
use crate::report::Measured;
use crate::stage::Stage;
use crate::{scan, streams};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use kubebid_client::Client;
use kubebid_client::v1::PlaceBidRequest;
use prost::Message as _;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

/// The frames of a stream without an answer: as many as the engine works on at once.
const FRAMES: usize = 4;
/// The time that a frame may be without its answer.
const SILENCE: Duration = Duration::from_secs(60);
const TICK: u64 = 100;
/// The number of prices that bids are spread over.
const LEVELS: u64 = 5_000;

/// Places bids by calls or in frames, and measures them.
pub(crate) async fn measure(
    stage: &Stage,
    run: &Run,
    load: &Load,
    frame: Option<u32>,
) -> Result<Measured, BenchError> {
    let clients = stage.callers(load.connections)?;
    let tally = place(stage, &clients, run, load, frame, Ceilings::Spread).await?;
    Ok(Measured { tally, bids_per_call: Some(frame.unwrap_or(1)), watch: None })
}

/// The ceilings of bids.
#[derive(Clone)]
pub(crate) enum Ceilings {
    /// Spread over all levels: few of them change a price.
    Spread,
    /// Each higher than the one before, which changes the price.
    Rising(Arc<AtomicU64>),
}

/// The bids of one caller, which differ in ceiling and key.
struct Bids {
    bid: PlaceBidRequest,
    ceilings: Ceilings,
    caller: u64,
    n: u64,
    /// The last key. Each key is the one before plus one.
    key: u128,
}

impl Bids {
    fn new(market: &str, ceilings: &Ceilings, caller: u64) -> Bids {
        let bid =
            PlaceBidRequest { markets: vec![market.to_owned()], max_nodes: 1, ..PlaceBidRequest::default() };
        Bids { bid, ceilings: ceilings.clone(), caller, n: 0, key: Uuid::new_v4().as_u128() }
    }

    /// Returns the next bid, with a key as clients make them.
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

    /// Returns the next bids as an encoded frame.
    fn frame(&mut self, bids: u32) -> Bytes {
        let mut frame = Vec::with_capacity(128 * bids as usize);
        for _ in 0..bids {
            streams::add_bid(self.next(), &mut frame);
        }
        frame.into()
    }
}

/// Places bids as long as the run lasts. Callers share the clients in turn.
pub(crate) async fn place(
    stage: &Stage,
    clients: &[Client],
    run: &Run,
    load: &Load,
    frame: Option<u32>,
    ceilings: Ceilings,
) -> Result<Tally, BenchError> {
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

/// Runs one caller with a stream: it sends the next frame when fewer than [`FRAMES`] have no answer.
async fn in_frames(
    client: Client,
    mut pace: Pace,
    run: Run,
    mut bids: Bids,
    frame: u32,
) -> Result<Tally, BenchError> {
    let (frames, mut to_send) = mpsc::unbounded_channel();
    let to_send = stream::poll_fn(move |context| to_send.poll_recv(context));
    let mut answers = streams::place_bids(&client, to_send).await?;
    let (mut sent, mut over, mut tally) = (VecDeque::with_capacity(FRAMES), false, Tally::new());
    while !over || !sent.is_empty() {
        tokio::select! {
            biased;
            answer = timeout(SILENCE, answers.next()), if !sent.is_empty() => {
                let answer = answer.map_err(|_| BenchError::fault("a frame has no answer within a minute"))?;
                let answer = answer.ok_or_else(|| BenchError::fault("the engine ended a stream of bids"))??;
                let outcomes = scan::outcomes(&answer).map_err(|error| BenchError::fault(format!("an answer: {error}")))?;
                if outcomes.len() != frame as usize {
                    return Err(BenchError::fault(format!("{} answers to a frame of {frame} bids", outcomes.len())));
                }
                let since = sent.pop_front().expect("a frame is on the way");
                tally.take_all(&run, since, outcomes.into_iter().map(Answer::of_bid));
            }
            since = pace.next(), if !over && sent.len() < FRAMES => match since {
                Some(since) => {
                    // If the stream is broken, reading the answer says so.
                    let _ = frames.send(bids.frame(frame));
                    sent.push_back(since);
                }
                None => over = true,
            },
        }
    }
    Ok(tally)
}
