//! One method for each unary RPC; the comments of the `.proto` say what each does and refuses.

use crate::Client;
use crate::call::Repeat;
use crate::error::Error;
use crate::keys::Keyed as _;
use crate::v1::admin_service_client::AdminServiceClient;
use crate::v1::allocation_service_client::AllocationServiceClient;
use crate::v1::bid_service_client::BidServiceClient;
use crate::v1::billing_service_client::BillingServiceClient;
use crate::v1::event_service_client::EventServiceClient;
use crate::v1::market_service_client::MarketServiceClient;
use crate::v1::offer_service_client::OfferServiceClient;
use crate::v1::*;

/// A page of 1000 bids with all the labels they may have.
pub(crate) const MESSAGE_MAX: usize = 64 << 20;

macro_rules! methods {
    ($($(#[$doc:meta])* $kind:ident $service:ident.$method:ident($request:ident) -> $answer:ident;)*) => {
        impl Client {$(
            $(#[$doc])*
            pub async fn $method(&self, request: $request) -> Result<$answer, Error> {
                let (request, repeat, key) = methods!(@$kind request);
                self.unary(repeat, key, request, |channel, request| async move {
                    $service::new(channel).max_decoding_message_size(MESSAGE_MAX).$method(request).await
                })
                .await
            }
        )*}
    };
    (@keyed $request:ident) => {{
        let mut request = $request;
        let key = request.ensure_key();
        (request, Repeat::Safe, Some(key))
    }};
    (@safe $request:ident) => { ($request, Repeat::Safe, None) };
    (@once $request:ident) => { ($request, Repeat::Unsafe, None) };
}

methods! {
    /// Places a bid.
    keyed BidServiceClient.place_bid(PlaceBidRequest) -> PlaceBidResponse;
    /// Says what a bid would need to get its nodes at once.
    safe BidServiceClient.quote_bid(QuoteBidRequest) -> QuoteBidResponse;
    /// One bid.
    safe BidServiceClient.get_bid(GetBidRequest) -> GetBidResponse;
    /// A page of bids; [`Client::all`] reads all pages.
    safe BidServiceClient.list_bids(ListBidsRequest) -> ListBidsResponse;
    /// Changes the ceiling or the number of nodes of a bid.
    keyed BidServiceClient.amend_bid(AmendBidRequest) -> AmendBidResponse;
    /// Ends the search of a bid, and its nodes where asked.
    keyed BidServiceClient.cancel_bid(CancelBidRequest) -> CancelBidResponse;

    /// One allocation.
    safe AllocationServiceClient.get_allocation(GetAllocationRequest) -> GetAllocationResponse;
    /// A page of allocations; [`Client::all`] reads all pages.
    safe AllocationServiceClient.list_allocations(ListAllocationsRequest) -> ListAllocationsResponse;
    /// Reports that a node runs.
    keyed AllocationServiceClient.report_ready(ReportReadyRequest) -> ReportReadyResponse;
    /// Gives a node back.
    keyed AllocationServiceClient.release_allocation(ReleaseAllocationRequest) -> ReleaseAllocationResponse;

    /// Sets the caller's offer in a market.
    keyed OfferServiceClient.put_offer(PutOfferRequest) -> PutOfferResponse;
    /// One offer and a page of its units.
    safe OfferServiceClient.get_offer(GetOfferRequest) -> GetOfferResponse;
    /// A page of offers; [`Client::all`] reads all pages.
    safe OfferServiceClient.list_offers(ListOffersRequest) -> ListOffersResponse;
    /// Withdraws one unit.
    keyed OfferServiceClient.withdraw_unit(WithdrawUnitRequest) -> WithdrawUnitResponse;
    /// Reports that a unit is no more.
    keyed OfferServiceClient.report_unit_lost(ReportUnitLostRequest) -> ReportUnitLostResponse;

    /// A page of markets; [`Client::all`] reads all pages.
    safe MarketServiceClient.list_markets(ListMarketsRequest) -> ListMarketsResponse;
    /// A page of instance types; [`Client::all`] reads all pages.
    safe MarketServiceClient.list_instance_types(ListInstanceTypesRequest) -> ListInstanceTypesResponse;
    /// The numbers of one market, or of all of an instance type.
    safe MarketServiceClient.get_market_price(GetMarketPriceRequest) -> GetMarketPriceResponse;
    /// Demand and supply of one market by price level.
    safe MarketServiceClient.get_depth(GetDepthRequest) -> GetDepthResponse;
    /// How the numbers of one market were.
    safe MarketServiceClient.list_price_history(ListPriceHistoryRequest) -> ListPriceHistoryResponse;

    /// A page of past events; [`Client::watch_events`] goes on with what happens.
    safe EventServiceClient.list_events(ListEventsRequest) -> ListEventsResponse;
    /// Why a bid did not fill, or why a node was taken away.
    safe EventServiceClient.explain(ExplainRequest) -> ExplainResponse;

    /// A page of charges; [`Client::all`] reads all pages.
    safe BillingServiceClient.list_charges(ListChargesRequest) -> ListChargesResponse;
    /// The sums of an account over a period.
    safe BillingServiceClient.get_statement(GetStatementRequest) -> GetStatementResponse;

    /// Opens a market. A repeat of a lost answer is answered MARKET_EXISTS.
    safe AdminServiceClient.open_market(OpenMarketRequest) -> OpenMarketResponse;
    /// Changes rules of a market.
    safe AdminServiceClient.change_rules(ChangeRulesRequest) -> ChangeRulesResponse;
    /// Says what a node of a type is.
    safe AdminServiceClient.put_instance_type(PutInstanceTypeRequest) -> PutInstanceTypeResponse;
    /// Moves the stepped clock.
    safe AdminServiceClient.advance_time(AdvanceTimeRequest) -> AdvanceTimeResponse;
    /// Makes an account, or replaces its limits.
    safe AdminServiceClient.put_account(PutAccountRequest) -> PutAccountResponse;
    /// A page of accounts; [`Client::all`] reads all pages.
    safe AdminServiceClient.list_accounts(ListAccountsRequest) -> ListAccountsResponse;
    /// Makes a token. Not tried again once it may have been made: nobody would know its secret.
    once AdminServiceClient.create_token(CreateTokenRequest) -> CreateTokenResponse;
    /// A page of tokens; [`Client::all`] reads all pages.
    safe AdminServiceClient.list_tokens(ListTokensRequest) -> ListTokensResponse;
    /// Makes a token worthless at once.
    safe AdminServiceClient.revoke_token(RevokeTokenRequest) -> RevokeTokenResponse;
}
