//! The commands of providers: offer, withdraw, report a loss, resume (R11, R17).

use crate::state::{Model, Offer, Unit};
use kubebid_core::Price;
use kubebid_core::event::{DropCause, EndReason, Fact, NoticeReason};
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, UnitId};
use std::cmp::Reverse;

type OfferId = (MarketId, AccountId);

impl Model {
    /// Puts an offer: its reserve first, then its capacity. Capacity 0 leaves the reserve (R11).
    pub(crate) fn put_offer(&mut self, offer: OfferId, capacity: u64, reserve: Price) {
        let (market, provider) = offer;
        let place = self.seq;
        self.offers.entry(offer).or_insert(Offer { reserve, place, last_number: 0 });
        let reserve = if capacity == 0 { self.offers[&offer].reserve } else { reserve };
        self.emit(Fact::OfferPut { provider, market, capacity, reserve });
        self.change_reserve(offer, reserve);
        let before = self.capacity(market, provider);
        for _ in before..capacity {
            self.add_one(offer);
        }
        for _ in capacity..before {
            let unit = self.next_to_withdraw(offer);
            self.withdraw(unit);
        }
        self.drop_claims_of_seller(offer);
    }

    /// Changes the reserve for each node of the offer in the order of allocation numbers (R11).
    fn change_reserve(&mut self, (market, provider): OfferId, reserve: Price) {
        let place = self.seq;
        let offer = self.offers.get_mut(&(market, provider)).expect("put");
        if offer.reserve == reserve {
            return;
        }
        offer.reserve = reserve;
        offer.place = place;
        let of_offer = |unit: UnitId| unit.market == market && unit.provider == provider;
        let nodes: Vec<AllocationId> =
            self.allocations.iter().filter(|(_, a)| of_offer(a.unit)).map(|(id, _)| *id).collect();
        for node in nodes {
            if self.allocations[&node].notice.is_some() {
                self.change_reserve_under_notice(node, reserve);
            } else if self.holder_ceiling(node) < reserve {
                let deadline = self.after_notice_and_protection(node);
                self.start_notice(node, deadline, NoticeReason::ReserveRaised);
            } else {
                self.change_reserve_of_live(node, reserve);
            }
        }
    }

    /// Changes the reserve of a node under notice. A lower reserve counts at once, a higher one
    /// never. Claims that cannot pay it are dropped.
    fn change_reserve_under_notice(&mut self, node: AllocationId, reserve: Price) {
        let a = self.allocations.get_mut(&node).expect("not ended");
        a.reserve = a.reserve.min(reserve);
        let priced_out = a.claim().map(|claim| claim.bid);
        if priced_out.is_some_and(|bid| self.bids[&bid].ceiling < reserve) {
            self.drop_claim(node, DropCause::ReserveRaised);
        }
    }

    /// Changes the reserve of a live node. A lower reserve counts at once. One above the counting
    /// reserve starts the delay anew.
    fn change_reserve_of_live(&mut self, node: AllocationId, reserve: Price) {
        let from = self.after_notice_and_protection(node);
        let a = self.allocations.get_mut(&node).expect("not ended");
        if reserve > a.reserve {
            a.raise = Some((reserve, from));
        } else {
            a.reserve = reserve;
            a.raise = None;
        }
    }

    /// Adds one unit. Leaving units come back first, the one with the highest ceiling first, then the
    /// oldest (R11).
    fn add_one(&mut self, (market, provider): OfferId) {
        let leaving = self.units_of(market, provider).filter(|unit| self.is_leaving(*unit));
        let back = leaving.min_by_key(|unit| {
            let node = self.on_unit(*unit).expect("a unit leaves when its node ends");
            (Reverse(self.holder_ceiling(node)), node)
        });
        if let Some(unit) = back {
            self.units.get_mut(&unit).expect("known").leaving = false;
            self.emit(Fact::UnitBack { unit });
            return;
        }
        let offer = self.offers.get_mut(&(market, provider)).expect("put");
        offer.last_number += 1;
        let unit = UnitId { market, provider, number: offer.last_number };
        let reserve = offer.reserve;
        self.units.insert(unit, Unit::default());
        self.emit(Fact::UnitAdded { unit, reserve });
    }

    /// Returns the next unit to withdraw: resting units, then free units (highest number), notices without a claim
    /// (newest), then claims and live nodes in R4 order, that is lower ceiling, a claim before a
    /// node, last claimed or newest (R11).
    fn next_to_withdraw(&self, (market, provider): OfferId) -> UnitId {
        let staying = self.units_of(market, provider).filter(|unit| !self.is_leaving(*unit));
        let order = |unit: &UnitId| {
            let place = u32::from(!self.units[unit].resting);
            let Some(id) = self.on_unit(*unit) else { return (place, Price::ZERO, 0, Reverse(unit.number)) };
            let a = &self.allocations[&id];
            match (&a.notice, a.claim()) {
                (Some(_), None) => (2, Price::ZERO, 0, Reverse(id.0)),
                (_, Some(claim)) => (3, self.bids[&claim.bid].ceiling, 0, Reverse(claim.taken)),
                (None, None) => (3, self.holder_ceiling(id), 1, Reverse(id.0)),
            }
        };
        staying.min_by_key(order).expect("the capacity is above the one asked for")
    }

    /// Withdraws a unit: a free or resting one at once, any other when its node ends.
    pub(crate) fn withdraw(&mut self, unit: UnitId) {
        let Some(node) = self.on_unit(unit) else {
            self.remove_unit(unit);
            return;
        };
        self.units.get_mut(&unit).expect("known").leaving = true;
        self.emit(Fact::UnitLeaving { unit });
        if self.allocations[&node].claim().is_some() {
            self.drop_claim(node, DropCause::CapacityWithdrawn);
        }
        if self.allocations[&node].notice.is_none() {
            let deadline = self.after_notice_and_protection(node);
            self.start_notice(node, deadline, NoticeReason::CapacityWithdrawn);
        }
    }

    pub(crate) fn lose(&mut self, unit: UnitId) {
        match self.on_unit(unit) {
            Some(node) => self.end(node, EndReason::UnitLost),
            None => self.remove_unit(unit),
        }
    }

    /// Makes resting units free (R11).
    pub(crate) fn resume(&mut self, units: Vec<UnitId>) {
        for unit in units {
            self.units.get_mut(&unit).expect("checked").resting = false;
            self.emit(Fact::UnitResumed { unit });
        }
    }

    /// Drops the claims of an account that sells in the market (R17).
    fn drop_claims_of_seller(&mut self, (market, provider): OfferId) {
        let own = |bid: BidId| self.bids[&bid].tenant == provider;
        let claimed: Vec<AllocationId> = self
            .allocations
            .iter()
            .filter(|(_, a)| a.unit.market == market && a.claim().is_some_and(|claim| own(claim.bid)))
            .map(|(id, _)| *id)
            .collect();
        for node in claimed {
            self.drop_claim(node, DropCause::OwnSupply);
        }
    }
}
