//! The words of the core as those of the wire.

use kubebid_core::event::{ChargeReason, ClaimCause, CloseReason, DropCause, EndReason, Fact, NoticeReason};
use kubebid_proto::v1;
use v1::event::{claim_dropped, claimed};

/// The field of `Event.kind` that holds the fact.
pub fn kind(fact: &Fact) -> &'static str {
    match fact {
        Fact::MarketOpened { .. } => "market_opened",
        Fact::RulesChanged { .. } => "rules_changed",
        Fact::OfferPut { .. } => "offer_put",
        Fact::UnitAdded { .. } => "unit_added",
        Fact::UnitLeaving { .. } => "unit_leaving",
        Fact::UnitBack { .. } => "unit_back",
        Fact::UnitRemoved { .. } => "unit_removed",
        Fact::BidPlaced { .. } => "bid_placed",
        Fact::BidAmended { .. } => "bid_amended",
        Fact::BidClosed { .. } => "bid_closed",
        Fact::Allocated { .. } => "allocated",
        Fact::Ready { .. } => "ready",
        Fact::NoticeStarted { .. } => "notice_started",
        Fact::NoticeRescinded { .. } => "notice_rescinded",
        Fact::Claimed { .. } => "claimed",
        Fact::ClaimDropped { .. } => "claim_dropped",
        Fact::Ended { .. } => "ended",
        Fact::Charged { .. } => "charged",
        Fact::PriceChanged { .. } => "price_changed",
        Fact::Rejected { .. } => "rejected",
        Fact::Repeated { .. } => "repeated",
    }
}

macro_rules! words {
    ($($name:ident: $core:ident => $wire:path { $($word:ident)* })*) => {$(
        pub(crate) fn $name(word: $core) -> $wire {
            use $wire as Wire;
            match word {
                $($core::$word => Wire::$word,)*
            }
        }
    )*};
}

words! {
    close_reason: CloseReason => v1::bid::CloseReason { Expired Ioc Cancelled Done }
    notice_reason: NoticeReason => v1::notice::Reason { Outbid CapacityWithdrawn ReserveRaised }
    end_reason: EndReason => v1::allocation::EndReason {
        Outbid CapacityWithdrawn ReserveRaised Released UnitLost StartTimeout
    }
    charge_reason: ChargeReason => v1::charge::Reason {
        Outbid CapacityWithdrawn ReserveRaised Released UnitLost StartTimeout ClaimDropped
    }
    claim_cause: ClaimCause => claimed::Cause { Displaced ClaimDisplaced Standing PassedOn }
    drop_cause: DropCause => claim_dropped::Cause {
        Rescued HolderBack HolderRaised Lowered Shrunk Cancelled Expired OwnSupply ReserveRaised
        CapacityWithdrawn UnitLost StartTimeout
    }
}
