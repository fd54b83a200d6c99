//! `Offer`: what a provider sells in one market.

use super::PRICE;
use super::call_error;
use super::market_object::Market;
use kube::{Api, CustomResource, KubeSchema};
use kubebid_client::{Client, Code, Dollars, DollarsError, Error, v1};
use kubebid_controller::external::{
    Answer, CallError, DeleteAnswer, Dependency, DependencyKinds, External, ExternalStatus, Managed,
    Observed, Request, Timing,
};
use kubebid_controller::{ObjectName, Watch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// The supply of a provider in one market of the KubeBid auction.
#[derive(CustomResource, KubeSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "market.kubebid.io",
    version = "v1alpha1",
    kind = "Offer",
    namespaced,
    status = "OfferStatus",
    doc = "The supply of a provider in one market of the KubeBid auction.",
    scale(spec_replicas_path = ".spec.capacity", status_replicas_path = ".status.capacity"),
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.instanceType"),
    printcolumn(name = "Region", type_ = "string", json_path = ".spec.region"),
    printcolumn(name = "Capacity", type_ = "integer", json_path = ".spec.capacity"),
    printcolumn(name = "Reserve", type_ = "string", json_path = ".spec.reserve"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.free"),
    printcolumn(name = "Earnings", type_ = "string", json_path = ".status.earnings"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("self.instanceType == oldSelf.instanceType && self.region == oldSelf.region")
        .message("instanceType and region cannot be changed: make another Offer")
)]
#[serde(rename_all = "camelCase")]
pub struct OfferSpec {
    /// The instance type.
    #[schemars(length(min = 1, max = 63))]
    pub instance_type: String,
    /// The region.
    #[schemars(length(min = 1, max = 63))]
    pub region: String,
    /// The number of units.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub capacity: u32,
    /// The least to ask, in USD per node-hour, with at most six digits after the point.
    #[schemars(extend("pattern" = PRICE))]
    pub reserve: String,
}

/// The state of an offer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OfferStatus {
    /// Its state at the engine.
    #[serde(flatten)]
    pub external: ExternalStatus,
    /// The account that sells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The number of units that stay on offer.
    pub capacity: u32,
    /// Units that nobody holds, and that bids can get.
    pub free: u32,
    /// Units that are held and not under notice.
    pub allocated: u32,
    /// Units under notice that stay.
    pub notice: u32,
    /// Units under notice that leave when it ends.
    pub leaving: u32,
    /// Units that rest because a node on them was not ready in time: no bid gets them until `kubebid offer resume`.
    pub resting: u32,
    /// The earnings of the provider in this market by charges so far, in USD.
    pub earnings: String,
}

impl Managed for Offer {
    fn external(&self) -> Option<&ExternalStatus> {
        self.status.as_ref().map(|status| &status.external)
    }

    fn external_mut(&mut self) -> &mut ExternalStatus {
        &mut self.status.get_or_insert_default().external
    }
}

impl Offer {
    /// Returns true if this account sells, or may: the offer was begun, and its engine has not been asked who sells.
    pub(super) fn is_sold_by(&self, account: &str) -> bool {
        let Some(status) = &self.status else { return false };
        match &status.provider {
            Some(provider) => provider == account,
            None => status.external.origin.is_some(),
        }
    }
}

/// The most calls of one pass that change the capacity of an offer in steps.
const STEPS_MAX: usize = 1000;

/// Offers of one provider: its token says whose.
pub(super) struct Offers {
    engine: Client,
    client: kube::Client,
    /// The markets that are objects in the cluster.
    markets: OnceLock<Watch<Market>>,
}

/// An offer as the engine knows it, and what it has earned.
pub(super) struct OfferDetails {
    offer: v1::Offer,
    earned_micros: u64,
}

impl Offers {
    pub(super) fn new(engine: Client, client: kube::Client) -> Offers {
        Offers { engine, client, markets: OnceLock::new() }
    }

    /// Puts an offer of this capacity and reserve. A change by more units than one command may change is made in steps.
    /// Returns the capacity that was reached.
    async fn put(
        &self,
        request: &Request<'_, Self>,
        there: u32,
        capacity: u32,
        reserve_micros: u64,
    ) -> Result<u32, CallError> {
        let (mut reached, mut most) = (there, u32::MAX);
        for _ in 0..STEPS_MAX {
            let next = capacity.clamp(reached.saturating_sub(most), reached.saturating_add(most));
            let put = v1::PutOfferRequest {
                client_key: format!("{}-{next}-{reserve_micros}", request.idempotency_key),
                market: self.identity(request.object),
                capacity: next,
                reserve_micros,
            };
            let step = next.abs_diff(reached);
            match self.engine.put_offer(put).await {
                Ok(_) if next == capacity => return Ok(next),
                Ok(_) => reached = next,
                Err(error) if step > 1 && is_too_much_at_once(&error) => most = step / 2,
                Err(error) => return Err(call_error::of(error)),
            }
        }
        Ok(reached)
    }

    /// Makes the offer as its object says.
    async fn put_spec(&self, request: &Request<'_, Self>) -> Result<Answer<()>, CallError> {
        let spec = &request.object.spec;
        let Dollars(reserve_micros) = (spec.reserve.parse()).map_err(|error: DollarsError| {
            CallError::terminal("BadReserve", format!("{:?}: {error}", spec.reserve))
        })?;
        let there = self.find(&self.identity(request.object)).await?.map_or(0, |offer| offer.capacity);
        if there == 0 && spec.capacity == 0 {
            return Ok(Answer::done());
        }
        let reached = self.put(request, there, spec.capacity, reserve_micros).await?;
        Ok(if reached == spec.capacity { Answer::done() } else { Answer::in_progress(None) })
    }

