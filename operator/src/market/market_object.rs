//! `Market`: an instance type in a region, with its rules.

use super::call_error;
use super::instance_type::InstanceType;
use kube::{Api, CustomResource, KubeSchema};
use kubebid_client::{Client, Code, v1};
use kubebid_controller::ObjectName;
use kubebid_controller::external::permissions::Permissions;
use kubebid_controller::external::{
    Answer, CallError, DeleteAnswer, Dependency, DependencyKinds, External, ExternalStatus, Managed,
    Observed, Request, Timing,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A market of the KubeBid auction: an instance type in a region.
#[derive(CustomResource, KubeSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "market.kubebid.io",
    version = "v1alpha1",
    kind = "Market",
    status = "ExternalStatus",
    doc = "A market of the KubeBid auction: an instance type in a region.",
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.instanceType"),
    printcolumn(name = "Region", type_ = "string", json_path = ".spec.region"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("self.instanceType == oldSelf.instanceType && self.region == oldSelf.region")
        .message("instanceType and region cannot be changed: make another Market")
)]
#[serde(rename_all = "camelCase")]
pub struct MarketSpec {
    /// The instance type: the name of an InstanceType, which must be ready first.
    #[schemars(length(min = 1, max = 63))]
    pub instance_type: String,
    /// The region.
    #[schemars(length(min = 1, max = 63))]
    pub region: String,
    /// The rules. One that is absent has its default in a new market and keeps its value afterwards.
    #[serde(default)]
    pub rules: MarketRules,
}

/// The rules of a market, as in the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MarketRules {
    /// Every price is a multiple of it, in micro-dollars; it cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_micros: Option<u64>,
    /// The amount that a challenger must offer above the ceiling that it displaces, in 1/10000 of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increment_bps: Option<u32>,
    /// The highest ceiling that is taken, in micro-dollars per node-hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_max_micros: Option<u64>,
    /// The number of nodes that one bid may want at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bid_nodes_max: Option<u32>,
    /// The time for which a node that is ready cannot be displaced, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_runtime_us: Option<u64>,
    /// The time for which a holder keeps a node that was taken from it, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice_us: Option<u64>,
    /// The time that a node may take to become ready, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_us: Option<u64>,
    /// The least time that a released node is billed for, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_charge_us: Option<u64>,
    /// The marketplace's part of a debit, in 1/10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fee_bps: Option<u32>,
    /// The price that holders pay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pricing: Option<Pricing>,
}

/// The price that the holders of nodes pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Pricing {
    /// The highest losing bid or the highest reserve.
    HighestLosing,
    /// The lowest accepted ceiling.
    LowestAccepted,
}

impl Managed for Market {
    fn external(&self) -> Option<&ExternalStatus> {
        self.status.as_ref()
    }

    fn external_mut(&mut self) -> &mut ExternalStatus {
        self.status.get_or_insert_default()
    }
}

impl MarketRules {
    fn to_api(&self) -> v1::MarketRules {
        let pricing = self.pricing.map(|pricing| match pricing {
            Pricing::HighestLosing => v1::market_rules::Pricing::HighestLosing,
            Pricing::LowestAccepted => v1::market_rules::Pricing::LowestAccepted,
        });
        v1::MarketRules {
            tick_micros: self.tick_micros,
            increment_bps: self.increment_bps,
            ceiling_max_micros: self.ceiling_max_micros,
            bid_nodes_max: self.bid_nodes_max,
            min_runtime_us: self.min_runtime_us,
            notice_us: self.notice_us,
            start_timeout_us: self.start_timeout_us,
            min_charge_us: self.min_charge_us,
            fee_bps: self.fee_bps,
            pricing: pricing.map(Into::into),
        }
    }
}

