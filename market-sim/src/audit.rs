//! The auditor: keeps accounts of its own from events alone, and disagrees aloud.
//!
//! It knows what every market was told its rules are, hears every event in order, and asks of each
//! whether it can be so: of units and offers, of bids, of nodes, notices and claims, of every bill. It
//! shares no code with the exchange beyond the types of events.

mod bids;
mod lie;
mod market;
mod money;
mod nodes;
mod supply;

pub use lie::Lie;

use bids::Bids;
use kubebid_core::event::{Bidder, Fact};
use kubebid_core::picture::Supply;
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, Micros, UnitId};
use kubebid_core::{Amount, Event, MarketRules, Price};
pub use market::Market;
use money::Owed;
use nodes::Nodes;
use std::fmt;
use supply::Offers;

/// An event that cannot be so, and why.
#[derive(Debug, PartialEq, thiserror::Error)]
pub struct Disagreement {
    pub lie: Lie,
    /// None where it is the state in which a command leaves the market.
    pub event: Option<Event>,
    pub heard: u64,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.event {
            Some(event) => {
                write!(f, "the auditor disagrees with event {}: {}: {event:?}", self.heard, self.lie)
            }
            None => write!(f, "the auditor disagrees after event {}: {}", self.heard, self.lie),
        }
    }
}

/// Sums over all that was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub debits: Amount,
    pub fees: Amount,
    pub allocations: u64,
    pub notices: u64,
    pub rescinded: u64,
    /// Bills that were known to the micro-dollar beforehand, and those known within bounds.
    pub bills_exact: u64,
    pub bills_bounded: u64,
}

#[derive(Clone, Copy, Debug)]
struct Promised {
    market: MarketId,
    provider: AccountId,
    capacity: u64,
}

#[derive(Debug, Default)]
pub struct Auditor {
    now: Micros,
    heard: u64,
    markets: Vec<Market>,
    offers: Offers,
    bids: Bids,
    nodes: Nodes,
    owed: Option<Owed>,
    /// A notice by displacement has just begun: its claim comes next.
    displaced: Option<AllocationId>,
    /// Units on their way from a notice to the claim on it.
    handed: Vec<(UnitId, BidId)>,
    /// A bid that gave up a claim for a node: it gets one, also where its search has ended.
    rescued: Option<BidId>,
    /// An offer that was put, and how many units it then has.
    promised: Option<Promised>,
    sums: Sums,
}

impl Auditor {
    pub fn new() -> Auditor {
        Auditor::default()
    }

    /// What events do not say: the rules that a market will have once it is opened or changed.
    pub fn told(&mut self, market: MarketId, rules: MarketRules) {
        let index = market.0 as usize;
        if self.markets.len() <= index {
            self.markets.resize_with(index + 1, Market::default);
        }
        self.markets[index].rules = rules;
    }

    pub fn sums(&self) -> Sums {
        self.sums
    }

    pub fn market(&self, market: MarketId) -> &Market {
        &self.markets[market.0 as usize]
    }

    /// Nothing that is open is left out: bids, nodes.
    pub fn open_bids(&self) -> usize {
        self.bids.len()
    }

    /// All events of one command, in order.
    pub fn hear(&mut self, events: &[Event]) -> Result<(), Box<Disagreement>> {
        for event in events {
            self.heard += 1;
            let heard = self.heard;
            self.judge(event)
                .map_err(|lie| Box::new(Disagreement { lie, event: Some(event.clone()), heard }))?;
        }
        self.at_rest().map_err(|lie| Box::new(Disagreement { lie, event: None, heard: self.heard }))
    }

    /// The venue's own count of a market's units is ours.
    pub fn compare(&self, market: MarketId, theirs: Supply) -> Result<(), Box<Disagreement>> {
        let ours = self.market(market).supply;
        let lie = Lie::Count { ours, theirs };
        if ours == theirs {
            Ok(())
        } else {
            Err(Box::new(Disagreement { lie, event: None, heard: self.heard }))
        }
    }

    /// Once a command is settled, nothing is owed, promised or on its way.
    fn at_rest(&mut self) -> Result<(), Lie> {
        if let Some((unit, bid)) = self.handed.pop() {
            return Err(Lie::ClaimNotHonoured { unit, bid });
        }
        if let Some(node) = self.displaced.take() {
            return Err(Lie::DisplacedForNobody(node));
        }
        if let Some(bid) = self.rescued.take() {
            self.bids.forget(bid);
        }
        self.settle_owed()?;
        let Some(Promised { market, provider, capacity }) = self.promised.take() else { return Ok(()) };
        self.offers.has(market, provider, capacity)
    }

