//! Reads lists that are longer than a page.

use crate::Client;
use crate::error::Error;
use crate::v1::*;
use std::future::Future;

/// The most that an engine gives at once.
const PAGE_MAX: u32 = 1000;

/// A request for one page of a list.
pub trait PageRequest: Clone + Send {
    /// The page that answers it.
    type Page: Page;

    /// Sets the size of the page and the token of its begin.
    fn turn(&mut self, size: u32, token: String);

    /// Requests the page.
    fn fetch(self, client: &Client) -> impl Future<Output = Result<Self::Page, Error>> + Send;
}

/// One page of a list.
pub trait Page: Send {
    /// Returns the number of items on it.
    fn count(&self) -> usize;

    /// Keeps only the first `count` items.
    fn truncate(&mut self, count: usize);

    /// Returns the token of the next page, which is empty at the end.
    fn next(&self) -> &str;

    /// Adds the next page. `seq` and the cursor remain those of the first.
    fn append(&mut self, next: Self);
}

impl Client {
    /// Reads all pages of a list as one. Its `seq` and cursor are those of the first page: a watch from that cursor
    /// misses nothing.
    pub async fn all<R: PageRequest>(&self, request: R) -> Result<R::Page, Error> {
        self.first(request, usize::MAX).await
    }

    /// Reads the first `count` items of a list as one page.
    pub async fn first<R: PageRequest>(&self, mut request: R, count: usize) -> Result<R::Page, Error> {
        let size = u32::try_from(count).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        request.turn(size, String::new());
        let mut list = request.clone().fetch(self).await?;
        while !list.next().is_empty() && list.count() < count {
            request.turn(size, list.next().to_owned());
            list.append(request.clone().fetch(self).await?);
        }
        list.truncate(count);
        Ok(list)
    }
}

macro_rules! paged {
    ($($method:ident($request:ident) -> $answer:ident.$items:ident;)*) => {$(
        impl PageRequest for $request {
            type Page = $answer;

            fn turn(&mut self, size: u32, token: String) {
                self.page_size = size;
                self.page_token = token;
            }

            async fn fetch(self, client: &Client) -> Result<$answer, Error> {
                client.$method(self).await
            }
        }

        impl Page for $answer {
            fn count(&self) -> usize {
                self.$items.len()
            }

            fn truncate(&mut self, count: usize) {
                self.$items.truncate(count);
            }

            fn next(&self) -> &str {
                &self.next_page_token
            }

            fn append(&mut self, next: Self) {
                self.$items.extend(next.$items);
                self.next_page_token = next.next_page_token;
            }
        }
    )*};
}

paged! {
    list_bids(ListBidsRequest) -> ListBidsResponse.bids;
    list_allocations(ListAllocationsRequest) -> ListAllocationsResponse.allocations;
    list_offers(ListOffersRequest) -> ListOffersResponse.offers;
    get_offer(GetOfferRequest) -> GetOfferResponse.units;
    list_markets(ListMarketsRequest) -> ListMarketsResponse.markets;
    list_instance_types(ListInstanceTypesRequest) -> ListInstanceTypesResponse.entries;
    list_events(ListEventsRequest) -> ListEventsResponse.events;
    list_charges(ListChargesRequest) -> ListChargesResponse.charges;
    list_accounts(ListAccountsRequest) -> ListAccountsResponse.accounts;
    list_tokens(ListTokensRequest) -> ListTokensResponse.tokens;
}

impl PageRequest for GetStatementRequest {
    type Page = GetStatementResponse;

    /// The engine decides how many lines a page has.
    fn turn(&mut self, _size: u32, token: String) {
        self.page_token = token;
    }

    async fn fetch(self, client: &Client) -> Result<GetStatementResponse, Error> {
        client.get_statement(self).await
    }
}

/// The sums remain those of the first page.
impl Page for GetStatementResponse {
    fn count(&self) -> usize {
        self.lines.len()
    }

    fn truncate(&mut self, count: usize) {
        self.lines.truncate(count);
    }

    fn next(&self) -> &str {
        &self.next_page_token
    }

    fn append(&mut self, next: Self) {
        self.lines.extend(next.lines);
        self.next_page_token = next.next_page_token;
    }
}

impl PageRequest for ListPriceHistoryRequest {
    type Page = ListPriceHistoryResponse;

    fn turn(&mut self, size: u32, token: String) {
        self.page_size = size;
        self.page_token = token;
    }

    async fn fetch(self, client: &Client) -> Result<ListPriceHistoryResponse, Error> {
        client.list_price_history(self).await
    }
}

/// A page has changes or bars, never both.
impl Page for ListPriceHistoryResponse {
    fn count(&self) -> usize {
        self.points.len() + self.bars.len()
    }

    fn truncate(&mut self, count: usize) {
        self.points.truncate(count);
        self.bars.truncate(count);
    }

    fn next(&self) -> &str {
        &self.next_page_token
    }

    fn append(&mut self, next: Self) {
        self.points.extend(next.points);
        self.bars.extend(next.bars);
        self.next_page_token = next.next_page_token;
    }
}
