//! Converts enums of the core into those of the wire format.

use kubebid_core::event::{ChargeReason, ClaimCause, CloseReason, DropCause, EndReason, NoticeReason};
use kubebid_proto::v1;
use v1::event::{claim_dropped, claimed};

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
    close_reason: CloseReason => v1::bid::CloseReason { Expired Ioc Cancelled Done MarketClosed }
    notice_reason: NoticeReason => v1::notice::Reason { Outbid CapacityWithdrawn ReserveRaised Funds }
    end_reason: EndReason => v1::allocation::EndReason {
        Outbid CapacityWithdrawn ReserveRaised Released Regrouped UnitLost StartTimeout Funds
    }
    charge_reason: ChargeReason => v1::charge::Reason {
        Outbid CapacityWithdrawn ReserveRaised Released Regrouped UnitLost StartTimeout ClaimDropped
        Funds
    }
    claim_cause: ClaimCause => claimed::Cause { Displaced ClaimDisplaced Standing PassedOn }
    drop_cause: DropCause => claim_dropped::Cause {
        Rescued HolderBack HolderRaised Lowered Shrunk Cancelled Expired Regrouped OwnSupply ReserveRaised
        CapacityWithdrawn UnitLost StartTimeout
    }
}
