//! The refusals of each command, one check after the other; the order is part of the interface (R16).

use crate::apply::Checked;
use crate::state::Model;
use kubebid_core::command::{CancelMode, OnPreemption, PlaceBid, RestingUnits, RuleChange, TimeInForce};
use kubebid_core::event::Scope;
use kubebid_core::units::{AccountId, AccountName, AllocationId, BidId, MarketId, MarketName};
use kubebid_core::units::{UnitId, UnitName};
use kubebid_core::{MarketRules, MarketState, Price, Reject};

/// The most units that one offer may have.
const CAPACITY_MAX: u64 = 100_000;

fn refuse_if(condition: bool, reason: Reject) -> Checked<()> {
    if condition { Err(reason) } else { Ok(()) }
}

impl Model {
    pub(crate) fn find_account(&self, name: &AccountName) -> Option<AccountId> {
        self.names.accounts.iter().position(|account| account == name).map(|index| AccountId(index as u32))
    }

    fn find_market(&self, name: &MarketName) -> Checked<MarketId> {
        let index = self.names.markets.iter().position(|market| market == name);
        index.map(|index| MarketId(index as u32)).ok_or(Reject::UnknownMarket)
    }

    fn find_unit(&self, name: &UnitName) -> Checked<UnitId> {
        let unit = || {
            let market = self.find_market(&name.market).ok()?;
            let unit = UnitId { market, provider: self.find_account(&name.provider)?, number: name.number };
            self.units.contains_key(&unit).then_some(unit)
        };
        unit().ok_or(Reject::UnknownUnit)
    }

    fn check_bid_of(&self, tenant: &AccountName, bid: BidId) -> Checked<()> {
        let found = self.bids.get(&bid).ok_or(Reject::UnknownBid)?;
        refuse_if(self.find_account(tenant) != Some(found.tenant), Reject::NotYours)
    }

    fn check_not_ended(&self, allocation: AllocationId) -> Checked<()> {
        refuse_if(allocation.0 == 0 || allocation.0 > self.begun, Reject::UnknownAllocation)?;
        refuse_if(!self.allocations.contains_key(&allocation), Reject::Ended)
    }

    /// Checks the opening of a market. Returns its number, if it was closed, and its rules.
    pub(crate) fn check_open(
        &self,
        name: &MarketName,
        rules: &[RuleChange],
    ) -> Checked<(Option<MarketId>, MarketRules)> {
        let Ok(known) = self.find_market(name) else {
            return Ok((None, MarketRules::default().with(rules)?));
        };
        refuse_if(self.is_open(known), Reject::MarketExists)?;
        let (known, rules) = self.check_change(name, rules)?;
        Ok((Some(known), rules))
    }

    pub(crate) fn check_close(&self, name: &MarketName) -> Checked<MarketId> {
        let market = self.find_market(name)?;
        refuse_if(!self.is_open(market), Reject::MarketClosed)?;
        Ok(market)
    }

    fn is_open(&self, market: MarketId) -> bool {
        self.market_state(market) == MarketState::Open
    }

    pub(crate) fn check_change(
        &self,
        name: &MarketName,
        changes: &[RuleChange],
    ) -> Checked<(MarketId, MarketRules)> {
        let market = self.find_market(name)?;
        let rules = self.rules(market).with(changes)?;
        refuse_if(rules.tick != self.rules(market).tick, Reject::BadRule)?;
        Ok((market, rules))
    }

    pub(crate) fn check_put(
        &self,
        provider: &AccountName,
        market: &MarketName,
        capacity: u64,
        reserve: Price,
    ) -> Checked<(MarketId, AccountId)> {
        let market = self.find_market(market)?;
        let provider = self.find_account(provider).expect("the command has named it");
        let offered = self.capacity(market, provider);
        refuse_if(capacity == 0 && offered == 0, Reject::BadCapacity)?;
        refuse_if(capacity > CAPACITY_MAX, Reject::BadCapacity)?;
        refuse_if(capacity > offered && !self.is_open(market), Reject::MarketClosed)?;
        refuse_if(!reserve.is_multiple_of(self.rules(market).tick), Reject::BadReserve)?;
        Ok((market, provider))
    }

