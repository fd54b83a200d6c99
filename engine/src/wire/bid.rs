//! Bids as messages.

use kubebid_core::views::Unfilled;
use kubebid_proto::v1;
use v1::bid::UnfilledReason;

pub fn unfilled(reason: Unfilled) -> UnfilledReason {
    match reason {
        Unfilled::NoMarket => UnfilledReason::NoMarket,
        Unfilled::OwnSupply => UnfilledReason::OwnSupply,
        Unfilled::NoSupply => UnfilledReason::NoSupply,
        Unfilled::BelowFloor => UnfilledReason::BelowFloor,
        Unfilled::BelowNeededCeiling => UnfilledReason::BelowNeededCeiling,
        Unfilled::MinimumNotMet => UnfilledReason::MinimumNotMet,
        Unfilled::WaitingForProtectedNode => UnfilledReason::WaitingForProtectedNode,
    }
}
