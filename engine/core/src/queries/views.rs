//! Views of one bid, allocation or offer, and quotes.

use crate::event::{NoticeReason, Scope};
use crate::exchange::Exchange;
use crate::queries::unfilled::lcm;
use crate::state::account_usage::AccountUsage;
use crate::state::{Allocation, Bid, NodeList, Offer};
use crate::types::market_rules::MarketRules;
use crate::types::market_state::MarketState;
use crate::types::money::{Amount, Bill, Price};
use crate::types::numbers::{Numbers, Supply};
use crate::types::state_dump::AllocationState;
use crate::types::units::{
    AccountId, AccountName, AllocationId, BidId, ClientKey, MarketId, MarketName, Micros, Seq, UnitId,
};

/// The cost of a running node up to an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accrual {
    /// The number of the allocation.
    pub allocation: AllocationId,
    /// The cost, unrounded.
    pub bill: Bill,
    /// The operator's fee that a charge would have (R15), in hundredths of a percent.
    pub fee_bps: u64,
}

/// A bid as its tenant sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BidView {
    /// The number of the bid.
    pub bid: BidId,
    /// The account that placed it.
    pub tenant: AccountId,
    /// The markets in which it searches.
    pub scope: Scope,
    /// The ceiling, in micro-dollars per node-hour.
    pub ceiling: Price,
    /// Its place among bids of the same ceiling (R2).
    pub bid_seq: Seq,
    /// The number of nodes that it takes at least at entry (R12).
    pub min_nodes: u32,
    /// The highest number of its live nodes and claims.
    pub max_nodes: u32,
    /// The end of the search, in microseconds since 1970; None unless the bid is GTT (R14).
    pub expire_at: Option<Micros>,
    /// True for CLOSE, false for REQUEUE (R7).
    pub closes_on_preemption: bool,
    /// True until the search ends; a bid that no longer searches may still hold nodes (R14).
    pub searching: bool,
    /// The unmet demand: `max_nodes` − live allocations − claims, and 0 if the bid does not search.
    pub unmet: u32,
    /// Its allocations that are not under notice, by number.
    pub live: Vec<AllocationId>,
    /// Its allocations under notice, by number.
    pub under_notice: Vec<AllocationId>,
    /// The nodes under notice on which it has a claim.
    pub claims: Vec<AllocationId>,
    /// The time until which the ceiling may not be lowered after a raise under notice, in microseconds since 1970; None if
    /// that time has passed, or if there was no such raise (R2).
    pub ceiling_locked_until: Option<Micros>,
}

/// An allocation that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationView {
    /// The number of the allocation.
    pub allocation: AllocationId,
    /// The bid that holds it.
    pub bid: BidId,
    /// The account of the bid.
    pub tenant: AccountId,
    /// The unit that is held; its provider is credited.
    pub unit: UnitId,
    /// Starting or Active. `notice` says if it is also under notice.
    pub state: AllocationState,
    /// The time of the first ready report, in microseconds since 1970; None while starting (R15).
    pub ready_at: Option<Micros>,
    /// The time by which it must be reported ready; otherwise it is lost.
    pub start_by: Micros,
    /// The end of the protection, in microseconds since 1970; while starting, `start_by` + minimum runtime (R4).
    pub protected_until: Micros,
    /// The price in force, per node-hour.
    pub price: Price,
    /// The ceiling of the bid, in micro-dollars per node-hour.
    pub ceiling: Price,
    /// The bill up to now.
    pub accrued: Amount,
    /// The notice that the node is under; None if the allocation is live.
    pub notice: Option<NoticeView>,
}

/// The notice of an allocation, as its tenant sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeView {
    /// The reason of the notice.
    pub reason: NoticeReason,
    /// The time at which the node ends unless the notice is rescinded, in microseconds since 1970.
    pub deadline: Micros,
    /// True if a bid has a claim on the unit.
    pub claimed: bool,
    /// The lowest ceiling that keeps the node. None if no ceiling is enough.
    pub price_to_stay: Option<Price>,
}

/// An offer as its provider sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferView {
    /// The market of the offer.
    pub market: MarketId,
    /// The account that offers.
    pub provider: AccountId,
    /// The units that are not leaving: those that are free, allocated, under notice and resting.
    pub capacity: u64,
    /// The reserve, in micro-dollars per node-hour.
    pub reserve: Price,
    /// The number of free units.
    pub free: u64,
    /// The number of units that are held and not under notice.
    pub allocated: u64,
    /// The number of units under notice that stay.
    pub notice: u64,
    /// The number of units that rest until they are resumed (R11).
    pub resting: u64,
    /// The number of units that go when their notice ends; not part of `capacity`.
    pub leaving: u64,
}

/// A unit as its provider sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitView {
    /// The unit's market, provider and number.
    pub unit: UnitId,
    /// True if the unit goes when its notice ends (R11).
    pub leaving: bool,
    /// True if the unit rests until it is resumed (R11).
    pub resting: bool,
    /// The allocation that holds the unit; None if the unit is free or rests.
    pub allocation: Option<AllocationId>,
    /// True if that allocation is under notice.
    pub under_notice: bool,
}

