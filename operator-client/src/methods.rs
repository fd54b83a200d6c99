//! One method for each unary RPC; the comments of the `.proto` say what each does and refuses.

use crate::Client;
use crate::call::{Method, Repeat};
use crate::error::Error;
use crate::keys::KeyedRequest as _;
use crate::v1::*;

macro_rules! methods {
    ($($(#[$doc:meta])* $kind:ident $rpc:literal $method:ident($request:ident) -> $answer:ident;)*) => {
        impl Client {$(
            $(#[$doc])*
            pub async fn $method(&self, request: $request) -> Result<$answer, Error> {
                let (request, repeat, key) = methods!(@$kind request);
                let path = concat!("/kubebid.auction.v1.", $rpc);
                self.unary(Method { path, repeat }, key, &request).await
            }
        )*}
    };
    (@keyed $request:ident) => {{
        let mut request = $request;
        let key = request.ensure_key().to_owned();
        (request, Repeat::Safe, Some(key))
    }};
    (@safe $request:ident) => { ($request, Repeat::Safe, None) };
    (@once $request:ident) => { ($request, Repeat::Unsafe, None) };
}

methods! {
    /// Places a bid.
    keyed "BidService/PlaceBid" place_bid(PlaceBidRequest) -> PlaceBidResponse;
    /// Says what a bid would need to get its nodes at once.
    safe "BidService/QuoteBid" quote_bid(QuoteBidRequest) -> QuoteBidResponse;
    /// Returns one bid.
    safe "BidService/GetBid" get_bid(GetBidRequest) -> GetBidResponse;
    /// Returns a page of bids; [`Client::all`] reads all pages.
    safe "BidService/ListBids" list_bids(ListBidsRequest) -> ListBidsResponse;
    /// Changes the ceiling or the number of nodes of a bid.
    keyed "BidService/AmendBid" amend_bid(AmendBidRequest) -> AmendBidResponse;
    /// Ends the search of a bid, and its nodes where asked; or ends the nodes and searches again.
    keyed "BidService/CancelBid" cancel_bid(CancelBidRequest) -> CancelBidResponse;

    /// Returns one allocation.
    safe "AllocationService/GetAllocation" get_allocation(GetAllocationRequest) -> GetAllocationResponse;
    /// Returns a page of allocations; [`Client::all`] reads all pages.
    safe "AllocationService/ListAllocations" list_allocations(ListAllocationsRequest) -> ListAllocationsResponse;
    /// Reports that a node runs.
    keyed "AllocationService/ReportReady" report_ready(ReportReadyRequest) -> ReportReadyResponse;
    /// Gives a node back.
    keyed "AllocationService/ReleaseAllocation" release_allocation(ReleaseAllocationRequest) -> ReleaseAllocationResponse;

    /// Sets the caller's offer in a market.
    keyed "OfferService/PutOffer" put_offer(PutOfferRequest) -> PutOfferResponse;
    /// Returns one offer and a page of its units.
    safe "OfferService/GetOffer" get_offer(GetOfferRequest) -> GetOfferResponse;
    /// Returns a page of offers; [`Client::all`] reads all pages.
    safe "OfferService/ListOffers" list_offers(ListOffersRequest) -> ListOffersResponse;
    /// Withdraws one unit.
    keyed "OfferService/WithdrawUnit" withdraw_unit(WithdrawUnitRequest) -> WithdrawUnitResponse;
    /// Reports that a unit is no more.
    keyed "OfferService/ReportUnitLost" report_unit_lost(ReportUnitLostRequest) -> ReportUnitLostResponse;
    /// Makes resting units free again.
    keyed "OfferService/ResumeUnits" resume_units(ResumeUnitsRequest) -> ResumeUnitsResponse;

    /// Returns a page of markets; [`Client::all`] reads all pages.
    safe "MarketService/ListMarkets" list_markets(ListMarketsRequest) -> ListMarketsResponse;
    /// Returns a page of instance types; [`Client::all`] reads all pages.
    safe "MarketService/ListInstanceTypes" list_instance_types(ListInstanceTypesRequest) -> ListInstanceTypesResponse;
    /// Returns the numbers of one market, or of all markets of an instance type.
    safe "MarketService/GetMarketPrice" get_market_price(GetMarketPriceRequest) -> GetMarketPriceResponse;
    /// Returns demand and supply of one market by price level.
    safe "MarketService/GetDepth" get_depth(GetDepthRequest) -> GetDepthResponse;
    /// Returns past numbers of one market.
    safe "MarketService/ListPriceHistory" list_price_history(ListPriceHistoryRequest) -> ListPriceHistoryResponse;

    /// Returns a page of past events; [`Client::watch_events`] goes on with those that follow.
    safe "EventService/ListEvents" list_events(ListEventsRequest) -> ListEventsResponse;
    /// Explains why a bid did not fill, or why a node was taken away.
    safe "EventService/Explain" explain(ExplainRequest) -> ExplainResponse;

    /// Returns the account of the caller, what counts against its limits, and what it can spend.
    safe "AccountService/GetAccount" get_account(GetAccountRequest) -> GetAccountResponse;

    /// Returns a page of charges; [`Client::all`] reads all pages.
    safe "BillingService/ListCharges" list_charges(ListChargesRequest) -> ListChargesResponse;
    /// Returns the sums of an account over a period.
    safe "BillingService/GetStatement" get_statement(GetStatementRequest) -> GetStatementResponse;

    /// Opens a market. A repeat of a lost answer is answered MARKET_EXISTS.
    safe "AdminService/OpenMarket" open_market(OpenMarketRequest) -> OpenMarketResponse;
    /// Changes rules of a market.
    safe "AdminService/ChangeRules" change_rules(ChangeRulesRequest) -> ChangeRulesResponse;
    /// Closes a market. A repeat of a lost answer is answered MARKET_CLOSED.
    safe "AdminService/CloseMarket" close_market(CloseMarketRequest) -> CloseMarketResponse;
    /// Says what a node of a type is.
    safe "AdminService/PutInstanceType" put_instance_type(PutInstanceTypeRequest) -> PutInstanceTypeResponse;
    /// Moves the stepped clock.
    safe "AdminService/AdvanceTime" advance_time(AdvanceTimeRequest) -> AdvanceTimeResponse;
    /// Makes an account, or replaces its limits.
    safe "AdminService/PutAccount" put_account(PutAccountRequest) -> PutAccountResponse;
    /// Returns a page of accounts; [`Client::all`] reads all pages.
    safe "AdminService/ListAccounts" list_accounts(ListAccountsRequest) -> ListAccountsResponse;
    /// Changes the funds of an account.
    keyed "AdminService/FundAccount" fund_account(FundAccountRequest) -> FundAccountResponse;
    /// Sets or ends the monthly budget of an account.
    keyed "AdminService/SetBudget" set_budget(SetBudgetRequest) -> SetBudgetResponse;
    /// Sets the time between two renewals of funded accounts.
    safe "AdminService/SetRenewal" set_renewal(SetRenewalRequest) -> SetRenewalResponse;
    /// Makes a token. Not tried again once it may have been made: its secret would be unknown.
    once "AdminService/CreateToken" create_token(CreateTokenRequest) -> CreateTokenResponse;
    /// Returns a page of tokens; [`Client::all`] reads all pages.
    safe "AdminService/ListTokens" list_tokens(ListTokensRequest) -> ListTokensResponse;
    /// Makes a token worthless at once.
    safe "AdminService/RevokeToken" revoke_token(RevokeTokenRequest) -> RevokeTokenResponse;

    /// Begins a demand spike. Not tried again once it may have begun: there would be two.
    once "InjectService/InjectDemand" inject_demand(InjectDemandRequest) -> InjectDemandResponse;
    /// Ends a demand spike, or all of them.
    safe "InjectService/EndDemand" end_demand(EndDemandRequest) -> EndDemandResponse;
    /// Takes units out of a market. Not tried again once some may have gone: more would.
    once "InjectService/InjectLoss" inject_loss(InjectLossRequest) -> InjectLossResponse;
    /// Puts offers again as their providers last put them.
    safe "InjectService/RestoreOffers" restore_offers(RestoreOffersRequest) -> RestoreOffersResponse;
    /// Takes a node from its holder. Not tried again once it may be taken: the answer would be a refusal.
    once "InjectService/PreemptAllocation" preempt_allocation(PreemptAllocationRequest) -> PreemptAllocationResponse;
    /// Makes a stepped clock move by itself, or stand still.
    safe "InjectService/SetClockRate" set_clock_rate(SetClockRateRequest) -> SetClockRateResponse;
}
