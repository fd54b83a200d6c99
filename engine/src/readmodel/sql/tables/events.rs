//! Rows of events.

use crate::events::message::Parties;
use crate::readmodel::fold::FoldedEvent;
use crate::readmodel::sql::schema::{EVENT_PARTIES, EVENTS};
use crate::store::bulk::{Bulk, Change, How};
use kubebid_core::units::Micros;

pub(super) fn events(events: &[FoldedEvent<'_>]) -> Change {
    let mut rows = Bulk::new(&[EVENTS], events.len());
    for FoldedEvent { message, reason } in events {
        let Parties { holder, claimant, former, provider, account } = &message.parties;
        let mut row = rows.row();
        row.number(message.event.seq).number(message.event.index.into()).time(Micros(message.event.at_us));
        row.text(message.kind.word()).some_text(*reason);
        row.some_text(message.market.as_ref().map(|market| market.as_str()));
        row.some_text(message.unit.as_deref()).some_number(message.allocation.map(|allocation| allocation.0));
        row.some_number(holder.as_ref().map(|party| party.bid.0));
        row.some_text(holder.as_ref().map(|party| party.account.as_str()));
        row.some_text(provider.as_ref().map(|name| name.as_str()));
        for party in [claimant, former] {
            row.some_number(party.as_ref().map(|party| party.bid.0));
            row.some_text(party.as_ref().map(|party| party.account.as_str()));
        }
        row.some_text(account.as_ref().map(|name| name.as_str()));
        row.bytes(|bytes| message.encode(bytes));
    }
    Change { how: How::AppendByMonth("events"), rows }
}

/// Returns the index of events by their rare parties. Most events have none, so most cost no row here.
pub(super) fn parties(events: &[FoldedEvent<'_>]) -> Change {
    let mut rows = Bulk::new(&[EVENT_PARTIES], 0);
    for FoldedEvent { message, .. } in events {
        let Parties { claimant, former, account, .. } = &message.parties;
        let claims = [claimant, former].into_iter().flatten();
        let claims = claims.map(|party| (party.account.as_str(), Some(party.bid.0)));
        for (account, bid) in claims.chain(account.iter().map(|name| (name.as_str(), None))) {
            let mut row = rows.row();
            row.text(account).some_number(bid);
            row.number(message.event.seq)
                .number(message.event.index.into())
                .time(Micros(message.event.at_us));
        }
    }
    Change { how: How::Append("event_parties"), rows }
}
