//! The events of the market: what a command changed, in order.

use crate::types::market_list::MarketList;
use crate::types::money::{Amount, Funds, Price};
use crate::types::numbers::Numbers;
use crate::types::reject::Reject;
use crate::types::units::{AccountId, AllocationId, BidId, InstanceType, MarketId, Micros, Seq, UnitId};

/// A fact with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The instant at which it happened: the time of the command, or an earlier one at which something was due.
    pub at: Micros,
    /// The change itself.
    pub fact: Fact,
}

/// An allocation with its bid, tenant and unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The number of the allocation.
    pub allocation: AllocationId,
    /// The bid that holds the node.
    pub bid: BidId,
    /// The account of the bid.
    pub tenant: AccountId,
    /// The unit. Its `market` and `provider` are those of the allocation.
    pub unit: UnitId,
}

/// A bid as events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bidder {
    /// The number of the bid.
    pub bid: BidId,
    /// The account of the bid.
    pub tenant: AccountId,
}

/// The markets in which a bid looks for nodes (R13).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Markets in the order in which the bid named them.
    Markets(MarketList),
    /// All markets of this instance type, also those that are opened later.
    InstanceType(InstanceType),
}

/// A change of the market. It names markets and accounts by number; [`Names`](crate::units::Names) has the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A market was opened, or a closed one was opened again (R18).
    MarketOpened {
        /// The number of the market.
        market: MarketId,
    },
    /// The rules of a market were changed.
    RulesChanged {
        /// The market whose rules changed.
        market: MarketId,
    },
    /// A market was closed for new bids and offers (R18).
    MarketClosing {
        /// The market that was closed.
        market: MarketId,
    },
    /// A closed market has no units left, and bids search in it no more (R18).
    MarketEnded {
        /// The market that ended.
        market: MarketId,
    },
    /// An offer was put. The fields are those of the offer after the command; with capacity 0 the
    /// reserve is the previous one.
    OfferPut {
        /// The account that offers.
        provider: AccountId,
        /// The market of the offer.
        market: MarketId,
        /// The number of units that are to stay.
        capacity: u64,
        /// The reserve, in micro-dollars per node-hour.
        reserve: Price,
    },
    /// An offer got a new unit, which is free.
    UnitAdded {
        /// The new unit.
        unit: UnitId,
        /// The reserve of the offer, in micro-dollars per node-hour.
        reserve: Price,
    },
    /// A unit that is held leaves when its notice ends (R11).
    UnitLeaving {
        /// The unit that leaves.
        unit: UnitId,
    },
    /// A leaving unit stays after all, because the capacity was raised (R11).
    UnitBack {
        /// The unit that stays.
        unit: UnitId,
    },
    /// The node of a unit was not ready in time: the unit is not given to any bid until its provider resumes it (R11).
    UnitResting {
        /// The unit that rests.
        unit: UnitId,
    },
    /// A resting unit was resumed, and is free (R11).
    UnitResumed {
        /// The unit that is free again.
        unit: UnitId,
    },
    /// A unit is gone: withdrawn, or lost (R11).
    UnitRemoved {
        /// The unit that is gone; its number is not used again.
        unit: UnitId,
    },
    /// A bid was placed.
    BidPlaced {
        /// The new bid.
        bidder: Bidder,
        /// The markets in which it searches.
        scope: Scope,
        /// The ceiling, in micro-dollars per node-hour.
        ceiling: Price,
        /// The number of nodes that it takes at least at entry (R12).
        min_nodes: u32,
        /// The highest number of its live nodes and claims.
        max_nodes: u32,
    },
    /// A bid was amended; the fields are the bid's after the command.
    BidAmended {
        /// The bid that was amended.
        bidder: Bidder,
        /// The ceiling, in micro-dollars per node-hour.
        ceiling: Price,
        /// The highest number of its live nodes and claims.
        max_nodes: u32,
        /// The place of the bid among bids of its ceiling; new only with a new ceiling or an enlargement (R2).
        bid_seq: Seq,
    },
    /// A bid stopped searching. The event occurs once, even if the bid still holds nodes.
    BidClosed {
        /// The bid that stopped searching.
        bidder: Bidder,
        /// The `max_nodes` of the bid at that time.
        max_nodes: u32,
        /// The reason why the search ended.
        reason: CloseReason,
    },
    /// A unit was given to a bid: free, or handed over after a notice (R5).
    Allocated {
        /// The new allocation.
        node: Node,
    },
    /// A node was reported ready; its billing begins (R15).
    Ready {
        /// The node that is ready.
        node: Node,
    },
    /// A notice began (R5, R11).
    NoticeStarted {
        /// The node that is to be given up.
        node: Node,
        /// The time at which the node ends unless the notice is rescinded, in microseconds since 1970.
        deadline: Micros,
        /// The `max_nodes` of the holder; one less than before with CLOSE (R7).
        max_nodes: u32,
        /// The reason of the notice.
        reason: NoticeReason,
    },
    /// The deadline of a notice became an earlier one, because the account of its holder cannot pay for longer (R19).
    NoticeMoved {
        /// The node that is to be given up.
        node: Node,
        /// The new deadline, in microseconds since 1970.
        deadline: Micros,
    },
    /// A notice was taken back: the holder keeps its node (R6).
    NoticeRescinded {
        /// The node that is no longer under notice.
        node: Node,
        /// The `max_nodes` of the holder after it; one more than before if the notice had lowered it (R7).
        max_nodes: u32,
    },
    /// A bid got a claim on the unit of a node under notice.
    Claimed {
        /// The node under notice, with its present holder.
        node: Node,
        /// The bid that gets the unit when the notice ends.
        by: Bidder,
        /// The bid that loses its claim to `by`; None unless the cause is [`ClaimCause::ClaimDisplaced`].
        was: Option<Bidder>,
        /// The way in which the claim was made.
        cause: ClaimCause,
    },
    /// A claim was lost or given up, and no other bid has taken it over.
    ClaimDropped {
        /// The node that was claimed, with its present holder.
        node: Node,
        /// The bid that had the claim.
        by: Bidder,
        /// The reason why the claim was lost.
        cause: DropCause,
    },
    /// An allocation ended.
    Ended {
        /// The node that its tenant no longer has.
        node: Node,
        /// The `max_nodes` of the bid after it; one less than before if the end lowered it (R7, R14).
        max_nodes: u32,
        /// The reason of the end.
        reason: EndReason,
    },
    /// A node or a claim was charged. The holder of the node pays, or with `CLAIM_DROPPED` the tenant
    /// of the claim.
    Charged {
        /// The node that is billed, or with `CLAIM_DROPPED` the node that was claimed; its provider is credited.
        node: Node,
        /// The account that pays.
        tenant: AccountId,
        /// The amount that the tenant pays, in micro-dollars; never 0.
        debit: Amount,
        /// The part of the debit that the marketplace keeps, in micro-dollars; the provider gets the rest.
        fee: Amount,
        /// The reason of the charge.
        reason: ChargeReason,
    },
    /// One of the five numbers of a market changed (R9).
    PriceChanged {
        /// The market of the numbers.
        market: MarketId,
        /// All five numbers after the change.
        numbers: Numbers,
    },
    /// The funds of an account were changed (R19).
    Funded {
        /// The account.
        account: AccountId,
        /// Its funds after the command, in micro-dollars; None if it is unlimited, and then it has no budget.
        funds: Option<Funds>,
    },
    /// The monthly budget of an account was set or ended (R19).
    BudgetSet {
        /// The account.
        account: AccountId,
        /// The amount of each month, in micro-dollars; None if the budget was ended.
        monthly: Option<i64>,
        /// True if the amount is added to what is left; false without an amount.
        roll_over: bool,
        /// The funds after the command, in micro-dollars; None if the account is unlimited.
        funds: Option<Funds>,
    },
    /// A month began, and an account got its budget (R19).
    BudgetRenewed {
        /// The account.
        account: AccountId,
        /// Its funds after that, in micro-dollars.
        funds: Funds,
    },
    /// The time between renewals was set, for each account from its next renewal (R19).
    RenewalSet {
        /// The time, in microseconds.
        renewal: Micros,
    },
    /// A command was refused, and changed nothing (R16).
    Rejected {
        /// The reason of the refusal.
        reason: Reject,
    },
    /// A command repeated an earlier one: its key was used with the same content (R16).
    Repeated {
        /// The number of the first command with this key.
        first: Seq,
    },
}