    fn judge(&mut self, event: &Event) -> Result<(), Lie> {
        if event.at < self.now {
            return Err(Lie::TimeRunsBack { now: self.now });
        }
        self.now = event.at;
        self.nodes.none_overdue(self.now)?;
        if !matches!(event.fact, Fact::Charged { .. }) {
            self.settle_owed()?;
        }
        if let Some(node) = self.displaced.take()
            && !matches!(&event.fact, Fact::Claimed { node: claimed, .. } if claimed.allocation == node)
        {
            return Err(Lie::DisplacedForNobody(node));
        }
        self.account(&event.fact)
    }

    fn account(&mut self, fact: &Fact) -> Result<(), Lie> {
        match fact {
            Fact::MarketOpened { market } => {
                let market = self.markets.get_mut(market.0 as usize).ok_or(Lie::UnknownMarket)?;
                market.open()
            }
            Fact::OfferPut { provider, market, capacity, reserve } => {
                self.known(*market)?;
                self.promised = Some(Promised { market: *market, provider: *provider, capacity: *capacity });
                self.offer_put(*market, *provider, *reserve)
            }
            Fact::UnitAdded { unit, reserve } => {
                self.known(unit.market)?;
                self.offers.add(*unit, *reserve)?;
                self.markets[unit.market.0 as usize].unit_added();
                Ok(())
            }
            Fact::UnitLeaving { unit } => self.offers.leaving(*unit),
            Fact::UnitBack { unit } => self.offers.back(*unit),
            Fact::UnitRemoved { unit } => {
                self.offers.remove(*unit)?;
                self.markets[unit.market.0 as usize].unit_removed();
                Ok(())
            }
            Fact::BidPlaced { bidder, scope, ceiling, min_nodes, max_nodes } => {
                self.bids.place(*bidder, scope, *ceiling, (*min_nodes, *max_nodes))?;
                self.recount(bidder.bid);
                Ok(())
            }
            Fact::BidAmended { bidder, ceiling, max_nodes, .. } => {
                self.amended(*bidder, *ceiling, *max_nodes)
            }
            Fact::BidClosed { bidder, max_nodes, .. } => self.closed(*bidder, *max_nodes),
            Fact::Allocated { node } => self.allocated(node),
            Fact::Ready { node } => self.ready(node),
            Fact::NoticeStarted { node, deadline, max_nodes, reason } => {
                self.notice_started(node, *deadline, *max_nodes, *reason)
            }
            Fact::NoticeRescinded { node, max_nodes } => self.notice_rescinded(node, *max_nodes),
            Fact::Claimed { node, by, was, cause } => self.claimed(node, *by, *was, *cause),
            Fact::ClaimDropped { node, by, cause } => self.claim_dropped(node, *by, *cause),
            Fact::Ended { node, max_nodes, reason } => self.ended(node, *max_nodes, *reason),
            Fact::Charged { node, tenant, debit, fee, reason } => {
                self.charged(node, *tenant, (*debit, *fee), *reason)
            }
            Fact::PriceChanged { market, numbers } => {
                self.known(*market)?;
                let floor = self.offers.floor(*market);
                self.markets[market.0 as usize].price(self.now, *numbers, floor)
            }
            Fact::RulesChanged { market } => self.known(*market),
            Fact::Rejected { .. } | Fact::Repeated { .. } => Ok(()),
        }
    }

    fn known(&self, market: MarketId) -> Result<(), Lie> {
        self.markets
            .get(market.0 as usize)
            .filter(|market| market.is_open())
            .map(|_| ())
            .ok_or(Lie::UnknownMarket)
    }

    fn amended(&mut self, bidder: Bidder, ceiling: Price, max_nodes: u32) -> Result<(), Lie> {
        let (before, bid) = self.bids.amend(bidder, ceiling, max_nodes)?;
        for node in &bid.live {
            let market = self.nodes.known(*node)?.node.unit.market;
            self.markets[market.0 as usize].live.shift(before, ceiling);
        }
        for node in &bid.claims {
            let market = self.nodes.known(*node)?.node.unit.market;
            self.markets[market.0 as usize].claims.shift(before, ceiling);
        }
        self.recount(bidder.bid);
        Ok(())
    }

    fn closed(&mut self, bidder: Bidder, max_nodes: u32) -> Result<(), Lie> {
        self.bids.close(bidder, max_nodes)?;
        self.recount(bidder.bid);
        self.bids.forget(bidder.bid);
        Ok(())
    }

    /// After any change of a bid: its unmet demand, in its markets and of its tenant.
    fn recount(&mut self, bid: BidId) {
        let now = self.now;
        if let Some(change) = self.bids.recount(bid, now) {
            for market in change.markets.iter() {
                let market = &mut self.markets[market.0 as usize];
                market.unmet = market.unmet.wrapping_add_signed(change.nodes);
            }
        }
    }
}
