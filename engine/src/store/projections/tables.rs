//! Which rows go where. The statements are the same on both databases; `v` are the rows.

use super::bulk::{Bulk, Change, Columns, How, Kind::Bytes, Kind::Number, Kind::Text};
use super::words::Word;
use crate::projections::fold::{AllocationRecord, BidRecord, Folded, Last, MarketRecord, SegmentRecord};
use crate::projections::rows::{ChargeRow, OfferRow, PricePoint};
use crate::wire::event::{Party, Told};
use kubebid_core::event::Scope;
use kubebid_core::money::Amount;
use kubebid_core::units::{AllocationId, BidId, Micros};
use prost::Message;

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
        bid_markets(&placed),
        place_bids(&placed),
        touch_bids(&touched),
        begin_allocations(&begun),
        touch_allocations(&held),
        charges(&folded.charges),
        segments(&folded.segments),
        free(&folded.free),
    ]
}

fn events(events: &[Told]) -> Change {
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
    let mut rows = Bulk::new(COLUMNS, events.len());
    for Told { kind, market, unit, allocation, parties, event } in events {
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
        row.bytes(|bytes| event.encode(bytes).expect("a vector grows"));
    }
    Change { how: How::Append("events"), rows }
}

fn markets(markets: &[MarketRecord]) -> Change {
    const COLUMNS: Columns = &[("market", Text), ("number", Number), ("opened_at", Number)];
    let mut rows = Bulk::new(COLUMNS, markets.len());
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
    let mut rows = Bulk::new(COLUMNS, prices.len());
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
    let mut rows = Bulk::new(COLUMNS, offers.len());
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

fn bid_markets(bids: &[(BidId, &BidRecord)]) -> Change {
    const COLUMNS: Columns = &[("market", Text), ("bid", Number)];
    let mut rows = Bulk::new(COLUMNS, bids.len());
    for (bid, record) in bids {
        let several = record.placed.as_ref().filter(|placed| placed.markets.len() > 1);
        for market in several.iter().flat_map(|placed| &placed.markets) {
            rows.row().text(market).number(bid.0);
        }
    }
    Change { how: How::Append("bid_markets"), rows }
}

fn place_bids(bids: &[(BidId, &BidRecord)]) -> Change {
    const COLUMNS: Columns = &[
        ("bid", Number),
        ("tenant", Text),
        ("market", Text),
        ("markets", Text),
        ("instance_type", Text),
        ("min_nodes", Number),
        ("tif", Text),
        ("expire_at", Number),
        ("on_preemption", Text),
        ("client_key", Text),
        ("placed_at", Number),
        ("ceiling", Number),
        ("max_nodes", Number),
        ("bid_seq", Number),
        ("state", Text),
        ("close_reason", Text),
        ("closed_at", Number),
        ("held", Number),
        ("under_notice", Number),
        ("claimed", Number),
        ("unmet", Number),
    ];
    let mut rows = Bulk::new(COLUMNS, bids.len());
    for (bid, record) in bids {
        let Some(placed) = &record.placed else { continue };
        let view = &record.view;
        let instance_type = match &view.scope {
            Scope::Markets(_) => None,
            Scope::InstanceType(kind) => Some(kind.as_str()),
        };
        let (market, markets) = match &placed.markets[..] {
            [market] => (Some(&market[..]), None),
            [] if instance_type.is_some() => (None, None),
            several => (None, Some(serde_json::json!(several).to_string())),
        };
        let mut row = rows.row();
        row.number(bid.0).text(&placed.tenant).some_text(market).some_text(markets.as_deref());
        row.some_text(instance_type);
        row.number(view.min_nodes.into()).text(placed.time_in_force.word());
        row.some_number(view.expire_at.map(|at| at.0));
        row.text(if view.closes_on_preemption { "CLOSE" } else { "REQUEUE" });
        row.some_text(placed.client_key.as_deref()).number(placed.at.0);
        as_it_is(&mut row, record);
    }
    Change { how: How::Append("bids"), rows }
}

fn touch_bids(bids: &[(BidId, &BidRecord)]) -> Change {
    const COLUMNS: Columns = &[
        ("bid", Number),
        ("ceiling", Number),
        ("max_nodes", Number),
        ("bid_seq", Number),
        ("state", Text),
        ("close_reason", Text),
        ("closed_at", Number),
        ("held", Number),
        ("under_notice", Number),
        ("claimed", Number),
        ("unmet", Number),
    ];
    let mut rows = Bulk::new(COLUMNS, bids.len());
    for (bid, record) in bids {
        let mut row = rows.row();
        row.number(bid.0);
        as_it_is(&mut row, record);
    }
    Change {
        how: How::Statement(
            "UPDATE bids SET
                  ceiling = v.ceiling, max_nodes = v.max_nodes, bid_seq = v.bid_seq, state = v.state,
                  close_reason = COALESCE(v.close_reason, bids.close_reason),
                  closed_at = COALESCE(v.closed_at, bids.closed_at), held = v.held,
                  under_notice = v.under_notice, claimed = v.claimed, unmet = v.unmet
              FROM v WHERE bids.bid = v.bid",
        ),
        rows,
    }
}

fn as_it_is(row: &mut super::bulk::Row<'_>, record: &BidRecord) {
    let view = &record.view;
    row.number(view.ceiling.0).number(view.max_nodes.into()).number(view.bid_seq.0);
    row.text(if view.searching { "OPEN" } else { "CLOSED" });
    row.some_text(record.closed.map(|(_, reason)| reason.word()));
    row.some_number(record.closed.map(|(at, _)| at.0));
    row.number(view.live.len() as u64).number(view.under_notice.len() as u64);
    row.number(view.claims.len() as u64).number(view.unmet.into());
}

fn begin_allocations(allocations: &[(AllocationId, &AllocationRecord)]) -> Change {
    const COLUMNS: Columns = &[
        ("allocation", Number),
        ("bid", Number),
        ("tenant", Text),
        ("unit", Text),
        ("market", Text),
        ("provider", Text),
        ("allocated_at", Number),
        ("state", Text),
        ("start_by", Number),
        ("ready_at", Number),
        ("protected_until", Number),
        ("notice_reason", Text),
        ("notice_started_at", Number),
        ("notice_deadline", Number),
        ("ended_at", Number),
        ("end_reason", Text),
        ("last_price", Number),
    ];
    let mut rows = Bulk::new(COLUMNS, allocations.len());
    for (allocation, record) in allocations {
        let Some(begun) = &record.begun else { continue };
        let mut row = rows.row();
        row.number(allocation.0).number(begun.bid.0).text(&begun.tenant).text(&begun.unit);
        row.text(&begun.market).text(&begun.provider).number(begun.at.0);
        how_it_stands(&mut row, record);
    }
    Change { how: How::Append("allocations"), rows }
}

fn touch_allocations(allocations: &[(AllocationId, &AllocationRecord)]) -> Change {
    const COLUMNS: Columns = &[
        ("allocation", Number),
        ("state", Text),
        ("start_by", Number),
        ("ready_at", Number),
        ("protected_until", Number),
        ("notice_reason", Text),
        ("notice_started_at", Number),
        ("notice_deadline", Number),
        ("ended_at", Number),
        ("end_reason", Text),
        ("last_price", Number),
    ];
    let mut rows = Bulk::new(COLUMNS, allocations.len());
    for (allocation, record) in allocations {
        let mut row = rows.row();
        row.number(allocation.0);
        how_it_stands(&mut row, record);
    }
    Change {
        how: How::Statement(
            "UPDATE allocations SET
                  state = v.state, start_by = v.start_by, ready_at = v.ready_at,
                  protected_until = v.protected_until, notice_reason = v.notice_reason,
                  notice_started_at = CASE WHEN v.notice_reason IS NULL THEN NULL
                      ELSE COALESCE(v.notice_started_at, allocations.notice_started_at) END,
                  notice_deadline = v.notice_deadline, ended_at = v.ended_at, end_reason = v.end_reason,
                  last_price = v.last_price
              FROM v WHERE allocations.allocation = v.allocation",
        ),
        rows,
    }
}

fn how_it_stands(row: &mut super::bulk::Row<'_>, record: &AllocationRecord) {
    let (start_by, ready_at, protected_until, notice, ended) = match &record.last {
        Last::Held(view) => {
            let notice = view.notice.map(|notice| (notice.reason, notice.deadline));
            (view.start_by, view.ready_at, view.protected_until, notice, None)
        }
        Last::Ended { at, reason, was } => {
            let ended = Some((*at, *reason, was.price));
            (was.start_by, was.ready_at, was.protected_until, was.notice, ended)
        }
        Last::Unknown => unreachable!("what was touched is held or has ended"),
    };
    let state = match (ended, ready_at) {
        (Some(_), _) => "ENDED",
        (None, Some(_)) => "ACTIVE",
        (None, None) => "STARTING",
    };
    let started: Option<Micros> = notice.and(record.notice_started_at);
    row.text(state).number(start_by.0).some_number(ready_at.map(|at| at.0)).number(protected_until.0);
    row.some_text(notice.map(|(reason, _)| reason.word()));
    row.some_number(started.map(|at| at.0));
    row.some_number(notice.map(|(_, deadline)| deadline.0));
    row.some_number(ended.map(|(at, ..)| at.0)).some_text(ended.map(|(_, reason, _)| reason.word()));
    row.some_number(ended.map(|(.., price)| price.0));
}

fn charges(charges: &[ChargeRow]) -> Change {
    const COLUMNS: Columns = &[
        ("seq", Number),
        ("idx", Number),
        ("at_us", Number),
        ("allocation", Number),
        ("bid", Number),
        ("tenant", Text),
        ("provider", Text),
        ("unit", Text),
        ("market", Text),
        ("own", Number),
        ("reason", Text),
        ("from_us", Number),
        ("to_us", Number),
        ("debit", Number),
        ("fee", Number),
        ("credit", Number),
    ];
    let mut rows = Bulk::new(COLUMNS, charges.len());
    for charge in charges {
        let mut row = rows.row();
        row.number(charge.seq.0).number(charge.index.into()).number(charge.at.0);
        row.number(charge.allocation.0).number(charge.bid.0).text(&charge.tenant).text(&charge.provider);
        row.text(&charge.unit).text(&charge.market).number(charge.own.into()).text(charge.reason.word());
        row.number(charge.from.0).number(charge.to.0);
        row.number(amount(charge.debit)).number(amount(charge.fee)).number(amount(charge.credit));
    }
    Change { how: How::Append("charges"), rows }
}

fn segments(segments: &[SegmentRecord]) -> Change {
    const COLUMNS: Columns = &[
        ("allocation", Number),
        ("claim_seq", Number),
        ("claim_idx", Number),
        ("from_us", Number),
        ("to_us", Number),
        ("amount", Number),
        ("mean_price", Number),
        ("min_charge", Number),
        ("total", Number),
        ("rest", Number),
    ];
    let mut rows = Bulk::new(COLUMNS, segments.len());
    for SegmentRecord { allocation, claim, segment, total } in segments {
        let (seq, index) = claim.unwrap_or_default();
        let rest = total.0 % u128::from(Micros::HOUR.0);
        let mut row = rows.row();
        row.number(allocation.0).number(seq).number(index.into());
        row.number(segment.from.0).number(segment.to.0).number(amount(segment.amount));
        row.number(segment.mean_price.0).number(segment.min_charge.into());
        row.number(amount(total.round())).number(rest as u64);
    }
    Change { how: How::Append("charge_segments"), rows }
}

fn free(allocations: &[AllocationId]) -> Change {
    let mut rows = Bulk::new(&[("allocation", Number)], allocations.len());
    for allocation in allocations {
        rows.row().number(allocation.0);
    }
    Change {
        how: How::Statement(
            "DELETE FROM charge_segments WHERE claim_seq = 0 AND allocation IN (SELECT allocation FROM v)",
        ),
        rows,
    }
}

/// The fold has seen to it that they fit.
fn amount(amount: Amount) -> u64 {
    u64::try_from(amount.0).expect("an amount below 2^63")
}
