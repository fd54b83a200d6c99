//! Makes a call: deadline, retries, and backoff.

use crate::Client;
use crate::credential::Bearer;
use crate::error::{Error, FailedCall};
use crate::verdict::{Verdict, classify_status};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use kubebid_proto::Encoded;
use prost::Message;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// The longest message that is taken: a page of 1000 bids with all the labels they may have.
pub(crate) const MESSAGE_MAX: usize = 64 << 20;

/// The options of calls. The wait between tries has full jitter: it is random, from nothing to a bound that doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The time that one try may take; the engine is told as `grpc-timeout`. A read with `min_seq` waits this long.
    pub timeout: Duration,
    /// The time that a call may take in all.
    pub deadline: Duration,
    /// The most tries of a call, unless an engine is there that does not lead yet. A watch tries without end.
    pub tries: u32,
    /// The first bound of a wait between tries.
    pub backoff: Duration,
    /// The highest bound of a wait between tries.
    pub backoff_max: Duration,
    /// The time without a frame after which a watch is opened again.
    pub silence: Duration,
    /// The most bids of `place_bids` without an answer.
    pub window: usize,
    /// The number of bids in one frame of `place_bids`; at most 1000.
    pub frame: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            timeout: Duration::from_secs(10),
            deadline: Duration::from_secs(30),
            tries: 10,
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            silence: Duration::from_secs(60),
            window: 4096,
            frame: 256,
        }
    }
}

/// The function that is asked before each further try.
#[derive(Clone, Default)]
pub(crate) struct OnRetry(Option<Arc<Decide>>);

type Decide = dyn Fn(&Error, Option<Duration>) -> bool + Send + Sync;

impl OnRetry {
    pub(crate) fn new(decide: impl Fn(&Error, Option<Duration>) -> bool + Send + Sync + 'static) -> Self {
        OnRetry(Some(Arc::new(decide)))
    }

    fn tries_again_after(&self, end: &Error, until: Option<Instant>) -> bool {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.0.as_ref().is_none_or(|decide| decide(end, left))
    }
}

impl fmt::Debug for OnRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnRetry").field(&self.0.is_some()).finish()
    }
}

/// The kinds of requests: safe to send again when the outcome is unknown, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, carries a key, or says what is to be so.
    Safe,
    /// It would be done twice.
    Unsafe,
}

/// An rpc that is answered once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    pub(crate) path: &'static str,
    pub(crate) repeat: Repeat,
}

impl Client {
    /// Returns the connection in use, and a request with the client's token, for a program that makes a call in its
    /// own way, as with the generated stubs. Such a call has no deadline and is tried once; if it fails,
    /// [`raw_error`](Self::raw_error) says what that means.
    pub fn raw_request<Q>(&self, message: Q) -> (Channel, Request<Q>) {
        Tries::new(self.clone(), None).request(message)
    }

    /// Returns the error for the status with which a call of [`raw_request`](Self::raw_request) failed. If another
    /// endpoint may do better, it is the next one in use.
    pub fn raw_error(&self, status: Status) -> Error {
        let (endpoint, _) = self.endpoints.current();
        let mut tries = Tries { count: 1, endpoint, renewed: true, ..Tries::new(self.clone(), None) };
        let limits = Limits { repeat: Repeat::Safe, tries: Some(1), until: Some(Instant::now()) };
        tries.after(status, limits).expect_err("there is no time for another try")
    }

    pub(crate) async fn unary<Q: Message, A: Message + Default>(
        &self,
        method: Method,
        client_key: Option<String>,
        request: &Q,
    ) -> Result<A, Error> {
        let answer = self.call(method, client_key, request.encode_to_vec().into()).await?;
        A::decode(answer)
            .map_err(|unreadable| Error::Fault(Box::new(Status::internal(unreadable.to_string()))))
    }

    /// Makes a call of bytes. It is boxed, so that it is compiled once and here.
    fn call(
        &self,
        method: Method,
        client_key: Option<String>,
        message: Bytes,
    ) -> BoxFuture<'_, Result<Bytes, Error>> {
        Box::pin(async move {
            let until = Instant::now() + self.options.deadline;
            let limits =
                Limits { repeat: method.repeat, tries: Some(self.options.tries), until: Some(until) };
            let mut tries = Tries::new(self.clone(), client_key);
            loop {
                let timeout = self.options.timeout.min(until.saturating_duration_since(Instant::now()));
                let (channel, mut request) = tries.request(message.clone());
                request.set_timeout(timeout);
                // In a box of its own: it is large, and would be copied on its way into those that wait for it.
                let sent = Box::pin(send(channel, method.path, request));
                let status = match in_time(timeout, sent).await {
                    Ok(answer) => {
                        tries.reset();
                        return Ok(answer.into_inner());
                    }
                    Err(status) => status,
                };
                let pause = tries.after(status, limits)?;
                tokio::time::sleep(pause).await;
            }
        })
    }
}

async fn send(
    channel: Channel,
    path: &'static str,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, Status> {
    let mut stub = Grpc::new(channel).max_decoding_message_size(MESSAGE_MAX);
    stub.ready().await.map_err(|error| Status::from_error(error.into()))?;
    stub.unary(request, PathAndQuery::from_static(path), Encoded).await
}

/// Returns what a call comes to within `timeout`.
pub(crate) async fn in_time<A>(
    timeout: Duration,
    sent: impl Future<Output = Result<A, Status>>,
) -> Result<A, Status> {
    match tokio::time::timeout(timeout, sent).await {
        Ok(result) => result,
        Err(_) => Err(Status::deadline_exceeded(format!("no answer within {timeout:?}"))),
    }
}

