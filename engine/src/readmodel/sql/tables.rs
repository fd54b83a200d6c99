//! Turns folded changes into rows of the tables. The statements are the same on both databases; `v` is the relation of
//! the rows.

mod allocations;
mod charges;
mod events;

use crate::readmodel::fold::{Folded, MarketRecord, OfferRecord};
use crate::readmodel::packs;
use crate::readmodel::rows::PricePoint;
use crate::store::bulk::{Bulk, Change, Columns, How, Kind::Number, Kind::Text};
use events::{RUNS_OF_KIND, RUNS_OF_MARKET};
use kubebid_core::units::MarketName;
use std::collections::BTreeMap;

/// All tables, for those who empty them.
pub(super) const TABLES: [&str; 12] = [
    "event_packs",
    "account_runs",
    "market_runs",
    "kind_runs",
    "bid_runs",
    "allocation_runs",
    "allocations",
    "offers",
    "markets",
    "price_changes",
    "charges",
    "charge_segments",
];

/// The statements for some rows, in order.
#[derive(Debug)]
pub(crate) struct Changes(pub(super) Vec<Change>);

impl Changes {
    pub(crate) fn of(folded: &Folded<'_>) -> Changes {
        Changes(changes(folded))
    }
}

fn changes(folded: &Folded<'_>) -> Vec<Change> {
    let (begun, held): (Vec<_>, Vec<_>) =
        folded.allocations.iter().map(|(id, a)| (*id, a)).partition(|(_, a)| a.begun.is_some());
    let runs = packs::runs(&folded.events);
    vec![
        events::packs(&runs),
        events::accounts(&runs, folded),
        events::bids(&runs, folded),
        events::allocations(&runs),
        events::by_name("market_runs", RUNS_OF_MARKET, &runs, |run| &run.markets),
        events::by_name("kind_runs", RUNS_OF_KIND, &runs, |run| &run.kinds),
        markets(&folded.markets),
        prices(&folded.prices),
        offers(&folded.offers),
        allocations::begin(&begun),
        allocations::touch(&held),
        charges::charges(&folded.charges),
        charges::segments(&folded.segments),
        charges::free(&folded.free),
    ]
}

fn markets(markets: &[MarketRecord<'_>]) -> Change {
    const COLUMNS: Columns = &[("market", Text), ("number", Number), ("opened_at", Number)];
    let mut rows = Bulk::new(&[COLUMNS], markets.len());
    for MarketRecord { name, number, opened_at } in markets {
        rows.row().text(name.as_str()).number((*number).into()).number(opened_at.0);
    }
    Change { how: How::Append("markets"), rows }
}

fn prices(prices: &[(&MarketName, PricePoint)]) -> Change {
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
        row.text(market.as_str()).number(at.0).number(seq.0).number((*index).into());
        row.number(numbers.market_price.0);
        row.some_number(numbers.entry_price.map(|price| price.0));
        row.some_number(numbers.floor.map(|price| price.0));
        row.some_number(numbers.lowest_accepted.map(|price| price.0));
        row.number(numbers.highest_losing.0);
    }
    Change { how: How::Append("price_changes"), rows }
}

fn offers(offers: &BTreeMap<(&str, &str), OfferRecord>) -> Change {
    const COLUMNS: Columns = &[
        ("provider", Text),
        ("market", Text),
        ("capacity", Number),
        ("reserve", Number),
        ("put_at", Number),
    ];
    let mut rows = Bulk::new(&[COLUMNS], offers.len());
    for ((provider, market), OfferRecord { capacity, reserve, put_at }) in offers {
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
