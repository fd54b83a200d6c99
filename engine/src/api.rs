//! Implements every call of the API, independent of the protocol: one method for each rpc, one file for each group of
//! calls. It holds no rules: the market decides.

mod account;
mod accruals;
mod admin;
mod allocations;
mod bid_reads;
mod bids;
mod billing;
mod commands;
mod event_filter;
mod events;
mod explain;
mod follow;
mod inject;
mod labels;
mod markets;
mod node_data;
mod offer_reads;
mod offers;
mod pending_rows;
mod prices;
mod quote;
mod statement;

use crate::auth::caller::Caller;
use crate::auth::limits::{Defaults, Slot, Usage};
use crate::auth::policy::{self, Need, OpenCost};
use crate::auth::{Auth, Authenticated, Origin, Secret, Session};
use crate::lifecycle::engine::Engine;
use crate::store::Rows;
use crate::wire::cursor::Cursor;
use crate::wire::status::{ApiError, Code};
use futures_util::{Stream, StreamExt, stream};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, header};
use inject::Drills;
use labels::PendingLabels;
use node_data::PendingNodeData;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};

/// The time for which a read waits for `min_seq` if its caller names no deadline.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time for which a waiting read goes on waiting after the server has begun to stop.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The longest time for which a read waits until earlier reads of its account have ended.
const TURN_WAIT: Duration = Duration::from_secs(5);
/// The time after which a caller is asked to read again whose turn did not come.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// The time after which a caller that has too much open is asked to try again.
const OPEN_AGAIN: Duration = Duration::from_millis(100);

/// The most events, bids or price changes that are examined for one page, whether they match or not.
const LOOKED_AT: usize = 10_000;

/// The API of one engine: every call of the service, with authentication and limits. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Api(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    auth: Auth,
    usage: Usage,
    pending_labels: Arc<PendingLabels>,
    pending_node_data: Arc<PendingNodeData>,
    /// Notified after data of nodes is noted whose bid or allocation may have ended.
    late_node_data: Arc<Notify>,
    public_markets: bool,
    page: bool,
    /// Absent if drills are not allowed.
    drills: Option<Drills>,
    closing: watch::Sender<bool>,
}

/// The options of the API.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiOptions {
    /// Shows markets, prices and depth to callers without a credential.
    pub public_markets: bool,
    /// Lets administrators cause failures in a market, for drills.
    pub allow_inject: bool,
    /// Serves the market page at `/`.
    pub page: bool,
    /// The limits of accounts that have none of their own.
    pub limits: Defaults,
}

impl Api {
    /// Starts the API: reads accounts, tokens and open bids, and follows the engine from then on.
    ///
    /// # Errors
    /// The store or the engine does not answer.
    pub async fn start(engine: Engine, options: ApiOptions) -> Result<Api, ApiError> {
        let pending_labels = labels::start(engine.applied(), engine.store().rows().clone());
        let pending_node_data = node_data::start(engine.applied(), engine.store().rows().clone());
        let auth = Auth::start(engine.store().rows().clone(), options.limits).await?;
        let usage = Usage::follow(&engine).await?;
        let (closing, is_closing) = watch::channel(false);
        let ApiOptions { public_markets, page, .. } = options;
        let drills = options.allow_inject.then(|| Drills::start(&engine, is_closing));
        let api = Api(Arc::new(Inner {
            engine,
            auth,
            usage,
            pending_labels,
            pending_node_data,
            late_node_data: Arc::default(),
            public_markets,
            page,
            drills,
            closing,
        }));
        api.delete_node_data_of_ended();
        Ok(api)
    }

    /// Returns true if the engine takes commands and the server is not stopping.
    pub fn is_open(&self) -> bool {
        self.0.engine.is_open() && !*self.0.closing.borrow()
    }

    /// Returns true if the market page is served.
    pub(crate) fn has_page(&self) -> bool {
        self.0.page
    }

