//! Every rpc by its name, and which method of the [`Api`] answers it. Messages come and go as bytes: tonic's part is
//! compiled once, not once for each of them.

use super::malformed::unreadable;
use super::streams::{self, Frames, Watched};
use crate::api::Api;
use crate::caller::Caller;
use crate::wire::status::ApiError;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use prost::Message;
use tonic::Streaming;

/// How an rpc is answered.
#[derive(Clone, Copy)]
pub(super) enum Call {
    /// A message by a message.
    Once(fn(Api, Caller, Bytes) -> BoxFuture<'static, Result<Bytes, ApiError>>),
    /// A message by a stream.
    Watch(fn(Api, Caller, Bytes) -> BoxFuture<'static, Result<Watched, ApiError>>),
    /// A stream by a stream.
    Frames(fn(Api, Caller, Streaming<Bytes>) -> Frames),
}

macro_rules! once {
    ($method:ident) => {
        Call::Once(|api, caller, message| {
            Box::pin(async move {
                let answer = api.$method(&caller, read(message)?).await?;
                Ok(answer.encode_to_vec().into())
            })
        })
    };
}

macro_rules! watch {
    ($method:ident, $encode:expr) => {
        Call::Watch(|api, caller, message| {
            Box::pin(async move {
                let frames = api.$method(&caller, read(message)?).await?;
                Ok(streams::answers(&api, caller, frames, $encode))
            })
        })
    };
}

pub(super) const METHODS: &[(&str, Call)] = &[
    ("/kubebid.auction.v1.BidService/PlaceBid", once!(place_bid)),
    ("/kubebid.auction.v1.BidService/PlaceBids", Call::Frames(streams::place_bids)),
    ("/kubebid.auction.v1.BidService/QuoteBid", once!(quote_bid)),
    ("/kubebid.auction.v1.BidService/GetBid", once!(get_bid)),
    ("/kubebid.auction.v1.BidService/ListBids", once!(list_bids)),
    ("/kubebid.auction.v1.BidService/AmendBid", once!(amend_bid)),
    ("/kubebid.auction.v1.BidService/CancelBid", once!(cancel_bid)),
    ("/kubebid.auction.v1.AllocationService/GetAllocation", once!(get_allocation)),
    ("/kubebid.auction.v1.AllocationService/ListAllocations", once!(list_allocations)),
    ("/kubebid.auction.v1.AllocationService/ReportReady", once!(report_ready)),
    ("/kubebid.auction.v1.AllocationService/ReleaseAllocation", once!(release_allocation)),
    ("/kubebid.auction.v1.OfferService/PutOffer", once!(put_offer)),
    ("/kubebid.auction.v1.OfferService/GetOffer", once!(get_offer)),
    ("/kubebid.auction.v1.OfferService/ListOffers", once!(list_offers)),
    ("/kubebid.auction.v1.OfferService/WithdrawUnit", once!(withdraw_unit)),
    ("/kubebid.auction.v1.OfferService/ReportUnitLost", once!(report_unit_lost)),
    ("/kubebid.auction.v1.MarketService/ListMarkets", once!(list_markets)),
    ("/kubebid.auction.v1.MarketService/ListInstanceTypes", once!(list_instance_types)),
    ("/kubebid.auction.v1.MarketService/GetMarketPrice", once!(get_market_price)),
    ("/kubebid.auction.v1.MarketService/GetDepth", once!(get_depth)),
    ("/kubebid.auction.v1.MarketService/ListPriceHistory", once!(list_price_history)),
    ("/kubebid.auction.v1.MarketService/WatchPrices", watch!(watch_price_frames, |frame| frame.encode())),
    ("/kubebid.auction.v1.EventService/WatchEvents", watch!(watch_event_frames, |frame| frame.encode())),
    ("/kubebid.auction.v1.EventService/ListEvents", once!(list_events)),
    ("/kubebid.auction.v1.EventService/Explain", once!(explain)),
    ("/kubebid.auction.v1.BillingService/ListCharges", once!(list_charges)),
    ("/kubebid.auction.v1.BillingService/GetStatement", once!(get_statement)),
    ("/kubebid.auction.v1.AdminService/OpenMarket", once!(open_market)),
    ("/kubebid.auction.v1.AdminService/ChangeRules", once!(change_rules)),
    ("/kubebid.auction.v1.AdminService/PutInstanceType", once!(put_instance_type)),
    ("/kubebid.auction.v1.AdminService/AdvanceTime", once!(advance_time)),
    ("/kubebid.auction.v1.AdminService/PutAccount", once!(put_account)),
    ("/kubebid.auction.v1.AdminService/ListAccounts", once!(list_accounts)),
    ("/kubebid.auction.v1.AdminService/CreateToken", once!(create_token)),
    ("/kubebid.auction.v1.AdminService/ListTokens", once!(list_tokens)),
    ("/kubebid.auction.v1.AdminService/RevokeToken", once!(revoke_token)),
    ("/kubebid.auction.v1.InjectService/InjectDemand", once!(inject_demand)),
    ("/kubebid.auction.v1.InjectService/EndDemand", once!(end_demand)),
    ("/kubebid.auction.v1.InjectService/InjectLoss", once!(inject_loss)),
    ("/kubebid.auction.v1.InjectService/RestoreOffers", once!(restore_offers)),
    ("/kubebid.auction.v1.InjectService/PreemptAllocation", once!(preempt_allocation)),
    ("/kubebid.auction.v1.InjectService/SetClockRate", once!(set_clock_rate)),
];

/// A message, or the field that is to blame.
pub(super) fn read<M: Message + Default>(message: Bytes) -> Result<M, ApiError> {
    // Of a slice prost reads a text at once, of `Bytes` by a clone of them.
    M::decode(&*message).map_err(|error| unreadable(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::POLICY;

    #[test]
    fn every_method_with_a_policy_is_answered_and_no_other() {
        let policy: Vec<&str> = POLICY.iter().map(|(method, _)| *method).collect();
        let answered: Vec<&str> = METHODS.iter().map(|(method, _)| *method).collect();
        assert_eq!(answered, policy);
    }
}
