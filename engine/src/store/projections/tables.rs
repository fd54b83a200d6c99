//! Which rows go where. The statements are the same on both databases; `v` are the rows.

mod allocations;
mod bids;
mod charges;

use super::bulk::{Bulk, Change, Columns, How, Kind::Bytes, Kind::Number, Kind::Text};
use crate::projections::fold::{Folded, MarketRecord};
use crate::projections::rows::{OfferRow, PricePoint};
use crate::wire::event::{Party, Told};
use std::sync::Arc;

/// All tables, for those who empty them.
pub(super) const TABLES: [&str; 9] = [
    "bids",
    "bid_markets",
    "allocations",
    "offers",
    "events",
    "markets",
    "price_changes",
    "charges",
    "charge_segments",
];

/// What has to be done for some rows, in order.
#[derive(Debug)]
pub(crate) struct Changes(pub(super) Vec<Change>);

impl Changes {
    pub(crate) fn of(folded: &Folded) -> Changes {
        Changes(changes(folded))
    }
}

fn changes(folded: &Folded) -> Vec<Change> {
    let (placed, touched): (Vec<_>, Vec<_>) =
        folded.bids.iter().map(|(id, bid)| (*id, bid)).partition(|(_, bid)| bid.placed.is_some());
    let (begun, held): (Vec<_>, Vec<_>) =
        folded.allocations.iter().map(|(id, a)| (*id, a)).partition(|(_, a)| a.begun.is_some());
    vec![
        events(&folded.events),
        markets(&folded.markets),
        prices(&folded.prices),
        offers(folded.offers.values()),
        bids::markets(&placed),
        bids::place(&placed),
        bids::touch(&touched),
        allocations::begin(&begun),
        allocations::touch(&held),
        charges::charges(&folded.charges),
        charges::segments(&folded.segments),
        charges::free(&folded.free),
    ]
}

fn events(events: &[Arc<Told>]) -> Change {
    const COLUMNS: Columns = &[
        ("seq", Number),
        ("idx", Number),
        ("at_us", Number),
        ("kind", Text),
        ("market", Text),
        ("unit", Text),
        ("allocation", Number),
        ("bid", Number),
        ("tenant", Text),
        ("claim_bid", Number),
        ("claim_tenant", Text),
        ("former_bid", Number),
        ("former_tenant", Text),
        ("provider", Text),
        ("account", Text),
        ("body", Bytes),
    ];
    let mut rows = Bulk::new(&[COLUMNS], events.len());
    for told in events {
        let Told { kind, market, unit, allocation, parties, event, .. } = &**told;
        let mut row = rows.row();
        row.number(event.seq).number(event.index.into()).number(event.at_us).text(kind);
        row.some_text(market.as_ref().map(|name| name.as_str()));
        row.some_text(unit.as_deref()).some_number(allocation.map(|id| id.0));
        for party in [&parties.holder, &parties.claimant, &parties.former] {
            let party: Option<&Party> = party.as_ref();
            row.some_number(party.map(|party| party.bid.0));
            row.some_text(party.map(|party| party.account.as_str()));
        }
        row.some_text(parties.provider.as_ref().map(|name| name.as_str()));
        row.some_text(parties.account.as_ref().map(|name| name.as_str()));
        row.bytes(|bytes| bytes.extend_from_slice(told.encoded()));
    }
    Change { how: How::Append("events"), rows }
}

fn markets(markets: &[MarketRecord]) -> Change {
    const COLUMNS: Columns = &[("market", Text), ("number", Number), ("opened_at", Number)];
    let mut rows = Bulk::new(&[COLUMNS], markets.len());
    for MarketRecord { name, number, opened_at } in markets {
        rows.row().text(name).number((*number).into()).number(opened_at.0);
    }
    Change { how: How::Append("markets"), rows }
}

fn prices(prices: &[(String, PricePoint)]) -> Change {
    const COLUMNS: Columns = &[
        ("market", Text),
        ("at_us", Number),
        ("seq", Number),
        ("idx", Number),
        ("market_price", Number),
        ("entry_price", Number),
        ("floor", Number),
        ("lowest_accepted", Number),
        ("highest_losing", Number),
    ];
    let mut rows = Bulk::new(&[COLUMNS], prices.len());
    for (market, PricePoint { seq, index, at, numbers }) in prices {
        let mut row = rows.row();
        row.text(market).number(at.0).number(seq.0).number((*index).into());
        row.number(numbers.market_price.0);
        row.some_number(numbers.entry_price.map(|price| price.0));
        row.some_number(numbers.floor.map(|price| price.0));
        row.some_number(numbers.lowest_accepted.map(|price| price.0));
        row.number(numbers.highest_losing.0);
    }
    Change { how: How::Append("price_changes"), rows }
}

fn offers<'a>(offers: impl ExactSizeIterator<Item = &'a OfferRow>) -> Change {
    const COLUMNS: Columns = &[
        ("provider", Text),
        ("market", Text),
        ("capacity", Number),
        ("reserve", Number),
        ("put_at", Number),
    ];
    let mut rows = Bulk::new(&[COLUMNS], offers.len());
    for OfferRow { provider, market, capacity, reserve, put_at } in offers {
        rows.row().text(provider).text(market).number(*capacity).number(reserve.0).number(put_at.0);
    }
    Change {
        // Without WHERE, SQLite would read ON as that of a join.
        how: How::Statement(
            "INSERT INTO offers (provider, market, capacity, reserve, put_at) SELECT * FROM v WHERE true
              ON CONFLICT (provider, market) DO UPDATE SET
                  capacity = excluded.capacity, reserve = excluded.reserve, put_at = excluded.put_at",
        ),
        rows,
    }
}
