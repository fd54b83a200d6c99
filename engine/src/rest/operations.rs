//! Every verb of REST, each a line: where it is, which rpc it is, which method it calls.

use super::operation::{Operation, unary, watch};
use axum::http::Method;

macro_rules! call {
    ($method:ident) => {
        async |api: crate::api::Api, caller: crate::caller::Caller, request| {
            api.$method(&caller, request).await
        }
    };
}

#[rustfmt::skip]
pub(super) fn all() -> Vec<Operation> {
    const GET: Method = Method::GET;
    const POST: Method = Method::POST;
    const PUT: Method = Method::PUT;
    const PATCH: Method = Method::PATCH;
    const DELETE: Method = Method::DELETE;
    vec![
        unary(POST, "/v1/bids", "PlaceBid", call!(place_bid)),
        unary(GET, "/v1/bids", "ListBids", call!(list_bids)),
        unary(POST, "/v1/bids/quote", "QuoteBid", call!(quote_bid)),
        unary(GET, "/v1/bids/{bid}", "GetBid", call!(get_bid)),
        unary(PATCH, "/v1/bids/{bid}", "AmendBid", call!(amend_bid)),
        unary(POST, "/v1/bids/{bid}/cancel", "CancelBid", call!(cancel_bid)),

        unary(GET, "/v1/allocations", "ListAllocations", call!(list_allocations)),
        unary(GET, "/v1/allocations/{allocation}", "GetAllocation", call!(get_allocation)),
        unary(POST, "/v1/allocations/{allocation}/ready", "ReportReady", call!(report_ready)),
        unary(POST, "/v1/allocations/{allocation}/release", "ReleaseAllocation", call!(release_allocation)),

        unary(PUT, "/v1/markets/{type}/{region}/offer", "PutOffer", call!(put_offer)),
        unary(GET, "/v1/markets/{type}/{region}/offer", "GetOffer", call!(get_offer)),
        unary(GET, "/v1/offers", "ListOffers", call!(list_offers)),
        unary(POST, "/v1/units/{type}/{region}/{provider}/{number}/withdraw", "WithdrawUnit", call!(withdraw_unit)),
        unary(POST, "/v1/units/{type}/{region}/{provider}/{number}/lost", "ReportUnitLost", call!(report_unit_lost)),

        unary(GET, "/v1/markets", "ListMarkets", call!(list_markets)),
        unary(GET, "/v1/markets/{type}/{region}/price", "GetMarketPrice", call!(get_market_price)).without("instance_type"),
        unary(GET, "/v1/instance-types/{instance_type}/price", "GetMarketPrice", call!(get_market_price)).named("GetInstanceTypePrice").without("market"),
        unary(GET, "/v1/markets/{type}/{region}/depth", "GetDepth", call!(get_depth)),
        unary(GET, "/v1/markets/{type}/{region}/prices", "ListPriceHistory", call!(list_price_history)),
        unary(GET, "/v1/instance-types", "ListInstanceTypes", call!(list_instance_types)),
        watch("/v1/prices/stream", "WatchPrices", call!(watch_prices)),

        unary(GET, "/v1/events", "ListEvents", call!(list_events)),
        watch("/v1/events/stream", "WatchEvents", call!(watch_events)),
        unary(GET, "/v1/explain/bids/{bid}", "Explain", call!(explain)).without("allocation"),
        unary(GET, "/v1/explain/allocations/{allocation}", "Explain", call!(explain)).named("ExplainAllocation").without("bid"),

        unary(GET, "/v1/charges", "ListCharges", call!(list_charges)),
        unary(GET, "/v1/statement", "GetStatement", call!(get_statement)),

        unary(POST, "/v1/markets", "OpenMarket", call!(open_market)),
        unary(PATCH, "/v1/markets/{type}/{region}/rules", "ChangeRules", call!(change_rules)),
        unary(PUT, "/v1/instance-types/{name}", "PutInstanceType", call!(put_instance_type)),
        unary(POST, "/v1/clock/advance", "AdvanceTime", call!(advance_time)),
        unary(PUT, "/v1/accounts/{name}", "PutAccount", call!(put_account)),
        unary(GET, "/v1/accounts", "ListAccounts", call!(list_accounts)),
        unary(POST, "/v1/tokens", "CreateToken", call!(create_token)),
        unary(GET, "/v1/tokens", "ListTokens", call!(list_tokens)),
        unary(DELETE, "/v1/tokens/{token_id}", "RevokeToken", call!(revoke_token)),

        unary(POST, "/v1/inject/demand", "InjectDemand", call!(inject_demand)),
        unary(POST, "/v1/inject/demand/end", "EndDemand", call!(end_demand)),
        unary(POST, "/v1/inject/loss", "InjectLoss", call!(inject_loss)),
        unary(POST, "/v1/inject/restore", "RestoreOffers", call!(restore_offers)),
        unary(POST, "/v1/inject/allocations/{allocation}/preempt", "PreemptAllocation", call!(preempt_allocation)),
        unary(POST, "/v1/inject/clock", "SetClockRate", call!(set_clock_rate)),
    ]
}
