//! Commands of providers: put an offer, withdraw, resume or lose units (R11).

use crate::collections::dense_map::DenseMap;
use crate::collections::sorted_map::SortedSet;
use crate::command::RestingUnits;
use crate::event::{DropCause, EndReason, Fact, NoticeReason};
use crate::exchange::Exchange;
use crate::state::{Offer, Unit};
use crate::types::market_rules::OFFER_UNITS_MAX;
use crate::types::money::Price;
use crate::types::reject::Reject;
use crate::types::units::{AccountId, AllocationId, MarketId, MarketName, UnitId, UnitName};
use std::cmp::Reverse;
use std::collections::BTreeSet;

impl Exchange {
    pub(crate) fn put_offer(
        &mut self,
        market: &MarketName,
        capacity: u64,
        reserve: Price,
    ) -> Result<(), Reject> {
        let (provider, market) = (self.caller, self.market_named(market)?);
        let offered = self.market(market).offers.get(&provider).map_or(0, Offer::capacity);
        if capacity == 0 && offered == 0 || capacity > OFFER_UNITS_MAX {
            return Err(Reject::BadCapacity);
        }
        if capacity > offered && !self.is_open(market) {
            return Err(Reject::MarketClosed);
        }
        if !reserve.is_multiple_of(self.market(market).rules.tick) {
            return Err(Reject::BadReserve);
        }

        let sold = self.sells(provider, market);
        if !sold {
            self.begin_to_sell(provider, market, reserve);
        }
        let offer = &self.market(market).offers[&provider];
        let before = offer.reserve;
        let reserve = if capacity == 0 { before } else { reserve };
        self.emit(Fact::OfferPut { provider, market, capacity, reserve });
        if reserve != before {
            self.change_reserve(market, provider, reserve);
        }
        if capacity > offered {
            self.raise_capacity(market, provider, capacity - offered);
        } else {
            self.lower_capacity(market, provider, offered - capacity);
        }
        // `remove_unit` does this when the last unit goes.
        if !sold {
            self.requeue_in(provider, market);
        }
        Ok(())
    }

    /// Makes the account a seller in this market, so that it cannot buy here (R17). An offer that was
    /// withdrawn continues: its unit numbers go on, and it keeps its place if the reserve is the same
    /// (R2).
    fn begin_to_sell(&mut self, provider: AccountId, market: MarketId, reserve: Price) {
        let place = self.seq;
        let offers = &mut self.market_mut(market).offers;
        offers.entry(provider).or_insert_with(|| Offer {
            reserve,
            place,
            last_number: 0,
            units: DenseMap::default(),
            free: SortedSet::default(),
            resting: SortedSet::default(),
            leaving: 0,
            notices: 0,
        });
        let claims: Vec<AllocationId> = self
            .market(market)
            .book
            .held
            .claims()
            .filter(|node| self.allocation(*node).claim().is_some_and(|claim| claim.by.tenant == provider))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        for node in claims {
            self.drop_claim(node, DropCause::OwnSupply);
        }
    }

    /// Changes the reserve, which gives the offer a new place (R2). Holders that cannot pay it get a
    /// notice, and claimants lose their claims.
    fn change_reserve(&mut self, market: MarketId, provider: AccountId, reserve: Price) {
        let seq = self.seq;
        let offer = &self.market(market).offers[&provider];
        let (old_reserve, old_place) = (offer.reserve, offer.place);
        self.last_settled.note_reserve(market, provider, old_reserve);
        let book = &mut self.market_mut(market).book;
        book.free.set(old_reserve, old_place, provider, 0);
        book.free.set_floor(old_reserve, provider, false);
        let offer = self.market_mut(market).offers.get_mut(&provider).expect("just seen");
        (offer.reserve, offer.place) = (reserve, seq);
        let mut nodes: Vec<AllocationId> =
            offer.units.iter().filter_map(|(_, unit)| unit.allocation).collect();
        nodes.sort_unstable();
        self.reindex_offer(market, provider);
        for node in nodes {
            self.apply_reserve(node, reserve);
        }
    }