pub use crate::queries::accounts::OfferUnits;
pub use crate::queries::depth::{DemandLevel, Depth, SupplyLevel};
pub use crate::queries::funds::FundsView;
pub use crate::queries::market_quote::MarketQuote;
pub use crate::queries::refusal_detail::RefusalDetail;
pub use crate::queries::unfilled::{Obstacle, Unfilled};

impl Exchange {
    /// Returns the number of the market with this name, closed or not.
    pub fn market_id(&self, name: &MarketName) -> Option<MarketId> {
        self.market_ids.get(name).copied()
    }

    /// Returns the number of the account with this name, if a command has named it.
    pub fn account_id(&self, name: &AccountName) -> Option<AccountId> {
        self.account_ids.get(name).copied()
    }

    /// Returns the open bids of an account and the nodes that they want.
    pub fn account_usage(&self, account: AccountId) -> AccountUsage {
        self.accounts[account.0 as usize].open
    }

    /// Returns the number of units that an account offers in all markets together.
    pub fn units_offered(&self, account: &AccountName) -> u64 {
        let Some(account) = self.account_id(account) else { return 0 };
        let offers = self.markets.iter().filter_map(|market| market.offers.get(&account));
        offers.map(Offer::capacity).sum()
    }

    /// Returns true if the account has used this key (R16).
    pub fn knows_key(&self, account: &AccountName, key: &ClientKey) -> bool {
        let account = self.account_id(account);
        account.is_some_and(|account| self.accounts[account.0 as usize].keys.knows(key))
    }

    /// Returns the state of a market (R18).
    pub fn market_state(&self, market: MarketId) -> MarketState {
        self.market(market).state
    }

    /// Returns true if the market takes new bids and offers (R18).
    pub fn is_open(&self, market: MarketId) -> bool {
        self.market_state(market) == MarketState::Open
    }

    /// Returns the rules of a market that are in force.
    pub fn market_rules(&self, market: MarketId) -> &MarketRules {
        &self.market(market).rules
    }

    /// Returns the five numbers and the supply of a market, as last settled (R9).
    pub fn market_numbers(&self, market: MarketId) -> (Numbers, Supply) {
        let market = self.market(market);
        (market.numbers.unwrap_or_default(), market.supply())
    }

    /// Returns a bid, also one that has ended; None if no bid has this number.
    pub fn view_bid(&self, id: BidId) -> Option<BidView> {
        let record = self.bids.record(id)?;
        let (terms, bid) = (record.terms(), record.active());
        let nodes = |list: fn(&Bid) -> &NodeList| bid.into_iter().flat_map(|bid| list(bid).iter()).collect();
        Some(BidView {
            bid: id,
            tenant: terms.tenant,
            scope: self.scopes.scope(terms.scope).clone(),
            ceiling: terms.ceiling,
            bid_seq: terms.seq,
            min_nodes: terms.min_nodes,
            max_nodes: terms.max_nodes,
            expire_at: terms.expiry.get(),
            closes_on_preemption: terms.closes,
            searching: record.searching(),
            unmet: record.unmet(),
            live: nodes(|bid| &bid.live),
            under_notice: nodes(|bid| &bid.notices),
            claims: nodes(|bid| &bid.claims),
            ceiling_locked_until: bid
                .filter(|bid| bid.searching && bid.ceiling_locked_until > self.now)
                .map(|bid| bid.ceiling_locked_until),
        })
    }

    /// Returns true if a bid is closed and holds no node, or if no bid has this number.
    pub fn is_bid_over(&self, id: BidId) -> bool {
        let is_over = |bid: BidView| !bid.searching && bid.live.is_empty() && bid.under_notice.is_empty();
        self.view_bid(id).is_none_or(is_over)
    }

    /// Returns the ceiling of a bid, also of one that has ended; None if no bid has this number.
    pub fn bid_ceiling(&self, id: BidId) -> Option<Price> {
        Some(self.bids.record(id)?.terms().ceiling)
    }

    /// Returns why a bid lacks nodes. None if it lacks none.
    pub fn unfilled(&self, id: BidId) -> Option<Unfilled> {
        let bid = self.bids.get(id).filter(|bid| bid.unmet() > 0)?;
        Some(self.why_unfilled(id, bid))
    }

    /// Returns the bids of an account that search or hold anything, with some that have ended, in
    /// descending order from the highest number below `before`.
    pub fn bids_of(&self, account: AccountId, before: Option<BidId>) -> impl Iterator<Item = BidId> {
        let bids = &self.accounts[account.0 as usize].bids;
        let end = before.map_or(bids.len(), |before| bids.partition_point(|bid| *bid < before));
        bids[..end].iter().rev().copied()
    }

