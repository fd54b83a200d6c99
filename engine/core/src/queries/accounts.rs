//! Questions about one account: its bids, its offers, its usage, and what its nodes have cost.

use crate::exchange::Exchange;
use crate::queries::views::{AllocationView, BidView, OfferView, UnitView};
use crate::state::account_usage::AccountUsage;
use crate::types::money::Bill;
use crate::types::units::{AccountId, AccountName, AllocationId, BidId, MarketId, Micros};

/// An offer with its units and, of each unit, the allocation that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferUnits {
    /// The offer.
    pub offer: OfferView,
    /// Its units by number, each with its holder; None if the unit is free.
    pub units: Vec<(UnitView, Option<AllocationView>)>,
}

impl Exchange {
    /// Returns a bid of this account; None if it has no bid with this number.
    pub fn own_bid(&self, account: &AccountName, bid: BidId) -> Option<BidView> {
        self.view_bid(bid).filter(|view| self.account_id(account) == Some(view.tenant))
    }

    /// Returns the bids of an account that search or hold nodes, the newest first.
    pub fn open_bids_of(&self, account: &AccountName) -> Vec<BidView> {
        let ids = self.account_id(account).into_iter().flat_map(|account| self.bids_of(account, None));
        let bids = ids.filter_map(|bid| self.view_bid(bid));
        bids.filter(|bid| bid.searching || !bid.live.is_empty() || !bid.under_notice.is_empty()).collect()
    }

    /// Returns the usage of every account that a command has named.
    pub fn account_usages(&self) -> Vec<(AccountName, AccountUsage)> {
        let usage = |(name, account): (&AccountName, _)| (name.clone(), self.account_usage(account));
        self.names.accounts.iter().zip((0..).map(AccountId)).map(usage).collect()
    }

    /// Returns the offer of an account; None if it has no unit in the market, leaving units included.
    pub fn offer_of(&self, market: MarketId, provider: &AccountName) -> Option<OfferView> {
        self.view_offer(market, self.account_id(provider)?)
    }

    /// Returns the first units of an account's offer with numbers above `after`, at most `limit`.
    pub fn units_of(
        &self,
        market: MarketId,
        provider: &AccountName,
        after: u64,
        limit: usize,
    ) -> Vec<UnitView> {
        let provider = self.account_id(provider).into_iter();
        provider.flat_map(|provider| self.view_units(market, provider, after)).take(limit).collect()
    }

    /// Returns an allocation and the offer of its unit; None if the allocation has ended.
    pub fn allocation_with_offer(&self, id: AllocationId) -> Option<(AllocationView, OfferView)> {
        let holder = self.view_allocation(id)?;
        let offer = self.view_offer(holder.unit.market, holder.unit.provider)?;
        Some((holder, offer))
    }

    /// Returns the offers of one provider or of all, in one market or in all, each with its units and their holders.
    pub fn offers_with_units(
        &self,
        market: Option<MarketId>,
        provider: Option<&AccountName>,
    ) -> Vec<OfferUnits> {
        let markets = (0..self.markets.len() as u32).map(MarketId);
        let markets = markets.filter(|id| market.is_none_or(|market| market == *id));
        let provider = provider.map(|name| self.account_id(name));
        let offers = markets.flat_map(|market| {
            let providers = self.market(market).offers.keys();
            let wanted = providers.filter(|id| provider.is_none_or(|provider| provider == Some(**id)));
            wanted.filter_map(move |provider| self.view_offer(market, *provider))
        });
        let holder = |unit: UnitView| (unit, unit.allocation.and_then(|id| self.view_allocation(id)));
        let with_units = |offer: OfferView| {
            let units = self.view_units(offer.market, offer.provider, 0).map(holder).collect();
            OfferUnits { offer, units }
        };
        offers.map(with_units).collect()
    }

    /// Returns the unrounded cost of a node at each full hour that no command has reached yet, and at `until`, if
    /// nothing happens until then. None if the allocation has ended.
    pub fn bills_by_hour(&self, id: AllocationId, until: Micros) -> Option<Vec<(Micros, Bill)>> {
        full_hours(self.now(), until).into_iter().map(|at| Some((at, self.bill_at(id, at)?))).collect()
    }
}

/// Returns the full hours between two times, and the second time.
fn full_hours(from: Micros, until: Micros) -> Vec<Micros> {
    let until = until.max(from);
    let first = (from.0 / Micros::HOUR.0 + 1) * Micros::HOUR.0;
    let hours = (0..).map(|n| Micros(first + n * Micros::HOUR.0)).take_while(|hour| *hour < until);
    hours.chain([until]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_that_no_command_has_reached_is_listed() {
        let hours = |from, until| full_hours(Micros::seconds(from), Micros::seconds(until));
        let seconds = |list: &[u64]| list.iter().map(|s| Micros::seconds(*s)).collect::<Vec<_>>();
        assert_eq!(hours(1800, 7201), seconds(&[3600, 7200, 7201]));
        assert_eq!(hours(5, 5), seconds(&[5]));
        assert_eq!(hours(7, 5), seconds(&[7]), "a command came meanwhile");
    }
}