    pub(crate) fn check_withdraw(&self, provider: &AccountName, unit: &UnitName) -> Checked<UnitId> {
        let unit = self.check_lost(provider, unit)?;
        refuse_if(self.is_leaving(unit), Reject::AlreadyLeaving)?;
        Ok(unit)
    }

    pub(crate) fn check_lost(&self, provider: &AccountName, unit: &UnitName) -> Checked<UnitId> {
        let unit = self.find_unit(unit)?;
        refuse_if(self.find_account(provider) != Some(unit.provider), Reject::NotYours)?;
        Ok(unit)
    }

    /// Checks a resumption. Returns the units that are resumed, in the order of their numbers.
    pub(crate) fn check_resume(&self, provider: &AccountName, units: &RestingUnits) -> Checked<Vec<UnitId>> {
        match units {
            RestingUnits::One(unit) => {
                let unit = self.check_lost(provider, unit)?;
                refuse_if(!self.units[&unit].resting, Reject::NotResting)?;
                Ok(vec![unit])
            }
            RestingUnits::AllIn(market) => {
                let resting = self.resting_units(self.find_market(market)?);
                Ok(resting.filter(|unit| Some(unit.provider) == self.find_account(provider)).collect())
            }
        }
    }

    /// Checks a new bid. Returns the markets in which it searches.
    pub(crate) fn check_place(&self, bid: &PlaceBid) -> Checked<Scope> {
        let named: Vec<MarketId> =
            bid.markets.iter().flatten().map(|name| self.find_market(name)).collect::<Checked<_>>()?;
        let scope = match (&bid.markets, &bid.instance_type) {
            (Some(_), None) => Scope::Markets(named.as_slice().into()),
            (None, Some(kind)) => Scope::InstanceType(kind.clone()),
            (Some(_), Some(_)) | (None, None) => return Err(Reject::BadMarkets),
        };
        let twice = named.iter().enumerate().any(|(i, market)| named[..i].contains(market));
        refuse_if(
            twice || bid.markets.as_ref().is_some_and(|markets| markets.is_empty()),
            Reject::BadMarkets,
        )?;
        refuse_if(named.iter().any(|market| !self.is_open(*market)), Reject::MarketClosed)?;

        refuse_if(bid.min_nodes == 0 || bid.min_nodes > bid.max_nodes, Reject::BadNodes)?;
        let id = BidId(self.seq.0);
        self.check_nodes(&scope, id, bid.max_nodes)?;
        self.check_ceiling(&scope, id, bid.ceiling)?;

        match (&bid.time_in_force, bid.expire_at) {
            (TimeInForce::Gtc | TimeInForce::Ioc, None) => {}
            (TimeInForce::Gtt, Some(at)) => refuse_if(at <= self.now, Reject::Expired)?,
            (TimeInForce::Gtc | TimeInForce::Ioc, Some(_)) | (TimeInForce::Gtt, None) => {
                return Err(Reject::BadTif);
            }
            (TimeInForce::Unknown(_), _) => return Err(Reject::BadTif),
        }
        match bid.on_preemption {
            OnPreemption::Requeue | OnPreemption::Close => Ok(scope),
            OnPreemption::Unknown(_) => Err(Reject::BadOnPreemption),
        }
    }

    /// Checks the number of nodes by the rules of each market in the scope that admits the bid (R13, R18).
    fn check_nodes(&self, scope: &Scope, bid: BidId, nodes: u32) -> Checked<()> {
        let most = |market: MarketId| self.rules(market).bid_nodes_max;
        let too_many = self.markets_in(scope, bid).into_iter().any(|market| u64::from(nodes) > most(market));
        refuse_if(too_many, Reject::TooManyNodes)
    }

