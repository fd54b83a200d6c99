//! The ways in which one caller does its worst.

use crate::Failure;
use crate::caller::{ABUSES, Caller, connect, framed};
use crate::engine::{Engine, MARKET, bid, offer};
use clap::ValueEnum;
use kubebid_proto::v1;
use prost::Message;
use prost::bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a way may take to prepare.
const PREPARE: Duration = Duration::from_secs(120);
/// How long who was refused waits, so that the load does not take the machine.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// ListBids and ListEvents with filters of 64 KB
    Filters,
    /// ListEvents with 5,500 kinds
    Kinds,
    /// 1,100 connections that say nothing
    Silent,
    /// 2,000 calls on a connection that reads no answer
    Unread,
    /// 1,000 watches by label
    Watches,
    /// GetDepth by 100 callers over 100,000 waiting gangs
    Depth,
    /// PutOffer of 100,000 units and of none in turn
    Offers,
    /// Commands that are refused
    Refused,
    /// Bids with client keys that are new
    Keys,
    /// Bids with labels of 20 KB that are cancelled at once
    Labels,
    /// Bodies of requests that never end
    Bodies,
    /// Calls that the token does not allow
    Forbidden,
    /// Calls without a token: the API's document
    Anonymous,
}

impl Way {
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// The load on threads of its own. It ends when this is dropped.
pub(crate) struct Load {
    runtime: Option<Runtime>,
    begin: watch::Sender<bool>,
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Load {
    /// Prepares everything that the way needs, and waits to begin.
    pub(crate) fn prepare(way: Way, engine: Arc<Engine>) -> Result<Load, Failure> {
        let nice = || {
            // Where the system refuses, the load takes more of the machine.
            let _ = rustix::process::nice(19);
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .on_thread_start(nice)
            .enable_all()
            .build()?;
        let (begin, begun) = watch::channel(false);
        let load = Load { runtime: Some(runtime), begin };
        let (address, loud) = (engine.address, engine.loud.clone());
        let (prepared, is_prepared) = std::sync::mpsc::channel();
        load.runtime.as_ref().expect("made above").spawn(async move {
            let abuse = Abuse { address, loud, begun };
            let done = abuse.prepare(way).await;
            let failed = done.is_err();
            let _ = prepared.send(done);
            if !failed {
                abuse.wait().await;
                abuse.run(way).await;
            }
        });
        is_prepared.recv_timeout(PREPARE)??;
        Ok(load)
    }

    pub(crate) fn begin(&self) {
        self.begin.send_replace(true);
    }
}

#[derive(Clone)]
struct Abuse {
    address: std::net::SocketAddr,
    loud: String,
    begun: watch::Receiver<bool>,
}

impl Abuse {
    async fn wait(&self) {
        let _ = self.begun.clone().wait_for(|begun| *begun).await;
    }

    async fn caller(&self) -> Result<Caller, Failure> {
        Caller::connect(ABUSES, self.address, Some(&self.loud)).await
    }

    /// What has to be there before the quiet spell.
    async fn prepare(&self, way: Way) -> Result<(), Failure> {
        let caller = self.caller().await?;
        match way {
            Way::Depth => self.place(&caller, 100_000, |n| gang(2 + n % 30)).await,
            Way::Unread | Way::Filters | Way::Kinds => self.place(&caller, 5_000, |_| bid(100)).await,
            Way::Watches => self.place(&caller, 100, |_| labelled()).await,
            Way::Silent
            | Way::Offers
            | Way::Refused
            | Way::Keys
            | Way::Labels
            | Way::Bodies
            | Way::Forbidden
            | Way::Anonymous => Ok(()),
        }
    }

    /// Places so many bids in frames, as far as the limits of the account allow.
    async fn place(
        &self,
        caller: &Caller,
        count: u64,
        one: impl Fn(u64) -> v1::PlaceBidRequest,
    ) -> Result<(), Failure> {
        let mut refused = 0;
        for first in (0..count).step_by(200) {
            let bids = (first..count.min(first + 200)).map(&one).collect();
            let frame = v1::PlaceBidsRequest { bids };
            let answer = caller.call("BidService/PlaceBids", &frame).await?;
            let answer = v1::PlaceBidsResponse::decode(answer)?;
            let is_refused = |result: &v1::place_bids_response::Result| {
                matches!(result.outcome, Some(v1::place_bids_response::result::Outcome::Refused(_)))
            };
            let now = answer.results.iter().filter(|result| is_refused(result)).count();
            refused = if now == 0 { 0 } else { refused + 1 };
            if refused > 20 {
                return Ok(());
            }
            if now > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    async fn run(&self, way: Way) {
        match way {
            Way::Filters => {
                let bids = (0..9_000).collect();
                let filter = v1::EventFilter { bids, ..v1::EventFilter::default() };
                let events = v1::ListEventsRequest { filter: Some(filter), ..Default::default() };
                let states = vec![v1::bid::State::Open.into(); 60_000];
                let list = v1::ListBidsRequest { states, ..Default::default() };
                tokio::join!(
                    self.repeat(4, "EventService/ListEvents", move |_| framed(&events)),
                    self.repeat(4, "BidService/ListBids", move |_| framed(&list)),
                );
            }
            Way::Kinds => {
                let kinds = vec!["price_changed".to_owned(); 4_000];
                let filter = v1::EventFilter { kinds, ..v1::EventFilter::default() };
                let events =
                    v1::ListEventsRequest { filter: Some(filter), page_size: 1000, ..Default::default() };
                self.repeat(4, "EventService/ListEvents", move |_| framed(&events)).await;
            }
            Way::Silent => self.each(1_100, Abuse::be_silent).await,
            Way::Unread => self.each(4, Abuse::leave_unread).await,
            Way::Watches => {
                let place = self.repeat(1, "BidService/PlaceBid", |_| framed(&labelled()));
                tokio::join!(self.each(20, Abuse::watch_by_label), place);
            }
            Way::Depth => {
                let depth = v1::GetDepthRequest { market: MARKET.to_owned(), levels: 1000, min_seq: 0 };
                self.repeat(100, "MarketService/GetDepth", move |_| framed(&depth)).await;
            }
            Way::Offers => {
                self.repeat(1, "OfferService/PutOffer", |n| {
                    framed(&offer(if n % 2 == 0 { 100_000 } else { 0 }))
                })
                .await;
            }
            // Not a multiple of the market's tick.
            Way::Refused => self.repeat(16, "BidService/PlaceBid", |_| framed(&bid(101))).await,
            Way::Keys => {
                let keyed = |n| v1::PlaceBidRequest { client_key: format!("{n:0128}"), ..bid(100) };
                self.repeat(16, "BidService/PlaceBid", move |n| framed(&keyed(n))).await;
            }
            Way::Labels => self.each(8, Abuse::place_with_labels).await,
            Way::Bodies => {
                tokio::join!(
                    self.each(300, Abuse::post_without_end),
                    self.each(2, Abuse::stream_without_end)
                );
            }
            Way::Forbidden => {
                let list = v1::ListAccountsRequest::default();
                self.repeat(16, "AdminService/ListAccounts", move |_| framed(&list)).await;
            }
            Way::Anonymous => self.each(8, Abuse::read_document).await,
        }
    }

    /// So many do the same at once, each again and again.
    async fn each<F>(&self, count: usize, one: fn(Abuse) -> F)
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let mut all = JoinSet::new();
        for _ in 0..count {
            let abuse = self.clone();
            all.spawn(async move {
                loop {
                    let _ = one(abuse.clone()).await;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        while all.join_next().await.is_some() {}
    }

    /// So many call the same at once, on four connections, each again as soon as it has its answer.
    async fn repeat(&self, callers: usize, method: &'static str, message: impl Fn(u64) -> Bytes) {
        let mut connections = Vec::new();
        for _ in 0..callers.min(4) {
            match self.caller().await {
                Ok(connection) => connections.push(connection),
                Err(failure) => return eprintln!("{method}: {failure}"),
            }
        }
        let number = AtomicU64::new(0);
        let message = &message;
        let number = &number;
        let calls = connections.iter().cycle().take(callers).map(|caller| async move {
            loop {
                let message = message(number.fetch_add(1, Ordering::Relaxed));
                if caller.call_framed(method, message).await.is_err() {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
        futures_util::future::join_all(calls).await;
    }

    async fn be_silent(self) -> Result<(), Failure> {
        let mut stream = connect(ABUSES, self.address).await?;
        while stream.read(&mut [0; 64]).await? > 0 {}
        Ok(())
    }

    async fn leave_unread(self) -> Result<(), Failure> {
        let caller = Caller::with_window(ABUSES, self.address, Some(&self.loud), 0).await?;
        let list = v1::ListEventsRequest { page_size: 1000, ..Default::default() };
        let mut unread = JoinSet::new();
        for _ in 0..2_000 {
            let (caller, list) = (caller.clone(), framed(&list));
            unread.spawn(async move {
                let answer = caller.begin("EventService/ListEvents", list, true).await;
                std::future::pending::<()>().await;
                drop(answer);
            });
        }
        while unread.join_next().await.is_some() {}
        Ok(())
    }

    async fn watch_by_label(self) -> Result<(), Failure> {
        let caller = self.caller().await?;
        let filter = v1::EventFilter { labels: labelled().labels, ..v1::EventFilter::default() };
        let watch = v1::WatchEventsRequest { filter: Some(filter), ..Default::default() };
        let mut watches = JoinSet::new();
        for _ in 0..50 {
            let (caller, watch) = (caller.clone(), framed(&watch));
            watches.spawn(async move { caller.call_framed("EventService/WatchEvents", watch).await });
        }
        while watches.join_next().await.is_some() {}
        Ok(())
    }

    async fn place_with_labels(self) -> Result<(), Failure> {
        let caller = self.caller().await?;
        let labels = (0..64).map(|n| (format!("{n:063}"), "v".repeat(256))).collect();
        let bid = v1::PlaceBidRequest { labels, ..bid(100) };
        loop {
            let placed = v1::PlaceBidResponse::decode(caller.call("BidService/PlaceBid", &bid).await?)?;
            let mode = v1::cancel_bid_request::Mode::Release.into();
            let cancel = v1::CancelBidRequest { bid: placed.bid, mode, ..Default::default() };
            caller.call("BidService/CancelBid", &cancel).await?;
        }
    }

    async fn post_without_end(self) -> Result<(), Failure> {
        let mut stream = connect(ABUSES, self.address).await?;
        let head = format!(
            "POST /v1/bids HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 60000\r\n\r\n{{",
            self.loud
        );
        stream.write_all(head.as_bytes()).await?;
        loop {
            stream.write_all(b" ").await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn stream_without_end(self) -> Result<(), Failure> {
        let caller = self.caller().await?;
        let mut frames = JoinSet::new();
        for _ in 0..100 {
            let caller = caller.clone();
            frames.spawn(async move {
                // A frame of 4 MB that lacks its end.
                let mut frame = vec![0, 0, 0x3f, 0xff, 0xff];
                frame.resize(60_000, 0);
                let begun = caller.begin("BidService/PlaceBids", frame.into(), false).await;
                let piece = Bytes::from(vec![0; 60_000]);
                if let Ok((_, mut body)) = begun {
                    for _ in 0..65 {
                        if body.send_data(piece.clone(), false).is_err() {
                            break;
                        }
                    }
                    std::future::pending::<()>().await;
                }
            });
        }
        while frames.join_next().await.is_some() {}
        Ok(())
    }

    async fn read_document(self) -> Result<(), Failure> {
        let mut stream = connect(ABUSES, self.address).await?;
        let mut read = vec![0; 1 << 20];
        loop {
            stream.write_all(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n").await?;
            let length = stream.read(&mut read).await?;
            if length == 0 {
                return Ok(());
            }
        }
    }
}

/// A bid that waits for so many nodes together.
fn gang(nodes: u64) -> v1::PlaceBidRequest {
    let nodes = nodes as u32;
    v1::PlaceBidRequest { min_nodes: Some(nodes), max_nodes: nodes, ..bid(500_000) }
}

fn labelled() -> v1::PlaceBidRequest {
    let labels = [("team".to_owned(), "loud".to_owned())].into();
    v1::PlaceBidRequest { labels, ..bid(100) }
}
