//! Decides whether an event is one that a query asks for: the same for stored and for live events.

use super::queries::EventQuery;
use crate::events::message::{Parties, Party};
use crate::events::visibility::concerns_everyone;
use kubebid_core::EventKind;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName};

/// The facts of an event by which a query finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventFacts<'a> {
    /// None if this program does not know the kind.
    pub(crate) kind: Option<EventKind>,
    /// The market of the unit or the offer, or the only market of the bid.
    pub(crate) market: Option<&'a str>,
    pub(crate) allocation: Option<AllocationId>,
    pub(crate) parties: &'a Parties,
}

impl EventQuery {
    /// Returns true if the query asks for the event, whatever its place and time. For a bid that does
    /// not name a single market, `looks_in` says if it searches in one of the query's markets.
    /// `has_labels` says if a bid has all of the query's labels.
    pub(crate) fn matches(
        &self,
        event: &EventFacts<'_>,
        looks_in: impl Fn(BidId) -> bool,
        has_labels: impl Fn(BidId) -> bool,
    ) -> bool {
        (self.kinds.is_empty() || event.kind.is_some_and(|kind| self.kinds.contains(&kind)))
            && self.matches_allocation(event)
            && self.matches_bid(event.parties, has_labels)
            && self.matches_market(event, looks_in)
            && self.matches_account(event)
    }

    /// Returns true if an account that the query names is this one, or if it names none.
    fn is_own(&self, account: &AccountName) -> bool {
        self.account.as_ref().is_none_or(|own| own == account)
    }

    fn matches_allocation(&self, event: &EventFacts<'_>) -> bool {
        if self.allocations.is_empty() {
            return true;
        }
        let Parties { holder, provider, .. } = event.parties;
        // Only the holder and the provider of a node may know its allocation.
        let sees = self.account.is_none()
            || holder.as_ref().is_some_and(|party| self.is_own(&party.account))
            || provider.as_ref().is_some_and(|provider| self.is_own(provider));
        sees && event.allocation.is_some_and(|id| self.allocations.contains(&id))
    }

    fn matches_bid(&self, parties: &Parties, has_labels: impl Fn(BidId) -> bool) -> bool {
        if self.bids.is_empty() && self.labels.is_empty() {
            return true;
        }
        bidders(parties).any(|party| {
            self.is_own(&party.account)
                && (self.bids.is_empty() || self.bids.contains(&party.bid))
                && (self.labels.is_empty() || has_labels(party.bid))
        })
    }

    fn matches_market(&self, event: &EventFacts<'_>, looks_in: impl Fn(BidId) -> bool) -> bool {
        if self.markets.is_empty() {
            return true;
        }
        match (event.market, &event.parties.holder) {
            (Some(market), _) => self.markets.contains(&MarketName::new(market)),
            (None, Some(holder)) => looks_in(holder.bid),
            (None, None) => false,
        }
    }

    fn matches_account(&self, event: &EventFacts<'_>) -> bool {
        let Parties { provider, account, .. } = event.parties;
        self.account.is_none()
            || event.kind.is_some_and(concerns_everyone)
            || bidders(event.parties).any(|party| self.is_own(&party.account))
            || [provider, account].into_iter().flatten().any(|name| self.is_own(name))
    }
}

/// Returns the holder, the claimant and the former claimant.
pub(crate) fn bidders(parties: &Parties) -> impl Iterator<Item = &Party> {
    let Parties { holder, claimant, former, .. } = parties;
    [holder, claimant, former].into_iter().flatten()
}