/// Returns true if each rule that is wanted is as it is wanted.
fn has_rules(there: &v1::MarketRules, wanted: &v1::MarketRules) -> bool {
    fn is<T: PartialEq>(there: Option<T>, wanted: Option<T>) -> bool {
        wanted.is_none() || there == wanted
    }
    is(there.tick_micros, wanted.tick_micros)
        && is(there.increment_bps, wanted.increment_bps)
        && is(there.ceiling_max_micros, wanted.ceiling_max_micros)
        && is(there.bid_nodes_max, wanted.bid_nodes_max)
        && is(there.min_runtime_us, wanted.min_runtime_us)
        && is(there.notice_us, wanted.notice_us)
        && is(there.start_timeout_us, wanted.start_timeout_us)
        && is(there.min_charge_us, wanted.min_charge_us)
        && is(there.fee_bps, wanted.fee_bps)
        && is(there.pricing, wanted.pricing)
}

/// Markets at the engine. The operator removes none.
pub(super) struct Markets {
    pub(super) engine: Client,
    pub(super) client: kube::Client,
}

impl External for Markets {
    type Object = Market;
    type Payload = ();
    type Details = ();

    const NAME: &'static str = "markets";
    const PERMISSIONS: Permissions = Permissions { delete: false, ..Permissions::ALL };

    fn identity(&self, object: &Market) -> String {
        format!("{}/{}", object.spec.instance_type, object.spec.region)
    }

    fn dependencies(&self, object: &Market) -> Vec<Dependency> {
        let name = ObjectName { namespace: String::new(), name: object.spec.instance_type.clone() };
        vec![Dependency::on::<InstanceType>(name)]
    }

    fn kinds(&self, kinds: &mut DependencyKinds<'_, '_, Market>) {
        kinds.add::<InstanceType>(Api::all(self.client.clone()), |_| Vec::new());
    }

    async fn observe(&self, request: &Request<'_, Self>) -> Result<(Observed, ()), CallError> {
        let spec = &request.object.spec;
        let list = v1::ListMarketsRequest {
            instance_type: spec.instance_type.clone(),
            region: spec.region.clone(),
            ..Default::default()
        };
        let listed = self.engine.list_markets(list).await.map_err(call_error::of)?;
        let Some(there) = listed.markets.into_iter().next() else { return Ok((Observed::Missing, ())) };
        let (there, wanted) = (there.rules.unwrap_or_default(), spec.rules.to_api());
        let observed = if wanted.tick_micros.is_some() && there.tick_micros != wanted.tick_micros {
            Observed::RecreateRequired
        } else if has_rules(&there, &wanted) {
            Observed::Ready
        } else {
            Observed::UpdateRequired
        };
        Ok((observed, ()))
    }

    fn why_recreate(&self, _: &Market) -> Option<String> {
        Some("the tick of a market cannot be changed".to_owned())
    }

    async fn create(&self, request: &Request<'_, Self>) -> Result<Answer<()>, CallError> {
        let (market, rules) = (self.identity(request.object), request.object.spec.rules.to_api());
        let open = v1::OpenMarketRequest { market, rules: Some(rules) };
        match self.engine.open_market(open).await {
            Ok(_) => Ok(Answer::done()),
            Err(error) if error.code() == Some(&Code::MarketExists) => {
                Err(CallError::already_exists(error.to_string()))
            }
            Err(error) => Err(call_error::of(error)),
        }
    }

    async fn update(&self, request: &Request<'_, Self>) -> Result<Answer<()>, CallError> {
        let rules = v1::MarketRules { tick_micros: None, ..request.object.spec.rules.to_api() };
        let change = v1::ChangeRulesRequest { market: self.identity(request.object), rules: Some(rules) };
        self.engine.change_rules(change).await.map_err(call_error::of)?;
        Ok(Answer::done())
    }

    async fn delete(&self, _: &Request<'_, Self>) -> Result<DeleteAnswer, CallError> {
        Err(CallError::terminal(
            "NotRemovable",
            "the operator closes no market; an administrator does: kubebid market close",
        ))
    }

    fn timing(&self) -> Timing {
        super::TIMING
    }
}