    fn apply_reserve(&mut self, id: AllocationId, reserve: Price) {
        self.note_billed(id);
        let allocation = self.allocation_mut(id);
        let live = allocation.notice.is_none();
        allocation.reserve = allocation.reserve.min(reserve);
        let (bid, claim) = (allocation.bid, allocation.claim());
        if live {
            self.delay_raise(id);
        }
        self.remeter(id);
        self.reindex_allocation(id);
        if let Some(claim) = claim {
            if self.bid(claim.by.bid).terms.ceiling < reserve {
                self.drop_claim(id, DropCause::ReserveRaised);
            } else {
                self.reindex_rescue(claim.by.bid);
            }
        }
        if live && self.bid(bid).terms.ceiling < reserve {
            self.start_notice(id, NoticeReason::ReserveRaised);
        }
    }

    /// Raises the capacity. Leaving units come back first, those with the highest ceiling first, then
    /// the oldest. Then units are added.
    fn raise_capacity(&mut self, market: MarketId, provider: AccountId, by: u64) {
        let offer = &self.market(market).offers[&provider];
        // Most offers have no leaving unit, so there is no need to read all their units.
        let units = (offer.leaving > 0).then_some(&offer.units);
        let mut leaving: Vec<(Reverse<Price>, AllocationId, u64)> = units
            .into_iter()
            .flat_map(|units| units.iter())
            .filter(|(_, unit)| unit.leaving)
            .map(|(number, unit)| {
                let id = unit.allocation.expect("a unit that is leaving still has its node");
                (Reverse(self.bid(self.allocation(id).bid).terms.ceiling), id, number)
            })
            .collect();
        leaving.sort_unstable();
        leaving.truncate(usize::try_from(by).unwrap_or(usize::MAX));
        let added = by - leaving.len() as u64;
        for (_, id, number) in leaving {
            let unit = UnitId { market, provider, number };
            let offer = self.offer_mut(unit);
            offer.units.get_mut(number).expect("a leaving unit").leaving = false;
            offer.leaving -= 1;
            self.emit(Fact::UnitBack { unit });
            self.reindex_allocation(id);
        }
        for _ in 0..added {
            self.add_unit(market, provider);
        }
        self.reindex_offer(market, provider);
    }

    fn add_unit(&mut self, market: MarketId, provider: AccountId) {
        let offer = self.market_mut(market).offers.get_mut(&provider).expect("an offer to add to");
        offer.last_number += 1;
        let (number, reserve) = (offer.last_number, offer.reserve);
        offer.units.insert(number, Unit::default());
        offer.free.insert(number);
        self.market_mut(market).units += 1;
        self.emit(Fact::UnitAdded { unit: UnitId { market, provider, number }, reserve });
    }

    /// Lowers the capacity: resting units first, then free units, then notices without a claim, then claims
    /// and allocations in the order of R4.
    fn lower_capacity(&mut self, market: MarketId, provider: AccountId, by: u64) {
        if by == 0 {
            return;
        }
        let offer = &self.market(market).offers[&provider];
        if by <= (offer.resting.len() + offer.free.len()) as u64 {
            // Units without a node are enough, so the others need not be read.
            let without_node = offer.resting.iter().rev().chain(offer.free.iter().rev());
            let numbers: Vec<u64> = without_node.take(by as usize).collect();
            for number in numbers {
                self.withdraw(UnitId { market, provider, number });
            }
            return;
        }
        let staying = offer.units.iter().filter(|(_, unit)| !unit.leaving);
        let mut order: Vec<(GiveUpOrder, u64)> = staying
            .map(|(number, unit)| {
                let order = match unit.allocation {
                    Some(id) => self.give_up_order(id),
                    None if offer.resting.contains(number) => GiveUpOrder::Resting(Reverse(number)),
                    None => GiveUpOrder::Free(Reverse(number)),
                };
                (order, number)
            })
            .collect();
        order.sort_unstable();
        order.truncate(usize::try_from(by).unwrap_or(usize::MAX));
        for (_, number) in order {
            self.withdraw(UnitId { market, provider, number });
        }
    }

    fn give_up_order(&self, id: AllocationId) -> GiveUpOrder {
        let allocation = self.allocation(id);
        match (allocation.notice, allocation.claim()) {
            (None, _) => GiveUpOrder::Held(self.bid(allocation.bid).terms.ceiling, Held::Live(Reverse(id))),
            (Some(_), Some(claim)) => {
                GiveUpOrder::Held(self.bid(claim.by.bid).terms.ceiling, Held::Claimed(Reverse(claim.number)))
            }
            (Some(_), None) => GiveUpOrder::Unclaimed(Reverse(id)),
        }
    }

