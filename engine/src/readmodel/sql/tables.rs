//! Turns folded changes into rows of the tables. The statements are the same on both databases; `v` is the relation of
//! the rows.

mod allocations;
pub(super) mod bids;
mod charges;
mod events;

use crate::readmodel::fold::{Folded, MarketRecord, OfferRecord};
use crate::readmodel::rows::PricePoint;
use crate::readmodel::sql::schema::{MARKETS, OFFERS, PRICE_CHANGES};
use crate::store::bulk::{Bulk, Change, How};
use kubebid_core::units::MarketName;
use std::collections::BTreeMap;

/// The statements for some rows, in order.
#[derive(Debug)]
pub(crate) struct Changes(pub(super) Vec<Change>);

impl Changes {
    pub(crate) fn of(folded: &Folded<'_>) -> Changes {
        Changes(changes(folded))
    }
}

fn changes(folded: &Folded<'_>) -> Vec<Change> {
    let (placed, touched): (Vec<_>, Vec<_>) =
        folded.bids.iter().map(|(id, bid)| (*id, bid)).partition(|(_, bid)| bid.placed.is_some());
    let (begun, held): (Vec<_>, Vec<_>) =
        folded.allocations.iter().map(|(id, a)| (*id, a)).partition(|(_, a)| a.begun.is_some());
    vec![
        events::events(&folded.events),
        events::parties(&folded.events),
        bids::place(&placed),
        bids::touch(&touched),
        markets(&folded.markets),
        prices(&folded.prices),
        offers(&folded.offers),
        allocations::begin(&begun),
        allocations::touch(&held),
        charges::charges(&folded.charges),
        charges::segments(&folded.segments),
        charges::corrections(&folded.corrections),
    ]
}

fn markets(markets: &[MarketRecord<'_>]) -> Change {
    let mut rows = Bulk::new(&[MARKETS], markets.len());
    for MarketRecord { name, number, opened_at } in markets {
        rows.row().text(name.as_str()).number((*number).into()).time(*opened_at);
    }
    Change {
        // A market that is opened again has its row already.
        how: How::Statement(
            "INSERT INTO markets (market, number, opened_at) SELECT * FROM v WHERE true
              ON CONFLICT (market) DO NOTHING",
        ),
        rows,
    }
}

fn prices(prices: &[(&MarketName, PricePoint)]) -> Change {
    let mut rows = Bulk::new(&[PRICE_CHANGES], prices.len());
    for (market, PricePoint { seq, index, at, numbers }) in prices {
        let mut row = rows.row();
        row.text(market.as_str()).time(*at).number(seq.0).number((*index).into());
        row.number(numbers.market_price.0);
        row.some_number(numbers.entry_price.map(|price| price.0));
        row.some_number(numbers.floor.map(|price| price.0));
        row.some_number(numbers.lowest_accepted.map(|price| price.0));
        row.number(numbers.highest_losing.0);
    }
    Change { how: How::AppendByMonth("price_changes"), rows }
}

fn offers(offers: &BTreeMap<(&str, &str), OfferRecord>) -> Change {
    let mut rows = Bulk::new(&[OFFERS], offers.len());
    for ((provider, market), OfferRecord { capacity, reserve, put_at }) in offers {
        rows.row().text(provider).text(market).number(*capacity).number(reserve.0).time(*put_at);
    }
    Change {
        // SQLite needs the WHERE: otherwise it reads ON as the condition of a join.
        how: How::Statement(
            "INSERT INTO offers (provider, market, capacity, reserve_micros, put_at) SELECT * FROM v WHERE true
              ON CONFLICT (provider, market) DO UPDATE SET capacity = excluded.capacity,
                  reserve_micros = excluded.reserve_micros, put_at = excluded.put_at",
        ),
        rows,
    }
}
