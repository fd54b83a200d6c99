//! Refusals, each with a stable code. A refusal is an answer (R16).

use std::fmt;

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Why a command changed nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reject {
            $($(#[$doc])* $name,)*
        }

        impl Reject {
            /// All refusals, in the order of their declaration.
            pub const ALL: &'static [Reject] = &[$(Reject::$name,)*];

            /// Returns the stable code, such as `NOT_A_TICK`.
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
    /// A market of this name is open already.
    MarketExists = "MARKET_EXISTS",
    /// No market has this name.
    UnknownMarket = "UNKNOWN_MARKET",
    /// No market rule has this name.
    UnknownRule = "UNKNOWN_RULE",
    /// The rule does not allow the value. The tick never changes.
    BadRule = "BAD_RULE",
    /// The capacity is 0 although nothing is offered, or above the most units of an offer.
    BadCapacity = "BAD_CAPACITY",
    /// The reserve is not a multiple of the tick.
    BadReserve = "BAD_RESERVE",
    /// No unit has this name, or the unit was removed.
    UnknownUnit = "UNKNOWN_UNIT",
    /// No bid has this number.
    UnknownBid = "UNKNOWN_BID",
    /// No allocation has ever had this number.
    UnknownAllocation = "UNKNOWN_ALLOCATION",
    /// The allocation has ended.
    Ended = "ENDED",
    /// The bid, allocation or unit belongs to another account.
    NotYours = "NOT_YOURS",
    /// The unit that is to be withdrawn is leaving already.
    AlreadyLeaving = "ALREADY_LEAVING",
    /// The node was reported ready before; the first report counts (R15).
    AlreadyReady = "ALREADY_READY",
    /// The bid names both markets and an instance type, or neither, or a market twice.
    BadMarkets = "BAD_MARKETS",
    /// 1 ≤ `min_nodes` ≤ `max_nodes` does not hold.
    BadNodes = "BAD_NODES",
    /// The bid waits for no minimum at entry, so that it cannot regroup (R14).
    NotAGang = "NOT_A_GANG",
    /// The unit that is to be resumed does not rest (R11).
    NotResting = "NOT_RESTING",
    /// The bid no longer searches.
    Closed = "CLOSED",
    /// The cancel mode is none of those known.
    BadMode = "BAD_MODE",
    /// The ceiling is 0, or not a multiple of the market's tick.
    NotATick = "NOT_A_TICK",
    /// The ceiling is above the `ceiling_max` of a market.
    CeilingTooHigh = "CEILING_TOO_HIGH",
    /// `max_nodes` is above the `bid_nodes_max` of a market.
    TooManyNodes = "TOO_MANY_NODES",
    /// The time in force is unknown, is GTT without `expire_at`, or is another one with it.
    BadTif = "BAD_TIF",
    /// `expire_at` is not in the future.
    Expired = "EXPIRED",
    /// The behaviour on preemption is none of those known.
    BadOnPreemption = "BAD_ON_PREEMPTION",
    /// `max_nodes` would be below the number of live nodes, or below `min_nodes`.
    BelowHeld = "BELOW_HELD",
    /// The ceiling may not be lowered while a live node is protected, nor soon after a raise under notice (R2).
    Protected = "PROTECTED",
    /// The ceiling may not be lowered below the reserve of a held node (R2).
    BelowReserve = "BELOW_RESERVE",
    /// The market is closing or has ended: it takes no new bids, no more capacity, and is not closed again (R18).
    MarketClosed = "MARKET_CLOSED",
    /// The account cannot pay for its nodes and claims at the new ceiling (R19).
    NoFunds = "NO_FUNDS",
    /// The amount is outside the range of the command (R19).
    BadAmount = "BAD_AMOUNT",
    /// The command needs a client key, and has none (R19).
    KeyRequired = "KEY_REQUIRED",
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