    /// Returns the engine that answers.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Admits a request if this engine leads: identifies the caller, counts the request against the
    /// caller's limits, and checks that the caller may call this method (its gRPC path). Every
    /// request from the network passes here first. Refused requests count too.
    pub async fn admit(
        &self,
        method: &str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Caller, ApiError> {
        if !self.0.engine.leads() {
            return Err(ApiError::not_leading());
        }
        let authorization = header_of(headers, &header::AUTHORIZATION)?;
        let known = authorization.and_then(|header| bearer(header.as_bytes()));
        let known = known.and_then(|secret| self.0.auth.bearer(&secret));
        if let (Some(_), Some(authenticated)) = (&known, extensions.get::<Authenticated>()) {
            authenticated.mark();
        }
        let credential = match (&known, authorization) {
            (Some(_), _) => Credential::Known,
            (None, Some(_)) => Credential::Unknown,
            (None, None) => Credential::None,
        };
        let mut caller = known.unwrap_or_else(|| self.0.auth.nobody(extensions.get::<Origin>()));
        match self.check_and_count(&caller, credential, method) {
            Ok(slot) => {
                caller.slot = Some(slot);
                Ok(caller)
            }
            Err(error) => {
                Box::pin(caller.session.limit_state.hold_back()).await;
                Err(error)
            }
        }
    }

    /// Counts a request to a method and returns the slot that it takes up.
    fn check_and_count(
        &self,
        caller: &Caller,
        credential: Credential,
        method: &str,
    ) -> Result<Slot, ApiError> {
        self.count_request(caller)?;
        let need = policy::need(method).ok_or(Code::UnknownMethod)?;
        let is_public = need == Need::Markets && self.0.public_markets;
        match credential {
            Credential::Known if !need.allows(caller.roles) => {
                let said = format!(
                    "the roles of this token do not allow this call, which needs the role {}",
                    need.roles()
                );
                Err(ApiError::new(Code::Forbidden).saying(said))
            }
            Credential::None if is_public => self.open(caller, policy::open_cost(method)),
            Credential::None | Credential::Unknown => Err(Code::Unauthenticated.into()),
            Credential::Known => self.open(caller, policy::open_cost(method)),
        }
    }

    /// Counts a request without a token to a path that is no method of the API, by the address it
    /// comes from.
    pub(crate) async fn admit_anybody(&self, extensions: &Extensions) -> Result<Slot, ApiError> {
        let caller = self.0.auth.nobody(extensions.get::<Origin>());
        let admitted = self.count_request(&caller).and_then(|()| self.open(&caller, OpenCost::Requests(1)));
        if admitted.is_err() {
            Box::pin(caller.session.limit_state.hold_back()).await;
        }
        admitted
    }

    /// Admits a request for a file that the market page loads. It is an open request of the address like any other, and does not count against
    /// its rate: the page is some fifty files, and a person may load it several times a second.
    pub(crate) fn admit_page_file(&self, extensions: &Extensions) -> Result<Slot, ApiError> {
        self.open(&self.0.auth.nobody(extensions.get::<Origin>()), OpenCost::Requests(1))
    }

    /// Counts one more open request or watch of this caller.
    fn open(&self, caller: &Caller, cost: OpenCost) -> Result<Slot, ApiError> {
        let (limits, limit_state) = (self.limits_of(caller), &caller.session.limit_state);
        let (name, slots, weight, most) = match cost {
            OpenCost::Watch => ("watches", &limit_state.watches, 1, limits.watches),
            OpenCost::Requests(weight) => {
                ("open_requests", &limit_state.open_requests, weight, limits.open_requests)
            }
        };
        slots.take(weight, most).ok_or_else(|| {
            let what = match cost {
                OpenCost::Watch => "watches",
                OpenCost::Requests(_) => "requests, with answers that are not read yet,",
            };
            ApiError::limit(name, format!("more than {most} {what} are open at once")).again_after(OPEN_AGAIN)
        })
    }

    fn limits_of(&self, caller: &Caller) -> Defaults {
        self.0.auth.defaults().under(caller.session.limit_state.limits())
    }

    fn rows(&self) -> &Rows {
        self.0.engine.store().rows()
    }

    /// Returns the cursor to watch events after this command.
    fn cursor(&self, seq: u64) -> String {
        Cursor::after(self.0.engine.journal_id(), seq).to_string()
    }

    /// Counts one more request of this caller.
    fn count_request(&self, caller: &Caller) -> Result<(), ApiError> {
        match self.count_requests(caller, 1) {
            (0, limit) => Err(limit()),
            (_, _) => Ok(()),
        }
    }

    /// Counts `more` requests of this caller. Returns how many of them are within the limit, and the refusal of the
    /// rest.
    fn count_requests(&self, caller: &Caller, more: usize) -> (usize, impl Fn() -> ApiError + use<>) {
        let rate = self.limits_of(caller).requests();
        let (taken, wait) = caller.session.limit_state.requests.take_some(more as u64, rate);
        let limit = move || {
            ApiError::limit("requests_per_second", format!("more than {} requests a second", rate.count))
                .again_after(wait)
        };
        (taken as usize, limit)
    }

    /// Counts commands that are submitted one after another, each with its cost. Returns how many of
    /// them the limits allow, and the reason why no more.
    fn count_commands(
        &self,
        caller: &Caller,
        costs: impl IntoIterator<Item = u64>,
    ) -> (usize, Option<ApiError>) {
        let (limits, limit_state) = (self.limits_of(caller), &caller.session.limit_state);
        let wait = limit_state.refusals.wait(limits.refusals());
        if !wait.is_zero() {
            let what = format!(
                "the market refused more than {} commands a second; correct them first",
                limits.refusals_per_second
            );
            return (0, Some(ApiError::limit("refusals_per_second", what).again_after(wait)));
        }
        for (counted, cost) in costs.into_iter().enumerate() {
            if let Err(wait) = limit_state.commands.take(cost, limits.commands()) {
                let what = format!("more than {} commands a day", limits.commands_per_day);
                return (counted, Some(ApiError::limit("commands_per_day", what).again_after(wait)));
            }
        }
        (usize::MAX, None)
    }

    /// Counts one command of this caller with its cost.
    fn count_command(&self, caller: &Caller, cost: u64) -> Result<(), ApiError> {
        self.count_commands(caller, [cost]).1.map_or(Ok(()), Err)
    }

    /// Waits until the exchange and the views have the market up to `min_seq`.
    pub(crate) async fn applied_up_to(&self, caller: &Caller, min_seq: u64) -> Result<(), ApiError> {
        if self.0.engine.applied() >= min_seq {
            return Ok(());
        }
        in_time(caller, min_seq, self.or_closing(self.0.engine.wait_applied(min_seq))).await?;
        if self.0.engine.applied() < min_seq {
            return Err(ApiError::new(Code::Unavailable).saying("the engine has stopped"));
        }
        Ok(())
    }

    /// Waits until the projections have the market up to `min_seq`.
    pub(crate) async fn projected_up_to(&self, caller: &Caller, min_seq: u64) -> Result<(), ApiError> {
        if self.0.engine.projected() >= min_seq {
            return Ok(());
        }
        in_time(caller, min_seq, self.or_closing(self.0.engine.wait_projected(min_seq))).await?;
        if self.0.engine.projected() < min_seq {
            return Err(ApiError::new(Code::Unavailable)
                .saying("the tables are not written in time, or not any more"));
        }
        Ok(())
    }

    /// Waits until the projections have the market up to `min_seq`, and until it is the caller's turn to read the tables. It is
    /// the caller's turn until the permit is dropped. A call that has a permit takes no other.
    ///
    /// # Errors
    /// `LIMIT` if so many reads of the account wait that its turn does not come in time.
    pub(crate) async fn turn_to_read(
        &self,
        caller: &Caller,
        min_seq: u64,
    ) -> Result<OwnedSemaphorePermit, ApiError> {
        self.projected_up_to(caller, min_seq).await?;
        let turn = Arc::clone(&caller.session.limit_state.reads).acquire_owned();
        match tokio::time::timeout(TURN_WAIT, turn).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                let said = "more reads of this account wait than are answered in time".to_owned();
                Err(ApiError::limit("reads", said).again_after(READ_AGAIN))
            }
        }
    }

    /// Waits for a future. Gives up [`LAST_WAIT`] after the server has begun to stop.
    async fn or_closing(&self, reached: impl Future<Output = ()>) {
        let mut closing = self.0.closing.subscribe();
        tokio::select! {
            () = reached => {}
            () = async {
                let _ = closing.wait_for(|closing| *closing).await;
                tokio::time::sleep(LAST_WAIT).await;
            } => {}
        }
    }

    /// Ends all streams, because the server is about to stop.
    pub fn close(&self) {
        self.0.closing.send_replace(true);
    }

    /// Returns a stream of answers to this caller. It ends after its first error, when the caller's
    /// token is revoked, and when the server stops.
    pub fn until_ended<T: Send + 'static, E: From<ApiError> + Send + 'static>(
        &self,
        caller: Caller,
        answers: impl Stream<Item = Result<T, E>> + Send + 'static,
    ) -> impl Stream<Item = Result<T, E>> + Send + 'static {
        let end = Box::pin(ended(caller.session, self.0.closing.subscribe()));
        let answers = Box::pin(answers);
        stream::unfold(Some((answers, end)), async |open| {
            let (mut answers, mut end) = open?;
            let answer = tokio::select! {
                biased;
                error = &mut end => Some(Err(E::from(error))),
                answer = answers.next() => answer,
            };
            let answer = answer?;
            let open = answer.is_ok().then_some((answers, end));
            Some((answer, open))
        })
    }
}

