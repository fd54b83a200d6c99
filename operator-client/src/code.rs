//! The stable codes of refusals, as in `common.proto`.

use std::fmt;

macro_rules! codes {
    ($($name:ident = $text:literal,)*) => {
        /// The reason why a request was refused.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Code {
            $($name,)*
            /// A code that this client does not know.
            Other(String),
        }

        impl Code {
            /// Returns the code as the API writes it: `NOT_A_TICK`.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Code::$name => $text,)*
                    Code::Other(text) => text,
                }
            }
        }

        impl From<&str> for Code {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Code::$name,)*
                    _ => Code::Other(text.to_owned()),
                }
            }
        }
    };
}

codes! {
    UnknownRule = "UNKNOWN_RULE",
    BadRule = "BAD_RULE",
    BadCapacity = "BAD_CAPACITY",
    BadReserve = "BAD_RESERVE",
    BadMarkets = "BAD_MARKETS",
    BadNodes = "BAD_NODES",
    TooManyNodes = "TOO_MANY_NODES",
    NotATick = "NOT_A_TICK",
    CeilingTooHigh = "CEILING_TOO_HIGH",
    BadTif = "BAD_TIF",
    Expired = "EXPIRED",
    BadOnPreemption = "BAD_ON_PREEMPTION",
    BadMode = "BAD_MODE",
    UnknownMarket = "UNKNOWN_MARKET",
    UnknownBid = "UNKNOWN_BID",
    UnknownAllocation = "UNKNOWN_ALLOCATION",
    UnknownUnit = "UNKNOWN_UNIT",
    MarketExists = "MARKET_EXISTS",
    KeyConflict = "KEY_CONFLICT",
    Closed = "CLOSED",
    Ended = "ENDED",
    AlreadyReady = "ALREADY_READY",
    AlreadyLeaving = "ALREADY_LEAVING",
    NotResting = "NOT_RESTING",
    NotAGang = "NOT_A_GANG",
    BelowHeld = "BELOW_HELD",
    Protected = "PROTECTED",
    BelowReserve = "BELOW_RESERVE",
    MarketClosed = "MARKET_CLOSED",
    BadField = "BAD_FIELD",
    Unauthenticated = "UNAUTHENTICATED",
    Forbidden = "FORBIDDEN",
    UnknownOffer = "UNKNOWN_OFFER",
    UnknownAccount = "UNKNOWN_ACCOUNT",
    UnknownToken = "UNKNOWN_TOKEN",
    Limit = "LIMIT",
    Busy = "BUSY",
    TooLarge = "TOO_LARGE",
    RealClock = "REAL_CLOCK",
    InjectDisabled = "INJECT_DISABLED",
    Gone = "GONE",
    NotYet = "NOT_YET",
    NotLeading = "NOT_LEADING",
    Unavailable = "UNAVAILABLE",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
