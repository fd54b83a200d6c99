//! Reads of bids: one by its number, or a page of them.

use super::{Api, LOOKED_AT};
use crate::auth::caller::{AccountFilter, Caller};
use crate::readmodel::queries::BidQuery;
use crate::readmodel::rows::BidRow;
use crate::store::{NodeDataKey, Role};
use crate::wire::status::{ApiError, Code};
use crate::wire::{bid, command, page, text};
use kubebid_core::Reject;
use kubebid_core::units::BidId;
use kubebid_proto::v1;

impl Api {
    /// GetBid: returns a bid of the caller.
    pub async fn get_bid(
        &self,
        caller: &Caller,
        request: v1::GetBidRequest,
    ) -> Result<v1::GetBidResponse, ApiError> {
        let unknown = || {
            ApiError::new(Code::Market(Reject::UnknownBid)).saying(format!("you have no bid {}", request.bid))
        };
        let applied = self.0.engine.applied();
        // The number of a bid is that of the command that placed it: the bid is known after that
        // command.
        let known = if request.bid <= applied { request.bid } else { 0 };
        self.projected_up_to(caller, request.min_seq.max(known)).await?;
        if request.bid > self.0.engine.applied() {
            return Err(unknown());
        }
        let seq = self.0.engine.projected();
        let (projections, bid) = (self.0.engine.read_model(), BidId(request.bid));
        let row = match caller.sees_all() {
            true => projections.bid(bid).await?,
            false => projections.bid_of(caller.account.as_str(), bid).await?,
        };
        let row = row.ok_or_else(unknown)?;
        let mut bid = self.with_the_present(vec![row]).await?.pop();
        if let Some(bid) = &mut bid
            && bid.tenant == caller.account.as_str()
            && caller.roles.has(Role::Tenant)
        {
            bid.node_config = self.content_of(NodeDataKey::config(bid.bid)).await?.map(Into::into);
        }
        Ok(v1::GetBidResponse { seq, bid })
    }

    /// ListBids: returns a page of bids, by number.
    pub async fn list_bids(
        &self,
        caller: &Caller,
        request: v1::ListBidsRequest,
    ) -> Result<v1::ListBidsResponse, ApiError> {
        let size = page::size(request.page_size);
        let account = match caller.whose(request.account.as_deref())? {
            AccountFilter::Of(account) => Some(account.to_string()),
            AccountFilter::Everybody => None,
        };
        let market = (!request.market.is_empty()).then(|| text::market("market", &request.market));
        let query = BidQuery {
            account,
            market: market.transpose()?,
            states: bid::states(request.states)?,
            labels: text::labels("labels", request.labels)?,
            unmet_only: request.unmet_only,
            after: command::number("page_token", page::after(&request.page_token)?.unwrap_or(0))?,
            limit: size + 1,
        };
        let _turn = self.turn_to_read(caller, request.min_seq).await?;
        let seq = self.0.engine.projected();
        let page = self.0.engine.read_model().bid_page(&query, LOOKED_AT).await?;
        let mut rows = page.bids;
        // A search that stopped at the most bids that one request may examine is continued there.
        let end = page::truncate(&mut rows, size, |row| row.bid.0).or(page.stopped_at);
        let bids = self.with_the_present(rows).await?;
        let (bids, next_page_token) = page::fit(bids.into_iter().map(|bid| (bid.bid, bid)), end);
        Ok(v1::ListBidsResponse { seq, bids, next_page_token, cursor: self.cursor(seq) })
    }

    /// Returns bids with their labels and with what only the exchange knows at present.
    async fn with_the_present(&self, rows: Vec<BidRow>) -> Result<Vec<v1::Bid>, ApiError> {
        let numbers: Vec<u64> = rows.iter().map(|row| row.bid.0).collect();
        let mut labels = self.rows().labels_of(&numbers).await?;
        let present = self.0.engine.ask_each(numbers, |exchange, bid| {
            let bid = BidId(bid);
            (exchange.view_bid(bid), exchange.unfilled(bid))
        });
        let bids = present.await?.into_iter().zip(rows).map(|((now, why), row)| {
            let labels = labels.remove(&row.bid.0).unwrap_or_default();
            bid::message(row, labels, now.as_ref(), why)
        });
        Ok(bids.collect())
    }
}
