//! The methods that are answered once.

use super::{Services, caller, streams};
use kubebid_proto::v1;
use tonic::{Request, Response, Status};
use v1::admin_service_server::AdminService;
use v1::allocation_service_server::AllocationService;
use v1::bid_service_server::BidService;
use v1::offer_service_server::OfferService;

/// Implements a service by the methods of the [`crate::api::Api`] of the same names.
macro_rules! calls {
    ($service:ident { $($method:ident($request:ident) -> $answer:ident,)* } $($more:tt)*) => {
        #[tonic::async_trait]
        impl $service for Services {
            $($more)*
            $(
                async fn $method(
                    &self,
                    request: Request<v1::$request>,
                ) -> Result<Response<v1::$answer>, Status> {
                    let caller = caller(&request)?;
                    Ok(Response::new(self.0.$method(&caller, request.into_inner()).await?))
                }
            )*
        }
    };
}

pub(super) use calls;

calls! {
    BidService {
        place_bid(PlaceBidRequest) -> PlaceBidResponse,
        quote_bid(QuoteBidRequest) -> QuoteBidResponse,
        get_bid(GetBidRequest) -> GetBidResponse,
        list_bids(ListBidsRequest) -> ListBidsResponse,
        amend_bid(AmendBidRequest) -> AmendBidResponse,
        cancel_bid(CancelBidRequest) -> CancelBidResponse,
    }
    type PlaceBidsStream = streams::Answers<v1::PlaceBidsResponse>;

    async fn place_bids(
        &self,
        request: Request<tonic::Streaming<v1::PlaceBidsRequest>>,
    ) -> Result<Response<Self::PlaceBidsStream>, Status> {
        let caller = caller(&request)?;
        Ok(Response::new(streams::place_bids(self.0.clone(), caller, request.into_inner())))
    }
}

calls! {
    AllocationService {
        get_allocation(GetAllocationRequest) -> GetAllocationResponse,
        list_allocations(ListAllocationsRequest) -> ListAllocationsResponse,
        report_ready(ReportReadyRequest) -> ReportReadyResponse,
        release_allocation(ReleaseAllocationRequest) -> ReleaseAllocationResponse,
    }
}

calls! {
    OfferService {
        put_offer(PutOfferRequest) -> PutOfferResponse,
        get_offer(GetOfferRequest) -> GetOfferResponse,
        list_offers(ListOffersRequest) -> ListOffersResponse,
        withdraw_unit(WithdrawUnitRequest) -> WithdrawUnitResponse,
        report_unit_lost(ReportUnitLostRequest) -> ReportUnitLostResponse,
    }
}

calls! {
    AdminService {
        open_market(OpenMarketRequest) -> OpenMarketResponse,
        change_rules(ChangeRulesRequest) -> ChangeRulesResponse,
        put_instance_type(PutInstanceTypeRequest) -> PutInstanceTypeResponse,
        advance_time(AdvanceTimeRequest) -> AdvanceTimeResponse,
        put_account(PutAccountRequest) -> PutAccountResponse,
        list_accounts(ListAccountsRequest) -> ListAccountsResponse,
        create_token(CreateTokenRequest) -> CreateTokenResponse,
        list_tokens(ListTokensRequest) -> ListTokensResponse,
        revoke_token(RevokeTokenRequest) -> RevokeTokenResponse,
    }
}