macro_rules! event_kinds {
    ($($kind:ident = $word:literal,)*) => {
        /// The kinds of events, in the order of the fields of `Event.kind` in `event.proto`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind {
            $(#[doc = concat!("`", $word, "`")] $kind,)*
        }

        impl EventKind {
            /// All kinds, in the order of their declaration.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$kind,)*];

            /// Returns the name that metrics use, as in `BidPlaced`.
            pub fn name(self) -> &'static str {
                match self {
                    $(EventKind::$kind => stringify!($kind),)*
                }
            }

            /// Returns the name that filters and messages use, as in `bid_placed`.
            pub fn word(self) -> &'static str {
                match self {
                    $(EventKind::$kind => $word,)*
                }
            }

            /// Returns the kind with this [word](EventKind::word).
            pub fn of_word(word: &str) -> Option<EventKind> {
                match word {
                    $($word => Some(EventKind::$kind),)*
                    _ => None,
                }
            }
        }

        impl Fact {
            /// Returns the kind of this fact.
            pub fn kind(&self) -> EventKind {
                match self {
                    $(Fact::$kind { .. } => EventKind::$kind,)*
                }
            }
        }
    };
}

event_kinds! {
    MarketOpened = "market_opened",
    RulesChanged = "rules_changed",
    OfferPut = "offer_put",
    UnitAdded = "unit_added",
    UnitLeaving = "unit_leaving",
    UnitBack = "unit_back",
    UnitRemoved = "unit_removed",
    BidPlaced = "bid_placed",
    BidAmended = "bid_amended",
    BidClosed = "bid_closed",
    Allocated = "allocated",
    Ready = "ready",
    NoticeStarted = "notice_started",
    NoticeRescinded = "notice_rescinded",
    Claimed = "claimed",
    ClaimDropped = "claim_dropped",
    Ended = "ended",
    Charged = "charged",
    PriceChanged = "price_changed",
    Rejected = "rejected",
    Repeated = "repeated",
    MarketClosing = "market_closing",
    MarketEnded = "market_ended",
    UnitResting = "unit_resting",
    UnitResumed = "unit_resumed",
    NoticeMoved = "notice_moved",
    Funded = "funded",
    BudgetSet = "budget_set",
    BudgetRenewed = "budget_renewed",
    RenewalSet = "renewal_set",
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The stable word, as events and answers use it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }
    )*};
}