    /// Checks the ceiling by the rules of each market in the scope that admits the bid (R13, R18).
    fn check_ceiling(&self, scope: &Scope, bid: BidId, ceiling: Price) -> Checked<()> {
        let markets = self.markets_in(scope, bid);
        let off_the_tick = |market: &MarketId| !ceiling.is_multiple_of(self.rules(*market).tick);
        refuse_if(ceiling == Price::ZERO || markets.iter().any(off_the_tick), Reject::NotATick)?;
        let too_high = |market: &MarketId| ceiling.0 > self.rules(*market).ceiling_max;
        refuse_if(markets.iter().any(too_high), Reject::CeilingTooHigh)
    }

    pub(crate) fn check_amend(
        &self,
        tenant: &AccountName,
        id: BidId,
        ceiling: Option<Price>,
        max_nodes: Option<u32>,
    ) -> Checked<()> {
        self.check_bid_of(tenant, id)?;
        let bid = &self.bids[&id];
        if !bid.searching {
            let raises = ceiling.is_some_and(|ceiling| ceiling > bid.ceiling);
            let only = max_nodes.is_none_or(|nodes| nodes == bid.max_nodes);
            refuse_if(!raises || !only || self.held(id).is_empty(), Reject::Closed)?;
        }
        if let Some(ceiling) = ceiling {
            self.check_ceiling(&bid.scope, id, ceiling)?;
        }
        if let Some(nodes) = max_nodes {
            self.check_nodes(&bid.scope, id, nodes)?;
            let below_held = nodes < self.live(id) || nodes < bid.min_nodes;
            refuse_if(nodes < bid.max_nodes && below_held, Reject::BelowHeld)?;
        }
        match ceiling {
            Some(ceiling) if ceiling < bid.ceiling => self.check_lowering(id, ceiling),
            Some(ceiling) => {
                let added = self.added_by_raise(id, ceiling);
                refuse_if(!self.covers(bid.tenant, added), Reject::NoFunds)
            }
            None => Ok(()),
        }
    }

    /// Refuses to lower a ceiling while a node is protected or soon after a raise under notice, and below the
    /// reserve of a held node (R2).
    fn check_lowering(&self, bid: BidId, ceiling: Price) -> Checked<()> {
        let held = self.allocations.values().filter(|a| a.bid == bid);
        for a in held.clone() {
            refuse_if(a.notice.is_none() && a.is_protected(self.now), Reject::Protected)?;
        }
        refuse_if(self.now < self.bids[&bid].ceiling_locked_until, Reject::Protected)?;
        for a in held {
            let reserve = if a.notice.is_none() { self.offer_reserve(a.unit) } else { a.reserve };
            refuse_if(ceiling < reserve, Reject::BelowReserve)?;
        }
        Ok(())
    }

    pub(crate) fn check_cancel(&self, tenant: &AccountName, bid: BidId, mode: &CancelMode) -> Checked<()> {
        self.check_bid_of(tenant, bid)?;
        let has_any = !self.held(bid).is_empty() || !self.claims(bid).is_empty();
        match mode {
            CancelMode::Unknown(_) => Err(Reject::BadMode),
            CancelMode::Keep => refuse_if(!self.bids[&bid].searching, Reject::Closed),
            CancelMode::Release => refuse_if(!self.bids[&bid].searching && !has_any, Reject::Closed),
            CancelMode::Regroup => {
                refuse_if(!self.bids[&bid].searching, Reject::Closed)?;
                refuse_if(self.bids[&bid].minimum() == 1, Reject::NotAGang)
            }
        }
    }

    pub(crate) fn check_release(&self, tenant: &AccountName, allocation: AllocationId) -> Checked<()> {
        self.check_not_ended(allocation)?;
        let node = self.node(allocation);
        refuse_if(self.find_account(tenant) != Some(node.tenant), Reject::NotYours)
    }

    pub(crate) fn check_ready(&self, allocation: AllocationId, by: Option<&AccountName>) -> Checked<()> {
        self.check_not_ended(allocation)?;
        let node = self.node(allocation);
        if let Some(by) = by {
            let by = self.find_account(by);
            let concerned = by == Some(node.tenant) || by == Some(node.unit.provider);
            refuse_if(!concerned, Reject::NotYours)?;
        }
        refuse_if(self.allocations[&allocation].ready.is_some(), Reject::AlreadyReady)
    }
}
