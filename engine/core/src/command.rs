//! The commands of the market. The journal holds these and nothing else.

pub use crate::types::market_rules::{RuleChange, RuleValue};
use crate::types::money::Price;
use crate::types::units::{
    AccountName, AllocationId, BidId, ClientKey, InstanceType, MarketName, Micros, UnitName,
};

/// A command as the journal has it, with its time and its client key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StampedCommand {
    /// The time of the command. A time in the past counts as the present.
    pub at: Micros,
    /// The idempotency key of the command's account (R16). It has no effect on commands without an
    /// account.
    pub key: Option<ClientKey>,
    /// The request itself.
    pub command: Command,
}

/// A request to the market; its order in the journal is the order in which it is applied (R1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Opens a market with the default rules, changed by `rules`. A closed market is opened again with the rules that
    /// it had, changed by `rules` (R18).
    OpenMarket {
        /// The name of the market: `type/region`.
        market: MarketName,
        /// The rules that differ from the defaults, or from those it had; may be empty.
        rules: Vec<RuleChange>,
    },
    /// Changes rules of a market. Deadlines and protections that were already given stand.
    ChangeRules {
        /// The market whose rules change.
        market: MarketName,
        /// The rules that change; a change of the tick is refused.
        rules: Vec<RuleChange>,
    },
    /// Closes a market for new bids and offers; it ends when it has no units (R18).
    CloseMarket {
        /// The market to close.
        market: MarketName,
    },
    /// Puts an offer (R11). Capacity 0 withdraws all units, and leaves the reserve as it was.
    PutOffer {
        /// The account that offers.
        provider: AccountName,
        /// The market in which it offers.
        market: MarketName,
        /// The number of units that are to stay, at most [`OFFER_UNITS_MAX`](crate::market_rules::OFFER_UNITS_MAX).
        capacity: u64,
        /// The least that a unit costs, in micro-dollars per node-hour; a multiple of the tick, may be 0.
        reserve: Price,
    },
    /// Withdraws one named unit; the capacity of its offer falls by one (R11).
    WithdrawUnit {
        /// The account that sends the command; the unit must be its own.
        provider: AccountName,
        /// The unit that is to leave.
        unit: UnitName,
    },
    /// Reports a unit as lost: its allocation ends at once, and the capacity falls by one (R11).
    ReportUnitLost {
        /// The account that sends the command; the unit must be its own.
        provider: AccountName,
        /// The unit that is lost.
        unit: UnitName,
    },
    /// Makes resting units free again, at the reserve of their offer (R11).
    ResumeUnits {
        /// The account that sends the command; the units must be its own.
        provider: AccountName,
        /// The units to resume.
        units: RestingUnits,
    },
    /// Places a bid; the number of this command becomes its [`BidId`].
    PlaceBid(PlaceBid),
    /// Changes the ceiling, the `max_nodes`, or both, of a bid (R2).
    AmendBid {
        /// The account that sends the command; the bid must be its own.
        tenant: AccountName,
        /// The bid to change.
        bid: BidId,
        /// The new ceiling, in micro-dollars per node-hour; None keeps the old one.
        ceiling: Option<Price>,
        /// The new limit of live nodes and claims; None keeps the old one.
        max_nodes: Option<u32>,
    },
    /// Ends the search of a bid and drops its claims (R14).
    CancelBid {
        /// The account that sends the command; the bid must be its own.
        tenant: AccountName,
        /// The bid to cancel.
        bid: BidId,
        /// The effect on the nodes that the bid holds.
        mode: CancelMode,
    },
    /// Gives a node back: its allocation ends at once, under notice or not (R14).
    ReleaseAllocation {
        /// The account that sends the command; the allocation must be its own.
        tenant: AccountName,
        /// The allocation to end.
        allocation: AllocationId,
    },
    /// Reports that a node runs (R15). Without `by`, the right to report is not checked.
    ReportReady {
        /// The allocation whose node runs; billing begins with the first report (R15).
        allocation: AllocationId,
        /// The account that reports: the tenant, or the provider of the unit.
        by: Option<AccountName>,
    },
    /// Settles what is due by the time of the command, and does nothing else (R1).
    AdvanceTime,
    /// Changes the funds of an account (R19). It needs a client key, from the account's keys of funds (R16).
    Fund {
        /// The account whose funds change. An account that no command has named is created.
        account: AccountName,
        /// The change.
        change: FundChange,
    },
    /// Sets or ends the monthly budget of an account (R19). An unlimited account becomes funded with it.
    SetBudget {
        /// The account of the budget. An account that no command has named is created.
        account: AccountName,
        /// The amount of each month, in micro-dollars, from 0 to [`FUND_MAX`]; None ends the budget.
        monthly: Option<i64>,
        /// True if the amount is added to what is left at the end of a month. It has no effect without an amount.
        roll_over: bool,
    },
    /// Sets the time between two renewals of a funded account, for each account from its next renewal (R19).
    SetRenewal {
        /// The time, in microseconds, within [`RENEWAL_RANGE`].
        renewal: Micros,
    },
}

/// The largest amount of a [`Command::Fund`] or [`Command::SetBudget`], in micro-dollars.
pub const FUND_MAX: i64 = 1_000_000_000_000_000_000;

