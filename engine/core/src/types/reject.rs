//! Refusals, in the order of the checks of each command. A refusal is an answer (R16).

use std::fmt;

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Why a command changed nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reject {
            $($(#[$doc])* $name,)*
        }

        impl Reject {
            pub const ALL: &'static [Reject] = &[$(Reject::$name,)*];

            /// The stable code, as in `NOT_A_TICK`.
            pub fn code(self) -> &'static str {
                match self {
                    $(Reject::$name => $word,)*
                }
            }
        }
    };
}

rejects! {
    /// The client key was used with other content.
    KeyConflict = "KEY_CONFLICT",
    MarketExists = "MARKET_EXISTS",
    UnknownMarket = "UNKNOWN_MARKET",
    UnknownRule = "UNKNOWN_RULE",
    /// A value that the rule does not allow; the tick is never changed.
    BadRule = "BAD_RULE",
    /// 0 where nothing is offered, or more units than an offer may have.
    BadCapacity = "BAD_CAPACITY",
    /// Off the tick.
    BadReserve = "BAD_RESERVE",
    UnknownUnit = "UNKNOWN_UNIT",
    UnknownBid = "UNKNOWN_BID",
    UnknownAllocation = "UNKNOWN_ALLOCATION",
    /// The allocation has ended.
    Ended = "ENDED",
    NotYours = "NOT_YOURS",
    AlreadyLeaving = "ALREADY_LEAVING",
    AlreadyReady = "ALREADY_READY",
    /// Names both markets and an instance type, neither, or a market twice.
    BadMarkets = "BAD_MARKETS",
    /// Not 1 ≤ `min_nodes` ≤ `max_nodes`.
    BadNodes = "BAD_NODES",
    /// The bid no longer searches.
    Closed = "CLOSED",
    BadMode = "BAD_MODE",
    /// 0, or not a multiple of the market's tick.
    NotATick = "NOT_A_TICK",
    CeilingTooHigh = "CEILING_TOO_HIGH",
    /// More than `bid_nodes_max`.
    TooManyNodes = "TOO_MANY_NODES",
    BadTif = "BAD_TIF",
    /// `expire_at` is not in the future.
    Expired = "EXPIRED",
    BadOnPreemption = "BAD_ON_PREEMPTION",
    /// Fewer than the live nodes or `min_nodes`.
    BelowHeld = "BELOW_HELD",
    /// A ceiling is not lowered while a live node is protected (R2).
    Protected = "PROTECTED",
    /// A ceiling is not lowered below the reserve of a node held (R2).
    BelowReserve = "BELOW_RESERVE",
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