    /// Returns all allocations that have not ended, also those under notice, by number.
    pub fn held_allocations(&self) -> Vec<AllocationId> {
        self.allocations.iter().map(|(id, _)| id).collect()
    }

    /// Returns an allocation; None if it has ended or never existed.
    pub fn view_allocation(&self, id: AllocationId) -> Option<AllocationView> {
        let allocation = self.allocations.get(id)?;
        Some(AllocationView {
            allocation: id,
            bid: allocation.bid,
            tenant: allocation.tenant,
            unit: allocation.unit,
            state: allocation.ready.map_or(AllocationState::Starting, |_| AllocationState::Active),
            ready_at: allocation.ready,
            start_by: allocation.start_by,
            protected_until: allocation.protected_until,
            price: self.billed(allocation),
            ceiling: self.bid(allocation.bid).terms.ceiling,
            accrued: self.accrued(allocation, self.now).round(),
            notice: allocation.notice.map(|notice| NoticeView {
                reason: notice.reason,
                deadline: notice.deadline,
                claimed: notice.claim.is_some(),
                price_to_stay: self.price_to_stay(id, allocation),
            }),
        })
    }

    /// Returns the cost of all running nodes up to now, by number.
    pub fn accruals(&self) -> Vec<Accrual> {
        let running = self.allocations.iter().filter(|(_, a)| a.running.is_some());
        let accrual = |(id, allocation): (AllocationId, &Allocation)| Accrual {
            allocation: id,
            bill: self.accrued(allocation, self.now),
            fee_bps: self.market(allocation.unit.market).rules.fee_bps,
        };
        running.map(accrual).collect()
    }

    /// Returns true if a node is running.
    pub fn has_running_nodes(&self) -> bool {
        self.allocations.iter().any(|(_, a)| a.running.is_some())
    }

    /// Returns the unrounded cost of a node up to an instant that no command has reached yet, if nothing happens
    /// until then. Zero before the node is ready.
    pub fn bill_at(&self, id: AllocationId, at: Micros) -> Option<Bill> {
        Some(self.accrued(self.allocations.get(id)?, at.max(self.now)))
    }

    /// Returns an offer; None if the account has no unit in the market, leaving units included.
    pub fn view_offer(&self, market: MarketId, provider: AccountId) -> Option<OfferView> {
        let offer = self.market(market).offers.get(&provider).filter(|offer| !offer.units.is_empty())?;
        Some(OfferView {
            market,
            provider,
            capacity: offer.capacity(),
            reserve: offer.reserve,
            free: offer.free.len() as u64,
            allocated: offer.allocated(),
            notice: offer.notices,
            resting: offer.resting.len() as u64,
            leaving: offer.leaving,
        })
    }

    /// Returns the units of an offer whose numbers are above `after`, by number.
    pub fn view_units(
        &self,
        market: MarketId,
        provider: AccountId,
        after: u64,
    ) -> impl Iterator<Item = UnitView> {
        let offer = self.market(market).offers.get(&provider);
        let units = offer.into_iter().flat_map(move |offer| {
            offer.units.iter_after(after).map(move |(number, unit)| (offer, number, unit))
        });
        units.map(move |(offer, number, unit)| UnitView {
            unit: UnitId { market, provider, number },
            leaving: unit.leaving,
            resting: offer.resting.contains(number),
            allocation: unit.allocation,
            under_notice: unit.allocation.is_some_and(|id| self.allocation(id).notice.is_some()),
        })
    }

    /// Returns the lowest ceiling with which R4 does not allow the challenger, or which pays a raised
    /// reserve. None if the unit leaves, if the bid has no room for the node, or if its account lacks funds for it.
    fn price_to_stay(&self, id: AllocationId, allocation: &Allocation) -> Option<Price> {
        let bid = self.bid(allocation.bid);
        let notice = allocation.notice?;
        let offer = self.offer(allocation.unit);
        let room = notice.returns || bid.live.len() < bid.terms.max_nodes;
        if !room || offer.units[allocation.unit.number].leaving || !self.covers_return(id) {
            return None;
        }
        let markets = self.admitting_markets(allocation.bid);
        let rules = || markets.clone().map(|market| &self.market(market).rules);
        let tick = rules().map(|rules| rules.tick).fold(1, lcm);
        let rules_here = &self.market(allocation.unit.market).rules;
        let challenger = notice.claim.map_or(0, |claim| self.bid(claim.by.bid).terms.ceiling.0);
        let holds = |ceiling: u64| rules_here.needed(Price(ceiling)).0 > challenger;
        let highest = challenger.div_ceil(tick);
        let steps = partition_point(highest, |step| !holds(step * tick));
        let ceiling = Price(steps * tick).max(offer.reserve.round_up(tick)?).max(Price(tick));
        rules().all(|rules| ceiling.0 <= rules.ceiling_max).then_some(ceiling)
    }
}

/// Returns the first number of `0..=end` for which `before` is false. `before` must be true for all
/// smaller ones.
fn partition_point(end: u64, before: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