/// The time between two renewals of a funded account until a command sets it, in microseconds (R19).
pub const DEFAULT_RENEWAL: Micros = Micros::seconds(300);

/// The times that [`Command::SetRenewal`] may set.
pub const RENEWAL_RANGE: std::ops::RangeInclusive<Micros> = Micros::seconds(1)..=Micros::DAY;

/// A change of the funds of an account (R19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FundChange {
    /// Adds an amount in micro-dollars, which may be negative: a cut. From −[`FUND_MAX`] to [`FUND_MAX`].
    Add(i64),
    /// Sets what is left to spend, in micro-dollars, from 0 to [`FUND_MAX`].
    Set(i64),
    /// Makes the account unlimited, and ends its budget.
    Unlimited,
}

impl Command {
    /// Returns the account to which the command belongs: that of the sender, or the one that is funded. Its keys
    /// are those of [`Command::key_space`].
    pub fn account(&self) -> Option<&AccountName> {
        match self {
            Command::PutOffer { provider, .. }
            | Command::WithdrawUnit { provider, .. }
            | Command::ReportUnitLost { provider, .. }
            | Command::ResumeUnits { provider, .. } => Some(provider),
            Command::PlaceBid(PlaceBid { tenant, .. })
            | Command::AmendBid { tenant, .. }
            | Command::CancelBid { tenant, .. }
            | Command::ReleaseAllocation { tenant, .. } => Some(tenant),
            Command::ReportReady { by, .. } => by.as_ref(),
            Command::Fund { account, .. } | Command::SetBudget { account, .. } => Some(account),
            Command::OpenMarket { .. }
            | Command::ChangeRules { .. }
            | Command::CloseMarket { .. }
            | Command::SetRenewal { .. }
            | Command::AdvanceTime => None,
        }
    }

    /// Returns the space of the command's client key. Equal keys of one account in two spaces are two keys (R16).
    pub fn key_space(&self) -> KeySpace {
        match self {
            Command::Fund { .. } | Command::SetBudget { .. } => KeySpace::Funds,
            Command::PutOffer { .. }
            | Command::WithdrawUnit { .. }
            | Command::ReportUnitLost { .. }
            | Command::ResumeUnits { .. }
            | Command::PlaceBid(_)
            | Command::AmendBid { .. }
            | Command::CancelBid { .. }
            | Command::ReleaseAllocation { .. }
            | Command::ReportReady { .. }
            | Command::OpenMarket { .. }
            | Command::ChangeRules { .. }
            | Command::CloseMarket { .. }
            | Command::SetRenewal { .. }
            | Command::AdvanceTime => KeySpace::Account,
        }
    }
}

/// A space of client keys of one account (R16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeySpace {
    /// The keys of the commands that the account sends.
    Account,
    /// The keys of the commands that give the account funds or a budget (R19).
    Funds,
}

/// The resting units that a provider resumes (R11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestingUnits {
    /// One unit; it is refused if it does not rest.
    One(UnitName),
    /// All resting units of the provider's offer in this market, of which there may be none.
    AllIn(MarketName),
}

/// A tenant's standing order for nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceBid {
    /// The account that bids.
    pub tenant: AccountName,
    /// The markets by name. A bid has either these or an instance type.
    pub markets: Option<Vec<MarketName>>,
    /// The instance type. The bid searches in every market of this type, also in those opened later
    /// (R13).
    pub instance_type: Option<InstanceType>,
    /// The most it ever pays per node-hour.
    pub ceiling: Price,
    /// The number of nodes that the bid takes at least at entry, in one market, or none (R12); at least 1.
    pub min_nodes: u32,
    /// The highest number of live nodes and claims, in all markets together; at least `min_nodes`.
    pub max_nodes: u32,
    /// The time in force (R14).
    pub time_in_force: TimeInForce,
    /// The end of the search. It is set with [`TimeInForce::Gtt`], and with no other.
    pub expire_at: Option<Micros>,
    /// The effect of a notice on `max_nodes` (R7).
    pub on_preemption: OnPreemption,
}

/// The time for which a bid searches (R14).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TimeInForce {
    /// Good till cancelled.
    #[default]
    Gtc,
    /// Good till `expire_at`.
    Gtt,
    /// Immediate or cancel.
    Ioc,
    /// An unknown time in force, which is refused as BAD_TIF.
    Unknown(Box<str>),
}

/// The effect on a bid when the market takes a node from it (R7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnPreemption {
    /// A node under notice becomes unmet demand of its bid again.
    #[default]
    Requeue,
    /// `max_nodes` falls by one instead (R7).
    Close,
    /// An unknown behaviour, which is refused as BAD_ON_PREEMPTION.
    Unknown(Box<str>),
}

/// The effect of cancelling on the nodes that the bid holds (R14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelMode {
    /// Its nodes stay until another bid displaces them.
    Keep,
    /// Its nodes end at once.
    Release,
    /// Its nodes end at once, and the search goes on. Only for a bid that waits for a minimum at entry.
    Regroup,
    /// An unknown mode, which is refused as BAD_MODE.
    Unknown(Box<str>),
}
