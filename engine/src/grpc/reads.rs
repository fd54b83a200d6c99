//! MarketService, EventService, BillingService: what is only read.

use super::unary::calls;
use super::{Services, caller, streams};
use kubebid_proto::v1;
use tonic::{Request, Response, Status};
use v1::billing_service_server::BillingService;
use v1::event_service_server::EventService;
use v1::market_service_server::MarketService;

calls! {
    MarketService {
        list_markets(ListMarketsRequest) -> ListMarketsResponse,
        list_instance_types(ListInstanceTypesRequest) -> ListInstanceTypesResponse,
        get_market_price(GetMarketPriceRequest) -> GetMarketPriceResponse,
        get_depth(GetDepthRequest) -> GetDepthResponse,
        list_price_history(ListPriceHistoryRequest) -> ListPriceHistoryResponse,
    }
    type WatchPricesStream = streams::Answers<v1::WatchPricesResponse>;

    async fn watch_prices(
        &self,
        request: Request<v1::WatchPricesRequest>,
    ) -> Result<Response<Self::WatchPricesStream>, Status> {
        let caller = caller(&request)?;
        let frames = self.0.watch_prices(&caller, request.into_inner()).await?;
        Ok(Response::new(streams::answers(&self.0, caller, frames)))
    }
}

calls! {
    EventService {
        list_events(ListEventsRequest) -> ListEventsResponse,
        explain(ExplainRequest) -> ExplainResponse,
    }
    type WatchEventsStream = streams::Answers<v1::WatchEventsResponse>;

    async fn watch_events(
        &self,
        request: Request<v1::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let caller = caller(&request)?;
        let frames = self.0.watch_events(&caller, request.into_inner()).await?;
        Ok(Response::new(streams::answers(&self.0, caller, frames)))
    }
}

calls! {
    BillingService {
        list_charges(ListChargesRequest) -> ListChargesResponse,
        get_statement(GetStatementRequest) -> GetStatementResponse,
    }
}