/// The kind of credential that a request carries.
#[derive(Clone, Copy)]
enum Credential {
    /// A token that is known and not revoked.
    Known,
    /// Anything else in the header.
    Unknown,
    None,
}

/// Waits until a stream must end, and says why.
async fn ended(session: Session, mut closing: watch::Receiver<bool>) -> ApiError {
    tokio::select! {
        () = session.revoked() => ApiError::new(Code::Unauthenticated).saying("the token was revoked"),
        _ = closing.wait_for(|closing| *closing) => {
            ApiError::new(Code::Unavailable).saying("the server is stopping; go on elsewhere")
        }
    }
}

/// Returns the only header of this name. Two headers of one name are an error, because two programs on
/// the way might read different ones.
pub(crate) fn header_of<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, ApiError> {
    let mut found = headers.get_all(name).iter();
    let first = found.next();
    match found.next() {
        None => Ok(first),
        Some(_) => Err(ApiError::bad_field(name.as_str(), "is a header that is given twice")),
    }
}

/// Returns the secret of `Bearer SECRET`.
fn bearer(header: &[u8]) -> Option<Secret> {
    let (scheme, secret) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    Secret::parse(secret.trim())
}

async fn in_time(caller: &Caller, min_seq: u64, reached: impl Future<Output = ()>) -> Result<(), ApiError> {
    let deadline = caller.deadline.unwrap_or_else(|| Instant::now() + PATIENCE);
    tokio::time::timeout_at(deadline.into(), reached).await.map_err(|_| {
        ApiError::new(Code::NotYet).at("min_seq").saying(format!("command {min_seq} was not reached in time"))
    })
}
