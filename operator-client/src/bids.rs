//! Places many bids over one stream, with a bound on unanswered ones.

use crate::Client;
use crate::call::{Limits, MESSAGE_MAX, Repeat, Tries, in_time};
use crate::error::{Error, Refusal};
use crate::keys::KeyedRequest as _;
use crate::v1::place_bids_response::result::Outcome;
use crate::v1::{PlaceBidRequest, PlaceBidResponse, PlaceBidsResponse};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _};
use kubebid_proto::Encoded;
use prost::Message as _;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

/// The most bids in a frame.
const FRAME_MAX: usize = 1000;
/// The number of bytes from which on a frame takes no more bids. An engine accepts 4 MiB.
const FRAME_BYTES: usize = 1 << 20;
/// The field of `PlaceBidsRequest` with the bids.
const BIDS: u32 = 1;

/// The result of one bid of a stream.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The key of the bid.
    pub client_key: String,
    /// The answer.
    pub outcome: Result<PlaceBidResponse, Refusal>,
}

/// The answers to a stream of bids.
pub struct PlaceBids(BoxStream<'static, Result<Placed, Error>>);

impl PlaceBids {
    /// Returns the next answer, or None after an error and after the last one.
    pub async fn next(&mut self) -> Option<Result<Placed, Error>> {
        self.0.next().await
    }
}

impl Stream for PlaceBids {
    type Item = Result<Placed, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

impl fmt::Debug for PlaceBids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaceBids")
    }
}

impl Client {
    /// Places bids as they come, in frames of what is there, and answers each. Bids without a key get a random
    /// one. At most `options.window` bids are without an answer; while the answers are not read nothing is sent.
    ///
    /// If the stream breaks, what has no answer is sent again with the same keys, so each bid is placed at most
    /// once. A bid for which the engine has no room is sent again, after those that were on the way: answers come
    /// in the order of the bids but for these.
    pub fn place_bids(&self, bids: impl Stream<Item = PlaceBidRequest> + Send + 'static) -> PlaceBids {
        let options = self.options();
        let frame = options.frame.clamp(1, FRAME_MAX);
        let placing = Placing {
            tries: Tries::new(self.clone(), None),
            bids: bids.ready_chunks(frame).boxed(),
            bids_over: false,
            frame,
            link: None,
            sent: VecDeque::new(),
            waiting: VecDeque::new(),
            answered: VecDeque::new(),
            progress: Instant::now(),
            over: false,
        };
        let answers = stream::unfold(placing, |mut placing| async move {
            if placing.over {
                return None;
            }
            let answer = placing.next().await.transpose()?;
            placing.over = answer.is_err();
            Some((answer, placing))
        });
        PlaceBids(answers.boxed())
    }
}

/// A bid and the number of times it was sent.
#[derive(Debug)]
struct Sent {
    bid: PlaceBidRequest,
    times: u32,
}

struct Link {
    frames: UnboundedSender<Bytes>,
    answers: Streaming<Bytes>,
}

struct Placing {
    tries: Tries,
    bids: BoxStream<'static, Vec<PlaceBidRequest>>,
    bids_over: bool,
    frame: usize,
    link: Option<Link>,
    /// Frames without an answer, oldest first.
    sent: VecDeque<Vec<Sent>>,
    /// Bids the engine had no room for, and when to send them again.
    waiting: VecDeque<(Instant, Sent)>,
    answered: VecDeque<Placed>,
    /// The time at which the engine last answered, or began to owe an answer.
    progress: Instant,
    over: bool,
}

enum Step {
    Answer(Result<Option<Bytes>, Status>),
    Bids(Option<Vec<PlaceBidRequest>>),
    Again,
    Silence,
}

impl Placing {
    async fn next(&mut self) -> Result<Option<Placed>, Error> {
        loop {
            if let Some(placed) = self.answered.pop_front() {
                return Ok(Some(placed));
            }
            if self.bids_over && self.sent.is_empty() && self.waiting.is_empty() {
                return Ok(None);
            }
            if self.link.is_none() && !self.sent.is_empty() {
                match self.connect().await {
                    Ok(link) => self.link = Some(link),
                    Err(status) => self.recover(status).await?,
                }
                continue;
            }
            match self.step().await {
                Step::Bids(None) => self.bids_over = true,
                Step::Bids(Some(bids)) => {
                    self.send(bids.into_iter().map(|bid| Sent { bid, times: 0 }).collect());
                }
                Step::Again => self.send_again(),
                Step::Answer(Ok(Some(answer))) => self.take(&answer)?,
                Step::Answer(Ok(None)) => {
                    self.recover(Status::unavailable("the engine ended the stream")).await?;
                }
                Step::Answer(Err(status)) => self.recover(status).await?,
                Step::Silence => self.recover(Status::deadline_exceeded("a frame has no answer")).await?,
            }
        }
    }

