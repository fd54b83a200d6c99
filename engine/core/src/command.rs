//! The commands of the market. The journal holds these and nothing else.

pub use crate::types::market_rules::{RuleChange, RuleValue};
use crate::types::money::Price;
use crate::types::units::{
    AccountName, AllocationId, BidId, ClientKey, InstanceType, MarketName, Micros, UnitName,
};

/// A command as the journal has it: when, under which client key, what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// A time in the past counts as now.
    pub at: Micros,
    /// Idempotency key of the command's account (R16); ignored on commands that have none.
    pub key: Option<ClientKey>,
    pub command: Command,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    OpenMarket {
        market: MarketName,
        rules: Vec<RuleChange>,
    },
    ChangeRules {
        market: MarketName,
        rules: Vec<RuleChange>,
    },
    /// Capacity 0 withdraws all units and leaves the reserve as it was.
    PutOffer {
        provider: AccountName,
        market: MarketName,
        capacity: u64,
        reserve: Price,
    },
    WithdrawUnit {
        provider: AccountName,
        unit: UnitName,
    },
    ReportUnitLost {
        provider: AccountName,
        unit: UnitName,
    },
    PlaceBid(PlaceBid),
    AmendBid {
        tenant: AccountName,
        bid: BidId,
        ceiling: Option<Price>,
        max_nodes: Option<u32>,
    },
    CancelBid {
        tenant: AccountName,
        bid: BidId,
        mode: CancelMode,
    },
    ReleaseAllocation {
        tenant: AccountName,
        allocation: AllocationId,
    },
    /// Without `by` the right to report is not checked.
    ReportReady {
        allocation: AllocationId,
        by: Option<AccountName>,
    },
    AdvanceTime,
}

impl Command {
    /// The account the command belongs to, whose keys it may use.
    pub fn account(&self) -> Option<&AccountName> {
        match self {
            Command::PutOffer { provider, .. }
            | Command::WithdrawUnit { provider, .. }
            | Command::ReportUnitLost { provider, .. } => Some(provider),
            Command::PlaceBid(PlaceBid { tenant, .. })
            | Command::AmendBid { tenant, .. }
            | Command::CancelBid { tenant, .. }
            | Command::ReleaseAllocation { tenant, .. } => Some(tenant),
            Command::ReportReady { by, .. } => by.as_ref(),
            Command::OpenMarket { .. } | Command::ChangeRules { .. } | Command::AdvanceTime => None,
        }
    }
}

/// A tenant's standing order for nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceBid {
    pub tenant: AccountName,
    /// Either these, by name, …
    pub markets: Option<Vec<MarketName>>,
    /// … or every market of this type, also those opened later (R13).
    pub instance_type: Option<InstanceType>,
    /// The most it ever pays per node-hour.
    pub ceiling: Price,
    pub min_nodes: u32,
    pub max_nodes: u32,
    pub time_in_force: TimeInForce,
    /// Only with [`TimeInForce::Gtt`], and always with it.
    pub expire_at: Option<Micros>,
    pub on_preemption: OnPreemption,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TimeInForce {
    /// Good till cancelled.
    #[default]
    Gtc,
    /// Good till `expire_at`.
    Gtt,
    /// Immediate or cancel.
    Ioc,
    /// No such time in force: BAD_TIF.
    Unknown(Box<str>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnPreemption {
    /// A node under notice becomes unmet demand of its bid again.
    #[default]
    Requeue,
    /// `max_nodes` falls by one instead (R7).
    Close,
    /// No such behaviour: BAD_ON_PREEMPTION.
    Unknown(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelMode {
    /// Nodes stay until outbid.
    Keep,
    /// Nodes end at once.
    Release,
    /// No such mode: BAD_MODE.
    Unknown(Box<str>),
}
