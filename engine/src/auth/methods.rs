//! The table of the API: for each method the permission it needs, the method of [`Api`](crate::api::Api)
//! that answers it, and its REST verbs. The permissions, gRPC and REST are generated from it.

/// Expands `$list!` with all methods, one row each:
///
/// `Service Method Permission kind(functions of Api) [VERB "path" ...]`
///
/// - `once`: one request message, one response message.
/// - `watch`: one request message, a stream of responses. The first function returns frames that are
///   encoded already, for gRPC; the second one returns messages, for REST.
/// - `frames`: a stream of requests, a stream of responses. Only gRPC has it.
///
/// If a method has two paths, its REST operation is named after the second one, and each path leaves out
/// the parameter of the other.
macro_rules! methods {
    ($list:ident) => {
        $list! {
            BidService PlaceBid Tenant once(place_bid) [POST "/v1/bids"]
            BidService PlaceBids Tenant frames(place_bids) []
            BidService QuoteBid Markets once(quote_bid) [POST "/v1/bids/quote"]
            BidService GetBid Tenant once(get_bid) [GET "/v1/bids/{bid}"]
            BidService ListBids Tenant once(list_bids) [GET "/v1/bids"]
            BidService AmendBid Tenant once(amend_bid) [PATCH "/v1/bids/{bid}"]
            BidService CancelBid Tenant once(cancel_bid) [POST "/v1/bids/{bid}/cancel"]

            AllocationService GetAllocation Party once(get_allocation) [GET "/v1/allocations/{allocation}"]
            AllocationService ListAllocations Party once(list_allocations) [GET "/v1/allocations"]
            AllocationService ReportReady Party once(report_ready) [POST "/v1/allocations/{allocation}/ready"]
            AllocationService ReleaseAllocation Tenant once(release_allocation)
                [POST "/v1/allocations/{allocation}/release"]

            OfferService PutOffer Provider once(put_offer) [PUT "/v1/markets/{type}/{region}/offer"]
            OfferService GetOffer Provider once(get_offer) [GET "/v1/markets/{type}/{region}/offer"]
            OfferService ListOffers Provider once(list_offers) [GET "/v1/offers"]
            OfferService WithdrawUnit Provider once(withdraw_unit)
                [POST "/v1/units/{type}/{region}/{provider}/{number}/withdraw"]
            OfferService ReportUnitLost Provider once(report_unit_lost)
                [POST "/v1/units/{type}/{region}/{provider}/{number}/lost"]
            OfferService ResumeUnits Provider once(resume_units) [
                POST "/v1/units/{type}/{region}/{provider}/{number}/resume" without "market",
                POST "/v1/markets/{type}/{region}/offer/resume" without "unit" named "ResumeOffer"
            ]

            MarketService ListMarkets Markets once(list_markets) [GET "/v1/markets"]
            MarketService ListInstanceTypes Markets once(list_instance_types) [GET "/v1/instance-types"]
            MarketService GetMarketPrice Markets once(get_market_price) [
                GET "/v1/markets/{type}/{region}/price" without "instance_type",
                GET "/v1/instance-types/{instance_type}/price" without "market" named "GetInstanceTypePrice"
            ]
            MarketService GetDepth Markets once(get_depth) [GET "/v1/markets/{type}/{region}/depth"]
            MarketService ListPriceHistory Markets once(list_price_history)
                [GET "/v1/markets/{type}/{region}/prices"]
            MarketService WatchPrices Markets watch(watch_price_frames, watch_prices) [GET "/v1/prices/stream"]

            EventService WatchEvents Credential watch(watch_event_frames, watch_events)
                [GET "/v1/events/stream"]
            EventService ListEvents Credential once(list_events) [GET "/v1/events"]
            EventService Explain Party once(explain) [
                GET "/v1/explain/bids/{bid}" without "allocation",
                GET "/v1/explain/allocations/{allocation}" without "bid" named "ExplainAllocation"
            ]

            AccountService GetAccount Credential once(get_account) [GET "/v1/account"]

            BillingService ListCharges Party once(list_charges) [GET "/v1/charges"]
            BillingService GetStatement Party once(get_statement) [GET "/v1/statement"]

            AdminService OpenMarket Admin once(open_market) [POST "/v1/markets"]
            AdminService ChangeRules Admin once(change_rules) [PATCH "/v1/markets/{type}/{region}/rules"]
            AdminService CloseMarket Admin once(close_market) [POST "/v1/markets/{type}/{region}/close"]
            AdminService PutInstanceType Admin once(put_instance_type) [PUT "/v1/instance-types/{name}"]
            AdminService AdvanceTime Admin once(advance_time) [POST "/v1/clock/advance"]
            AdminService PutAccount Admin once(put_account) [PUT "/v1/accounts/{name}"]
            AdminService ListAccounts Admin once(list_accounts) [GET "/v1/accounts"]
            AdminService FundAccount Admin once(fund_account) [POST "/v1/accounts/{account}/funds"]
            AdminService SetBudget Admin once(set_budget) [PUT "/v1/accounts/{account}/budget"]
            AdminService SetRenewal Admin once(set_renewal) [PUT "/v1/funds/renewal"]
            AdminService CreateToken Admin once(create_token) [POST "/v1/tokens"]
            AdminService ListTokens Admin once(list_tokens) [GET "/v1/tokens"]
            AdminService RevokeToken Admin once(revoke_token) [DELETE "/v1/tokens/{token_id}"]

            InjectService InjectDemand Admin once(inject_demand) [POST "/v1/inject/demand"]
            InjectService EndDemand Admin once(end_demand) [POST "/v1/inject/demand/end"]
            InjectService InjectLoss Admin once(inject_loss) [POST "/v1/inject/loss"]
            InjectService RestoreOffers Admin once(restore_offers) [POST "/v1/inject/restore"]
            InjectService PreemptAllocation Admin once(preempt_allocation)
                [POST "/v1/inject/allocations/{allocation}/preempt"]
            InjectService SetClockRate Admin once(set_clock_rate) [POST "/v1/inject/clock"]
        }
    };
}

/// The gRPC path of a method.
macro_rules! path_of {
    ($service:ident $method:ident) => {
        concat!("/kubebid.auction.v1.", stringify!($service), "/", stringify!($method))
    };
}

pub(crate) use {methods, path_of};
