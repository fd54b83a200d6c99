//! What a tenant and the probes notice for a while.

use crate::Failure;
use crate::caller::{Caller, MEASURED, framed};
use crate::engine::{Engine, MARKET, bid};
use kubebid_proto::v1;
use prost::Message;
use prost::bytes::Bytes;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How often each call is made.
const PACE: Duration = Duration::from_millis(10);
/// How often the probes and the memory are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// A call that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes a message as it is on the wire.
type Encode = fn() -> Bytes;

/// What is called, with its message; the first is a command.
pub(crate) const CALLS: [(&str, Encode); 3] = [
    ("BidService/PlaceBid", || framed(&bid(100))),
    ("BidService/ListBids", || framed(&v1::ListBidsRequest::default())),
    ("MarketService/GetMarketPrice", || {
        framed(&v1::GetMarketPriceRequest { market: MARKET.to_owned(), ..Default::default() })
    }),
];

#[derive(Debug)]
pub(crate) struct Spell {
    pub(crate) calls: Vec<Times>,
    /// The most.
    pub(crate) memory_mib: u64,
    /// The slowest.
    pub(crate) probe: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Times {
    times: Vec<Duration>,
    pub(crate) failed: u32,
}

impl Times {
    pub(crate) fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    pub(crate) fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * share) as usize;
        sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(PATIENCE)
    }
}

/// Calls and looks until `spell` is over.
pub(crate) async fn observe(engine: &Engine, spell: Duration) -> Result<Spell, Failure> {
    let until = Instant::now() + spell;
    let caller = Caller::connect(MEASURED, engine.address, Some(&engine.quiet)).await?;
    let calls = [0, 1, 2].map(|call| measure(caller.clone(), call, until));
    let [place, list, price] = calls;
    let (place, list, price, looked) = tokio::join!(place, list, price, look(engine, until));
    let (memory_mib, probe) = looked?;
    Ok(Spell { calls: vec![place, list, price], memory_mib, probe })
}

async fn measure(caller: Caller, call: usize, until: Instant) -> Times {
    let mut times = Times::default();
    let message = CALLS[call].1();
    let mut due = Instant::now();
    while due < until {
        tokio::time::sleep_until(due.into()).await;
        let began = Instant::now();
        let calling = caller.call_framed(CALLS[call].0, message.clone());
        match tokio::time::timeout(PATIENCE, calling).await {
            Ok(Ok(answer)) => {
                times.times.push(began.elapsed());
                if call == 0 {
                    cancel(&caller, &answer).await;
                }
            }
            Ok(Err(_)) | Err(_) => {
                times.failed += 1;
                times.times.push(PATIENCE);
            }
        }
        due = (due + PACE).max(Instant::now());
    }
    times
}

/// Takes a bid back, so that the market stays as it is.
async fn cancel(caller: &Caller, placed: &Bytes) {
    if let Ok(placed) = v1::PlaceBidResponse::decode(placed.clone()) {
        let cancel = v1::CancelBidRequest {
            bid: placed.bid,
            mode: v1::cancel_bid_request::Mode::Release.into(),
            ..v1::CancelBidRequest::default()
        };
        let _ = tokio::time::timeout(PATIENCE, caller.call("BidService/CancelBid", &cancel)).await;
    }
}

/// Returns the most memory and the slowest probe.
async fn look(engine: &Engine, until: Instant) -> Result<(u64, Duration), Failure> {
    let (mut memory, mut slowest) = (0, Duration::ZERO);
    while Instant::now() < until {
        for path in ["/livez", "/readyz"] {
            let took = match tokio::time::timeout(PATIENCE, probe(engine.ops, path)).await {
                Ok(Ok((200, took))) => took,
                Ok(_) | Err(_) => PATIENCE,
            };
            slowest = slowest.max(took);
        }
        memory = memory.max(engine.memory_mib()?);
        tokio::time::sleep(LOOK).await;
    }
    Ok((memory, slowest))
}

/// Asks on a connection of its own. Returns the status, and how long it took.
pub(crate) async fn probe(ops: SocketAddr, path: &str) -> Result<(u16, Duration), Failure> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(ops).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok((status, began.elapsed()))
}
