//! The events of the market: what a command changed, in order.

use crate::types::market_list::MarketList;
use crate::types::money::{Amount, Price};
use crate::types::numbers::Numbers;
use crate::types::reject::Reject;
use crate::types::units::{AccountId, AllocationId, BidId, InstanceType, MarketId, Micros, Seq, UnitId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Micros,
    pub fact: Fact,
}

/// An allocation with its bid, tenant and unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub allocation: AllocationId,
    pub bid: BidId,
    pub tenant: AccountId,
    /// Its `market` and `provider` are those of the allocation.
    pub unit: UnitId,
}

/// A bid as events tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bidder {
    pub bid: BidId,
    pub tenant: AccountId,
}

/// The markets in which a bid looks for nodes (R13).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Markets in the order in which the bid named them.
    Markets(MarketList),
    InstanceType(InstanceType),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    MarketOpened {
        market: MarketId,
    },
    RulesChanged {
        market: MarketId,
    },
    /// The offer as it is after the command. With capacity 0 the reserve is the previous one.
    OfferPut {
        provider: AccountId,
        market: MarketId,
        capacity: u64,
        reserve: Price,
    },
    UnitAdded {
        unit: UnitId,
        reserve: Price,
    },
    UnitLeaving {
        unit: UnitId,
    },
    UnitBack {
        unit: UnitId,
    },
    UnitRemoved {
        unit: UnitId,
    },
    BidPlaced {
        bidder: Bidder,
        scope: Scope,
        ceiling: Price,
        min_nodes: u32,
        max_nodes: u32,
    },
    BidAmended {
        bidder: Bidder,
        ceiling: Price,
        max_nodes: u32,
        bid_seq: Seq,
    },
    /// Written once, when the search ends, even if nodes are held.
    BidClosed {
        bidder: Bidder,
        max_nodes: u32,
        reason: CloseReason,
    },
    Allocated {
        node: Node,
    },
    Ready {
        node: Node,
    },
    /// `max_nodes` is the holder's after it.
    NoticeStarted {
        node: Node,
        deadline: Micros,
        max_nodes: u32,
        reason: NoticeReason,
    },
    NoticeRescinded {
        node: Node,
        max_nodes: u32,
    },
    /// `by` has a claim on the unit of `node`, which is under notice.
    Claimed {
        node: Node,
        by: Bidder,
        was: Option<Bidder>,
        cause: ClaimCause,
    },
    ClaimDropped {
        node: Node,
        by: Bidder,
        cause: DropCause,
    },
    Ended {
        node: Node,
        max_nodes: u32,
        reason: EndReason,
    },
    /// `tenant` pays: the holder of the node, or with `CLAIM_DROPPED` the claim's.
    Charged {
        node: Node,
        tenant: AccountId,
        debit: Amount,
        fee: Amount,
        reason: ChargeReason,
    },
    PriceChanged {
        market: MarketId,
        numbers: Numbers,
    },
    Rejected {
        reason: Reject,
    },
    /// The key was known with the same content; `first` is the number of the first answer.
    Repeated {
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
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl $name {
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
        Expired = "EXPIRED",
        Ioc = "IOC",
        Cancelled = "CANCELLED",
        /// Nothing is wanted any more.
        Done = "DONE",
    }
    /// Why a node is to be given up.
    NoticeReason {
        Outbid = "OUTBID",
        CapacityWithdrawn = "CAPACITY_WITHDRAWN",
        ReserveRaised = "RESERVE_RAISED",
    }
    /// The cause of a claim.
    ClaimCause {
        Displaced = "DISPLACED",
        ClaimDisplaced = "CLAIM_DISPLACED",
        Standing = "STANDING",
        PassedOn = "PASSED_ON",
    }
    /// Why a claim was lost.
    DropCause {
        /// Given up for a free unit, or for a node of one's own that comes back.
        Rescued = "RESCUED",
        /// Displaced by the holder of its node.
        HolderBack = "HOLDER_BACK",
        HolderRaised = "HOLDER_RAISED",
        Lowered = "LOWERED",
        Shrunk = "SHRUNK",
        Cancelled = "CANCELLED",
        Expired = "EXPIRED",
        OwnSupply = "OWN_SUPPLY",
        ReserveRaised = "RESERVE_RAISED",
        CapacityWithdrawn = "CAPACITY_WITHDRAWN",
        UnitLost = "UNIT_LOST",
        StartTimeout = "START_TIMEOUT",
    }
    /// Why a node ended.
    EndReason {
        Outbid = "OUTBID",
        CapacityWithdrawn = "CAPACITY_WITHDRAWN",
        ReserveRaised = "RESERVE_RAISED",
        Released = "RELEASED",
        UnitLost = "UNIT_LOST",
        StartTimeout = "START_TIMEOUT",
    }
    /// The reason of a charge.
    ChargeReason {
        Outbid = "OUTBID",
        CapacityWithdrawn = "CAPACITY_WITHDRAWN",
        ReserveRaised = "RESERVE_RAISED",
        Released = "RELEASED",
        UnitLost = "UNIT_LOST",
        StartTimeout = "START_TIMEOUT",
        ClaimDropped = "CLAIM_DROPPED",
    }
}

impl From<NoticeReason> for EndReason {
    fn from(reason: NoticeReason) -> EndReason {
        match reason {
            NoticeReason::Outbid => EndReason::Outbid,
            NoticeReason::CapacityWithdrawn => EndReason::CapacityWithdrawn,
            NoticeReason::ReserveRaised => EndReason::ReserveRaised,
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
            EndReason::UnitLost => ChargeReason::UnitLost,
            EndReason::StartTimeout => ChargeReason::StartTimeout,
        }
    }
}
