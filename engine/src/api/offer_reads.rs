//! Reads of offers: one with its units, or a page of them.

use super::Api;
use crate::auth::caller::{AccountFilter, Caller};
use crate::wire::echo::quoted;
use crate::wire::offer;
use crate::wire::status::{ApiError, Code};
use crate::wire::{command, page, text};
use kubebid_core::Reject;
use kubebid_core::units::{AccountName, MarketId, MarketName};
use kubebid_proto::v1;
use std::fmt;
use std::str::FromStr;

/// The most offers that are read before they are cut into pages.
const OFFERS: u32 = 100_000;

impl Api {
    /// GetOffer: returns an offer with its units.
    pub async fn get_offer(
        &self,
        caller: &Caller,
        request: v1::GetOfferRequest,
    ) -> Result<v1::GetOfferResponse, ApiError> {
        let size = page::size(request.page_size);
        let after: u64 = page::after(&request.page_token)?.unwrap_or(0);
        let provider = caller.whose_one(request.account.as_deref())?;
        let market = text::market("market", &request.market)?;
        self.applied_up_to(caller, request.min_seq).await?;
        let Some(id) = self.0.engine.views().markets().get(&market).map(|view| view.market) else {
            let error = ApiError::new(Code::Market(Reject::UnknownMarket));
            return Err(error.saying(format!("there is no market {}", quoted(market.as_str()))));
        };
        let (of, limit) = (provider.clone(), size as usize + 1);
        let asked = self.0.engine.ask(move |exchange| {
            (exchange.seq().0, exchange.offer_of(id, &of), exchange.units_of(id, &of, after, limit))
        });
        let (seq, view, mut units) = asked.await?;
        let view = view.ok_or(Code::UnknownOffer)?;
        let projections = self.0.engine.read_model();
        let of = (Some(provider.as_str()), Some(market.as_str()));
        let mut put = projections.offers(of.0, of.1, 1).await?;
        if put.is_empty() {
            // The offer is so new that the tables do not have it yet.
            self.projected_up_to(caller, seq).await?;
            put = projections.offers(of.0, of.1, 1).await?;
        }
        let put_at = put.first().map_or(0, |row| row.put_at.0);
        let end = page::truncate(&mut units, size, |unit| unit.unit.number);
        let units = units.iter().map(|unit| (unit.unit.number, offer::unit(unit, &market, &provider, &view)));
        let (units, next_page_token) = page::fit(units, end);
        let offer = offer::message(&view, &market, &provider, put_at);
        Ok(v1::GetOfferResponse { seq, offer: Some(offer), units, next_page_token })
    }

    /// ListOffers: returns a page of offers, by market and then by the time at which they were put.
    pub async fn list_offers(
        &self,
        caller: &Caller,
        request: v1::ListOffersRequest,
    ) -> Result<v1::ListOffersResponse, ApiError> {
        let size = page::size(request.page_size);
        let after: Option<OfferSortKey> = page::after(&request.page_token)?;
        let account = match caller.whose(request.account.as_deref())? {
            AccountFilter::Of(account) => Some(account),
            AccountFilter::Everybody => None,
        };
        text::market("market", &request.market)?;
        self.projected_up_to(caller, request.min_seq).await?;
        let seq = self.0.engine.projected();
        let account = account.as_ref().map(AccountName::as_str);
        let market = (!request.market.is_empty()).then_some(&request.market[..]);
        let rows = self.0.engine.read_model().offers(account, market, OFFERS).await?;
        let markets = self.0.engine.views().markets();
        let placed = rows.into_iter().filter_map(|row| {
            let name = MarketName::new(&row.market);
            let market = markets.get(&name)?.market;
            let (provider, put_at) = (AccountName::new(&row.provider), row.put_at.0);
            Some((OfferSortKey { market: market.0, put_at, provider: provider.to_string() }, name, provider))
        });
        let mut placed: Vec<_> = placed.filter(|(key, ..)| Some(key) > after.as_ref()).collect();
        placed.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let (mut placed, mut views) = (placed.into_iter(), Vec::new());
        while views.len() <= size as usize {
            let some: Vec<_> = placed.by_ref().take(size as usize + 1).collect();
            if some.is_empty() {
                break;
            }
            let seen = self.0.engine.ask_each(some, |exchange, (key, market, provider)| {
                let view = exchange.offer_of(MarketId(key.market), &provider);
                view.map(|view| (key, market, provider, view))
            });
            views.extend(seen.await?.into_iter().flatten());
        }
        let end = page::truncate(&mut views, size, |(key, ..)| key.clone());
        let offers = views.into_iter().map(|(key, market, provider, view)| {
            let offer = offer::message(&view, &market, &provider, key.put_at);
            (key, offer)
        });
        let (offers, next_page_token) = page::fit(offers, end);
        Ok(v1::ListOffersResponse { seq, offers, next_page_token, cursor: self.cursor(seq) })
    }
}

/// The key by which offers are listed: by market, then by the time at which they were put.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OfferSortKey {
    market: u32,
    put_at: u64,
    provider: String,
}

impl fmt::Display for OfferSortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.market, self.put_at, self.provider)
    }
}

impl FromStr for OfferSortKey {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<OfferSortKey, ApiError> {
        let parse = || {
            let mut parts = text.splitn(3, ':');
            let (market, put_at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            Some(OfferSortKey { market, put_at, provider: parts.next()?.to_owned() })
        };
        let key = parse().ok_or_else(|| ApiError::bad_field("page_token", "is not of a page before"))?;
        command::number("page_token", key.put_at)?;
        Ok(key)
    }
}