    /// Withdraws a unit. A unit without a node goes at once, any other when its node ends; its holder gets
    /// a notice unless it has one.
    fn withdraw(&mut self, id: UnitId) {
        let offer = self.offer_mut(id);
        let unit = offer.units.get_mut(id.number).expect("a unit to withdraw");
        let Some(node) = unit.allocation else {
            self.remove_unit(id);
            return;
        };
        unit.leaving = true;
        offer.leaving += 1;
        self.emit(Fact::UnitLeaving { unit: id });
        self.reindex_offer(id.market, id.provider);
        if self.allocation(node).claim().is_some() {
            self.drop_claim(node, DropCause::CapacityWithdrawn);
        } else if self.allocation(node).notice.is_none() {
            self.start_notice(node, NoticeReason::CapacityWithdrawn);
        }
        self.reindex_allocation(node);
    }

    pub(crate) fn remove_unit(&mut self, id: UnitId) {
        let offer = self.offer_mut(id);
        let unit = offer.units.remove(id.number).expect("a unit to remove");
        offer.free.remove(id.number);
        let rested = offer.resting.remove(id.number);
        offer.leaving -= u64::from(unit.leaving);
        let is_last_unit_gone = offer.units.is_empty();
        let market = self.market_mut(id.market);
        market.units -= 1;
        market.resting -= u64::from(rested);
        self.reindex_offer(id.market, id.provider);
        self.emit(Fact::UnitRemoved { unit: id });
        if is_last_unit_gone {
            self.requeue_in(id.provider, id.market);
        }
        self.note_if_emptied(id.market);
    }

    fn unit_named(&self, name: &UnitName) -> Option<UnitId> {
        let market = *self.market_ids.get(&name.market)?;
        let provider = *self.account_ids.get(&name.provider)?;
        let offer = self.market(market).offers.get(&provider)?;
        offer.units.get(name.number).is_some().then_some(UnitId { market, provider, number: name.number })
    }

    fn unit_of_caller(&self, unit: &UnitName) -> Result<UnitId, Reject> {
        let id = self.unit_named(unit).ok_or(Reject::UnknownUnit)?;
        if id.provider != self.caller {
            return Err(Reject::NotYours);
        }
        Ok(id)
    }

    pub(crate) fn withdraw_unit(&mut self, unit: &UnitName) -> Result<(), Reject> {
        let id = self.unit_of_caller(unit)?;
        if self.offer(id).units[id.number].leaving {
            return Err(Reject::AlreadyLeaving);
        }

        self.withdraw(id);
        Ok(())
    }

    pub(crate) fn resume_units(&mut self, units: &RestingUnits) -> Result<(), Reject> {
        match units {
            RestingUnits::One(unit) => {
                let id = self.unit_of_caller(unit)?;
                if !self.offer(id).resting.contains(id.number) {
                    return Err(Reject::NotResting);
                }

                self.resume(id);
            }
            RestingUnits::AllIn(market) => {
                let (provider, market) = (self.caller, self.market_named(market)?);

                for number in self.resting_units(market, provider) {
                    self.resume(UnitId { market, provider, number });
                }
            }
        }
        Ok(())
    }

    /// Returns the numbers of the resting units of an offer.
    pub(crate) fn resting_units(&self, market: MarketId, provider: AccountId) -> Vec<u64> {
        let offer = self.market(market).offers.get(&provider);
        offer.map_or(Vec::new(), |offer| offer.resting.iter().collect())
    }

    /// Makes a resting unit free.
    fn resume(&mut self, unit: UnitId) {
        let offer = self.offer_mut(unit);
        offer.resting.remove(unit.number);
        offer.free.insert(unit.number);
        self.market_mut(unit.market).resting -= 1;
        self.emit(Fact::UnitResumed { unit });
        self.reindex_offer(unit.market, unit.provider);
    }

    pub(crate) fn report_unit_lost(&mut self, unit: &UnitName) -> Result<(), Reject> {
        let id = self.unit_of_caller(unit)?;

        match self.offer(id).units[id.number].allocation {
            Some(node) => self.end(node, EndReason::UnitLost),
            None => self.remove_unit(id),
        }
        Ok(())
    }
}

/// The order in which an offer gives up units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GiveUpOrder {
    Resting(Reverse<u64>),
    Free(Reverse<u64>),
    Unclaimed(Reverse<AllocationId>),
    Held(Price, Held),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Claimed(Reverse<u64>),
    Live(Reverse<AllocationId>),
}
