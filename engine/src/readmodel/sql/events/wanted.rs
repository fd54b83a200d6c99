//! Filters the events of a pack by a query.

use std::collections::BTreeSet;

use crate::events::visibility::concerns_everyone;
use crate::readmodel::packs::Packed;
use crate::readmodel::queries::EventQuery;

#[derive(Debug)]
pub(super) struct Wanted {
    query: EventQuery,
    bids: BTreeSet<u64>,
    allocations: BTreeSet<u64>,
    markets: BTreeSet<String>,
    /// The instance types of these markets.
    instance_types: BTreeSet<String>,
    /// The bids with the labels that are asked for, where they are known.
    labelled: Option<BTreeSet<u64>>,
}

/// A party of an event.
struct Side<'a> {
    account: &'a str,
    /// Its bid, where the event has one on this side.
    bid: Option<u64>,
    sees_allocation: bool,
}

impl Wanted {
    pub(super) fn new(query: &EventQuery, labelled: Option<BTreeSet<u64>>) -> Wanted {
        Wanted {
            query: query.clone(),
            bids: query.bids.iter().map(|bid| bid.0).collect(),
            allocations: query.allocations.iter().map(|id| id.0).collect(),
            markets: query.markets.iter().map(|market| market.as_str().to_owned()).collect(),
            instance_types: query.markets.iter().map(|market| market.parts().0.to_owned()).collect(),
            labelled,
        }
    }

    pub(super) fn newest_first(&self) -> bool {
        self.query.newest_first
    }

    pub(super) fn has(&self, event: &Packed<'_>) -> bool {
        let query = &self.query;
        let (place, at) = (event.place(), event.at());
        let behind = |after| if query.newest_first { place < after } else { place > after };
        query.after.is_none_or(behind)
            && query.from.is_none_or(|from| at >= from)
            && query.to.is_none_or(|to| at < to)
            && (query.kinds.is_empty() || event.kind().is_some_and(|kind| query.kinds.contains(&kind)))
            && (self.allocations.is_empty()
                || event.allocation().is_some_and(|id| self.allocations.contains(&id)))
            && self.is_in_market(event)
            && self.concerns(event)
    }

    /// It has one of the markets, or is about a bid that names one of them among others.
    fn is_in_market(&self, event: &Packed<'_>) -> bool {
        if self.markets.is_empty() {
            return true;
        }
        if let Some(name) = event.market() {
            return self.markets.contains(name);
        }
        event.markets().any(|name| self.markets.contains(name))
            || event.instance_type().is_some_and(|kind| self.instance_types.contains(kind))
    }

    /// Returns true if the account can see that the event has the wanted bids, labels and allocations.
    fn concerns(&self, event: &Packed<'_>) -> bool {
        let by_bid = !self.bids.is_empty() || !self.query.labels.is_empty();
        let by_allocation = !self.allocations.is_empty();
        let has_bid = |side: &Side<'_>| !by_bid || side.bid.is_some_and(|bid| self.is_about(bid));
        match &self.query.account {
            None => !by_bid || sides(event).any(|side| has_bid(&side)),
            Some(account) => {
                let everyone = !by_bid && !by_allocation && event.kind().is_some_and(concerns_everyone);
                let mut own = sides(event).filter(|side| side.account == account.as_str());
                everyone || own.any(|side| (!by_allocation || side.sees_allocation) && has_bid(&side))
            }
        }
    }

    fn is_about(&self, bid: u64) -> bool {
        (self.bids.is_empty() || self.bids.contains(&bid))
            && self.labelled.as_ref().is_none_or(|labelled| labelled.contains(&bid))
    }
}

fn sides<'a>(event: &Packed<'a>) -> impl Iterator<Item = Side<'a>> {
    let bidders = event.bidders().into_iter().enumerate().filter_map(|(n, bidder)| {
        let (account, bid) = bidder?;
        Some(Side { account, bid: Some(bid), sees_allocation: n == 0 })
    });
    let provider = event.provider().map(|account| Side { account, bid: None, sees_allocation: true });
    let account = event.account().map(|account| Side { account, bid: None, sees_allocation: false });
    bidders.chain(provider).chain(account)
}