words! {
    /// Why a bid stopped searching.
    CloseReason {
        /// The time `expire_at` was reached (R14).
        Expired = "EXPIRED",
        /// The command of the IOC bid was settled (R14).
        Ioc = "IOC",
        /// The tenant cancelled the bid (R14).
        Cancelled = "CANCELLED",
        /// The bid wants no more nodes.
        Done = "DONE",
        /// Every market that the bid names has ended (R18).
        MarketClosed = "MARKET_CLOSED",
    }
    /// Why a node is to be given up.
    NoticeReason {
        /// A bid with a high enough ceiling displaced the holder (R4, R5).
        Outbid = "OUTBID",
        /// The provider withdrew the unit (R11).
        CapacityWithdrawn = "CAPACITY_WITHDRAWN",
        /// The provider raised the reserve above the holder's ceiling (R11).
        ReserveRaised = "RESERVE_RAISED",
        /// The holder's account cannot pay for the node for longer (R19).
        Funds = "FUNDS",
    }
    /// The cause of a claim.
    ClaimCause {
        /// The claimant displaced the holder, whose notice began (R5).
        Displaced = "DISPLACED",
        /// The claimant displaced another claim; the deadline stays (R5).
        ClaimDisplaced = "CLAIM_DISPLACED",
        /// The claimant took a standing notice (R6).
        Standing = "STANDING",
        /// The claimant got an orphan (R6).
        PassedOn = "PASSED_ON",
    }
    /// Why a claim was lost.
    DropCause {
        /// The claimant gave up the claim for a free unit, or for its own node that came back.
        Rescued = "RESCUED",
        /// The holder of the claimed node displaced the claim.
        HolderBack = "HOLDER_BACK",
        /// The holder raised its ceiling so far that R4 would not allow the claim (R6).
        HolderRaised = "HOLDER_RAISED",
        /// The claimant lowered its ceiling below what the claim needs (R2).
        Lowered = "LOWERED",
        /// The claimant lowered its `max_nodes` (R2).
        Shrunk = "SHRUNK",
        /// The bid that had the claim was cancelled (R14).
        Cancelled = "CANCELLED",
        /// The bid that had the claim expired (R14).
        Expired = "EXPIRED",
        /// The bid that had the claim was regrouped (R14).
        Regrouped = "REGROUPED",
        /// The claimant's account began to sell in the market (R17).
        OwnSupply = "OWN_SUPPLY",
        /// The provider raised the reserve above the claimant's ceiling (R11).
        ReserveRaised = "RESERVE_RAISED",
        /// The provider withdrew the unit (R11).
        CapacityWithdrawn = "CAPACITY_WITHDRAWN",
        /// The provider reported the unit lost (R11).
        UnitLost = "UNIT_LOST",
        /// The node was not reported ready in time (R11).
        StartTimeout = "START_TIMEOUT",
    }
    /// Why a node ended.
    EndReason {
        /// The deadline of an `OUTBID` notice was reached (R5).
        Outbid = "OUTBID",
        /// The deadline of a `CAPACITY_WITHDRAWN` notice was reached (R11).
        CapacityWithdrawn = "CAPACITY_WITHDRAWN",
        /// The deadline of a `RESERVE_RAISED` notice was reached (R11).
        ReserveRaised = "RESERVE_RAISED",
        /// The tenant released the node, or cancelled its bid with `RELEASE` (R14).
        Released = "RELEASED",
        /// The tenant regrouped the bid of the node (R14).
        Regrouped = "REGROUPED",
        /// The provider reported the unit lost (R11).
        UnitLost = "UNIT_LOST",
        /// The node was not reported ready in time (R11).
        StartTimeout = "START_TIMEOUT",
        /// The deadline of a `FUNDS` notice was reached (R19).
        Funds = "FUNDS",
    }
    /// The reason of a charge.
    ChargeReason {
        /// The node ended as `OUTBID`.
        Outbid = "OUTBID",
        /// The node ended as `CAPACITY_WITHDRAWN`.
        CapacityWithdrawn = "CAPACITY_WITHDRAWN",
        /// The node ended as `RESERVE_RAISED`.
        ReserveRaised = "RESERVE_RAISED",
        /// The tenant released the node; if it was not under notice, at least `min_charge` is billed (R15).
        Released = "RELEASED",
        /// The tenant regrouped the bid of the node, which is charged like a release (R14, R15).
        Regrouped = "REGROUPED",
        /// The unit was lost after the minimum runtime of its node; a unit lost earlier is free of charge (R15).
        UnitLost = "UNIT_LOST",
        /// The node was never ready, so that no event has this reason (R15).
        StartTimeout = "START_TIMEOUT",
        /// A claim ended in a way that costs `min_charge` (R15).
        ClaimDropped = "CLAIM_DROPPED",
        /// The node ended as `FUNDS`; at least `min_charge` is billed (R19).
        Funds = "FUNDS",
    }
}

impl From<NoticeReason> for EndReason {
    fn from(reason: NoticeReason) -> EndReason {
        match reason {
            NoticeReason::Outbid => EndReason::Outbid,
            NoticeReason::CapacityWithdrawn => EndReason::CapacityWithdrawn,
            NoticeReason::ReserveRaised => EndReason::ReserveRaised,
            NoticeReason::Funds => EndReason::Funds,
        }
    }
}

impl From<EndReason> for ChargeReason {
    fn from(reason: EndReason) -> ChargeReason {
        match reason {
            EndReason::Outbid => ChargeReason::Outbid,
            EndReason::CapacityWithdrawn => ChargeReason::CapacityWithdrawn,
            EndReason::ReserveRaised => ChargeReason::ReserveRaised,
            EndReason::Released => ChargeReason::Released,
            EndReason::Regrouped => ChargeReason::Regrouped,
            EndReason::UnitLost => ChargeReason::UnitLost,
            EndReason::StartTimeout => ChargeReason::StartTimeout,
            EndReason::Funds => ChargeReason::Funds,
        }
    }
}