    async fn step(&mut self) -> Step {
        let options = self.tries.client.options;
        let on_the_way = self.sent.iter().map(Vec::len).sum::<usize>() + self.waiting.len();
        let room = on_the_way == 0 || on_the_way + self.frame <= options.window;
        let again = self.waiting.front().map(|(when, _)| *when);
        let owing = !self.sent.is_empty();
        let answer = async {
            match &mut self.link {
                Some(link) => link.answers.message().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = answer, if owing => Step::Answer(answer),
            () = sleep_until(again.unwrap_or(self.progress)), if again.is_some() => Step::Again,
            bids = self.bids.next(), if room && !self.bids_over => Step::Bids(bids),
            () = sleep_until(self.progress + options.timeout), if owing => Step::Silence,
        }
    }

    /// Opens the stream and sends all frames that have no answer.
    async fn connect(&mut self) -> Result<Link, Status> {
        let (frames, receiver) = unbounded_channel();
        for sent in &self.sent {
            // The receiver is at hand.
            let _ = frames.send(frame_of(sent));
        }
        let (channel, request) = self.tries.request(UnboundedReceiverStream::new(receiver));
        let answers = in_time(self.tries.client.options.timeout, place_bids(channel, request)).await?;
        self.progress = Instant::now();
        Ok(Link { frames, answers })
    }

    async fn recover(&mut self, status: Status) -> Result<(), Error> {
        self.link = None;
        let limits =
            Limits { repeat: Repeat::Safe, tries: Some(self.tries.client.options.tries), until: None };
        tokio::time::sleep(self.tries.after(status, limits)?).await;
        Ok(())
    }

    fn send(&mut self, mut bids: Vec<Sent>) {
        while !bids.is_empty() {
            let mut bytes = 0;
            let mut is_over = |sent: &Sent| {
                bytes += sent.bid.encoded_len();
                bytes > FRAME_BYTES
            };
            let most = bids.iter().position(&mut is_over).unwrap_or(bids.len()).max(1);
            let rest = bids.split_off(most);
            self.send_frame(bids);
            bids = rest;
        }
    }

    fn send_frame(&mut self, mut bids: Vec<Sent>) {
        for sent in &mut bids {
            sent.bid.ensure_key();
            sent.times += 1;
        }
        if self.sent.is_empty() {
            self.progress = Instant::now();
        }
        if let Some(link) = &self.link {
            // A stream that broke is noticed where answers are read, and this frame is then sent again.
            let _ = link.frames.send(frame_of(&bids));
        }
        self.sent.push_back(bids);
    }

    /// Sends the bids that have waited long enough.
    fn send_again(&mut self) {
        let now = Instant::now();
        let mut due = Vec::new();
        while due.len() < self.frame
            && let Some((_, sent)) = self.waiting.pop_front_if(|(when, _)| *when <= now)
        {
            due.push(sent);
        }
        self.send(due);
    }

    fn take(&mut self, answer: &[u8]) -> Result<(), Error> {
        let answer = PlaceBidsResponse::decode(answer)
            .map_err(|unreadable| Error::Fault(Box::new(Status::internal(unreadable.to_string()))))?;
        self.tries.reset();
        self.progress = Instant::now();
        let sent = self.sent.pop_front().unwrap_or_default();
        if sent.len() != answer.results.len() {
            let what = format!("{} answers to a frame of {} bids", answer.results.len(), sent.len());
            return Err(Error::Fault(Box::new(Status::internal(what))));
        }
        for (sent, result) in sent.into_iter().zip(answer.results) {
            let outcome = match result.outcome {
                Some(Outcome::Placed(placed)) => Ok(placed),
                Some(Outcome::Refused(refusal)) => match refusal.retry_after_us {
                    Some(after) if sent.times < self.tries.client.options.tries => {
                        let when = Instant::now() + Duration::from_micros(after);
                        let place = self.waiting.partition_point(|(other, _)| *other <= when);
                        self.waiting.insert(place, (when, sent));
                        continue;
                    }
                    Some(_) | None => Err(Refusal::of_stream(refusal)),
                },
                None => return Err(Error::Fault(Box::new(Status::internal("an answer says nothing")))),
            };
            self.answered.push_back(Placed { client_key: sent.bid.client_key, outcome });
        }
        Ok(())
    }
}

/// Opens a stream of frames, and returns its answers.
async fn place_bids(
    channel: Channel,
    frames: Request<UnboundedReceiverStream<Bytes>>,
) -> Result<Streaming<Bytes>, Status> {
    let mut stub = Grpc::new(channel).max_decoding_message_size(MESSAGE_MAX);
    stub.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = PathAndQuery::from_static("/kubebid.auction.v1.BidService/PlaceBids");
    Ok(stub.streaming(frames, path, Encoded).await?.into_inner())
}

/// Returns an encoded frame of bids.
fn frame_of(sent: &[Sent]) -> Bytes {
    let mut frame = Vec::with_capacity(128 * sent.len());
    sent.iter().for_each(|sent| prost::encoding::message::encode(BIDS, &sent.bid, &mut frame));
    frame.into()
}