    async fn find(&self, market: &str) -> Result<Option<v1::Offer>, CallError> {
        let get = v1::GetOfferRequest { market: market.to_owned(), page_size: 1, ..Default::default() };
        match self.engine.get_offer(get).await {
            Ok(answer) => Ok(answer.offer),
            Err(error) if error.code() == Some(&Code::UnknownOffer) => Ok(None),
            Err(error) => Err(call_error::of(error)),
        }
    }

    /// Returns what the provider has earned in a market by charges that were made. What running nodes accrue is not in it:
    /// it grows all the time, and each change of the status is a write.
    async fn earned(&self, market: &str) -> Result<u64, CallError> {
        let statement = self.engine.all(v1::GetStatementRequest::default()).await.map_err(call_error::of)?;
        let lines = statement.lines.into_iter().filter(|line| line.market == market);
        Ok(lines.filter_map(|line| line.charged).map(|sums| sums.credit_micros).sum())
    }
}

/// Returns true if a command was refused because it would change the capacity by more units than one command may.
fn is_too_much_at_once(error: &Error) -> bool {
    error
        .refusal()
        .is_some_and(|refusal| refusal.metadata.get("limit").is_some_and(|it| it == "units_per_command"))
}

/// Returns true if an offer has no unit left.
fn is_gone(offer: &v1::Offer) -> bool {
    offer.capacity == 0 && offer.free + offer.allocated + offer.notice + offer.leaving == 0
}

/// Returns true if an offer is in a market.
fn is_in(offer: &Offer, market: &Market) -> bool {
    let (offer, market) = (&offer.spec, &market.spec);
    (&offer.instance_type, &offer.region) == (&market.instance_type, &market.region)
}

impl External for Offers {
    type Object = Offer;
    type Payload = ();
    type Details = Option<OfferDetails>;

    const NAME: &'static str = "offers";

    fn identity(&self, object: &Offer) -> String {
        format!("{}/{}", object.spec.instance_type, object.spec.region)
    }

    /// Names the market, if it is an object in the cluster.
    fn dependencies(&self, object: &Offer) -> Vec<Dependency> {
        let markets = self.markets.get().map(Watch::all).unwrap_or_default();
        let own = markets.iter().filter(|market| is_in(object, market));
        own.map(|market| Dependency::on::<Market>(ObjectName::of(market.as_ref()))).collect()
    }

    fn kinds(&self, kinds: &mut DependencyKinds<'_, '_, Offer>) {
        kinds.add::<Market>(Api::all(self.client.clone()), |_| Vec::new());
        let markets = kinds.wake::<Market>(Api::all(self.client.clone()), is_in);
        let _ = self.markets.set(markets);
    }

    async fn observe(&self, request: &Request<'_, Self>) -> Result<(Observed, Self::Details), CallError> {
        let (market, spec) = (self.identity(request.object), &request.object.spec);
        let is_deleted = request.object.metadata.deletion_timestamp.is_some();
        let is_begun = request.object.external().is_some_and(|status| status.origin.is_some());
        // Nothing is to be offered: the engine need not know an offer.
        let is_empty = spec.capacity == 0 && !is_deleted && is_begun;
        let Some(offer) = self.find(&market).await? else {
            return Ok((if is_empty { Observed::Ready } else { Observed::Missing }, None));
        };
        // Without capacity the engine keeps the reserve as it was.
        let has_reserve = spec.capacity == 0 || spec.reserve.parse() == Ok(Dollars(offer.reserve_micros));
        let observed = if is_gone(&offer) && !is_empty {
            Observed::Missing
        } else if is_deleted && offer.capacity == 0 {
            Observed::Deleting
        } else if offer.capacity == spec.capacity && has_reserve {
            Observed::Ready
        } else {
            Observed::UpdateRequired
        };
        let earned_micros = self.earned(&market).await?;
        Ok((observed, Some(OfferDetails { offer, earned_micros })))
    }

    fn describe(&self, details: Self::Details, object: &mut Offer) {
        let status = object.status.get_or_insert_default();
        let Some(OfferDetails { offer, earned_micros }) = details else { return };
        status.provider = Some(offer.provider);
        status.capacity = offer.capacity;
        (status.free, status.allocated) = (offer.free, offer.allocated);
        (status.notice, status.leaving, status.resting) = (offer.notice, offer.leaving, offer.resting);
        status.earnings = Dollars(earned_micros).to_string();
    }

    async fn create(&self, request: &Request<'_, Self>) -> Result<Answer<()>, CallError> {
        self.put_spec(request).await
    }

    async fn update(&self, request: &Request<'_, Self>) -> Result<Answer<()>, CallError> {
        self.put_spec(request).await
    }

    /// Withdraws all units. The offer is gone when the last one under notice is.
    async fn delete(&self, request: &Request<'_, Self>) -> Result<DeleteAnswer, CallError> {
        let market = self.identity(request.object);
        let Some(there) = self.find(&market).await?.filter(|offer| !is_gone(offer)) else {
            return Ok(DeleteAnswer::Gone);
        };
        // Its reserve as it is: the one of the object may be one that the engine refuses.
        self.put(request, there.capacity, 0, there.reserve_micros).await?;
        let there = self.find(&market).await?;
        Ok(if there.as_ref().is_none_or(is_gone) { DeleteAnswer::Gone } else { DeleteAnswer::Accepted })
    }

    fn timing(&self) -> Timing {
        super::TIMING
    }
}