/// The point at which to give up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) repeat: Repeat,
    /// Absent for never.
    pub(crate) tries: Option<u32>,
    /// Absent for never.
    pub(crate) until: Option<Instant>,
}

/// The tries of one call, or those of a stream since it last got on.
#[derive(Debug)]
pub(crate) struct Tries {
    pub(crate) client: Client,
    client_key: Option<String>,
    count: u32,
    /// The endpoint of the last try.
    endpoint: usize,
    bearer: Option<Bearer>,
    renewed: bool,
    /// A try may have been executed though its answer did not come.
    maybe_taken: bool,
    /// The last try that found an engine which does not lead, and for how long that asked to wait.
    not_leading: Option<(u32, Duration)>,
}

impl Tries {
    pub(crate) fn new(client: Client, client_key: Option<String>) -> Self {
        Tries {
            client,
            client_key,
            count: 0,
            endpoint: 0,
            bearer: None,
            renewed: false,
            maybe_taken: false,
            not_leading: None,
        }
    }

    /// Returns the connection and the request of the next try.
    pub(crate) fn request<Q>(&mut self, message: Q) -> (Channel, Request<Q>) {
        let (endpoint, channel) = self.client.endpoints.current();
        let mut request = Request::new(message);
        self.bearer = self.client.credential.authorize(request.metadata_mut());
        self.endpoint = endpoint;
        self.count += 1;
        (channel, request)
    }

    /// Notes a success: the next failure begins a new count.
    pub(crate) fn reset(&mut self) {
        self.client.endpoints.works(self.endpoint);
        self.count = 0;
        self.renewed = false;
        self.not_leading = None;
    }

    /// Returns what comes after a failed try: a wait and another one, or the end.
    pub(crate) fn after(&mut self, status: Status, limits: Limits) -> Result<Duration, Error> {
        let verdict = classify_status(&status);
        tracing::debug!(tries = self.count, code = ?status.code(), message = status.message(), "a try failed");
        let (retry_after, untaken) = match verdict {
            Verdict::Busy(retry_after) => (retry_after, true),
            Verdict::NotLeading(wait) => {
                self.not_leading = Some((self.count, wait));
                (Some(wait), true)
            }
            Verdict::Away { untaken } => (None, untaken),
            Verdict::Unknown(_) | Verdict::Final(_) => (None, true),
            Verdict::NotYet | Verdict::Silent => (None, false),
        };
        self.maybe_taken |= !untaken;
        let end = FailedCall {
            tries: self.count,
            last: status,
            endpoint: self.client.endpoints.name_of(self.endpoint).to_owned(),
            retry_after,
            client_key: self.client_key.clone(),
            maybe_taken: self.maybe_taken,
        };
        let (pause, end) = match verdict {
            Verdict::Final(error) => return Err(error),
            Verdict::Unknown(refusal) => {
                if self.renewed || !self.client.credential.renewed(self.bearer.as_ref()) {
                    return Err(Error::Unauthenticated(refusal));
                }
                self.renewed = true;
                return Ok(Duration::ZERO);
            }
            Verdict::Busy(wait) => (wait.unwrap_or_default() + self.jitter(1), Error::Busy(Box::new(end))),
            Verdict::NotYet => (self.jitter(1), Error::Late(Box::new(end))),
            Verdict::Silent => (self.elsewhere(), Error::Late(Box::new(end))),
            Verdict::NotLeading(_) | Verdict::Away { .. } => {
                (self.elsewhere(), Error::Unavailable(Box::new(end)))
            }
        };
        // While an engine waits to lead, its callers wait: it will lead, or learn that another one does.
        let exhausted = limits.tries.is_some_and(|tries| self.count >= tries) && self.soon_led().is_none();
        let too_late = limits.until.is_some_and(|until| Instant::now() + pause >= until);
        let unsafe_again = limits.repeat == Repeat::Unsafe && self.maybe_taken;
        let is_over = exhausted || too_late || unsafe_again;
        let goes_on = !is_over && self.client.on_retry.tries_again_after(&end, limits.until);
        if goes_on { Ok(pause) } else { Err(end) }
    }

    /// Turns to another endpoint; waits once all of them have been tried.
    fn elsewhere(&self) -> Duration {
        self.client.endpoints.leave(self.endpoint);
        let round = self.round();
        if !self.count.is_multiple_of(round) {
            return Duration::ZERO;
        }
        match self.soon_led() {
            Some(wait) => jitter(wait),
            None => self.jitter(round),
        }
    }

    /// Returns how many tries it takes to go round all endpoints.
    fn round(&self) -> u32 {
        u32::try_from(self.client.endpoints.len()).unwrap_or(u32::MAX)
    }

    /// Returns how long an engine asked to wait that was there in the last round and did not lead.
    fn soon_led(&self) -> Option<Duration> {
        let (count, wait) = self.not_leading?;
        (self.count - count < self.round()).then_some(wait)
    }

    /// Returns a random wait. Its bound doubles every `round` tries.
    fn jitter(&self, round: u32) -> Duration {
        let options = &self.client.options;
        let doubled = (self.count.saturating_sub(1) / round).min(20);
        jitter(options.backoff.saturating_mul(1 << doubled).min(options.backoff_max))
    }
}

/// Returns a random time up to the bound.
fn jitter(bound: Duration) -> Duration {
    Duration::from_micros(fastrand::u64(0..=u64::try_from(bound.as_micros()).unwrap_or(u64::MAX)))
}
