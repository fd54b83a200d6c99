//! The auditor: keeps its own accounts from events alone, and reports every contradiction.
//!
//! It knows the rules of every market, reads every event in order, and checks each against its books of units, offers,
//! bids, nodes, notices and claims. It computes the prices of every tenant from the bids, nodes and reserves that it
//! knows, and from them every bill, to the micro-dollar. It shares no code with the exchange beyond the types of events.
//!
//! Prices are in force from one settlement to the next. Events do not say where one ends, but for the instant: time
//! never passes before all is settled. At one instant the things that are due are settled before the command that
//! falls to it, so the first event that only a command can bring about ends the settlement before it.

mod bids;
mod market;
mod meter;
mod money;
mod nodes;
mod supply;
mod types;
mod violation;

pub use violation::Violation;

use bids::{Bids, Change};
use kubebid_core::event::{Bidder, CloseReason, DropCause, EndReason, Fact, Scope};
use kubebid_core::numbers::Supply;
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, MarketName, Micros, UnitId};
use kubebid_core::{Amount, Event, MarketRules, Price};
pub use market::Market;
use money::{ClaimCharges, GivenUp, Owed};
use nodes::Nodes;
use std::fmt;
use supply::Offers;
use types::Types;

/// An event that contradicts the books, and the reason.
#[derive(Debug, PartialEq, thiserror::Error)]
pub struct Disagreement {
    /// The contradiction.
    pub violation: Violation,
    /// None where it is the state in which a command leaves the market.
    pub event: Option<Event>,
    /// Number of events so far.
    pub events_seen: u64,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.event {
            Some(event) => {
                write!(
                    f,
                    "the auditor disagrees with event {}: {}: {event:?}",
                    self.events_seen, self.violation
                )
            }
            None => write!(f, "the auditor disagrees after event {}: {}", self.events_seen, self.violation),
        }
    }
}

/// Sums over all events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Debits of tenants.
    pub debits: Amount,
    /// Fees.
    pub fees: Amount,
    /// Allocations.
    pub allocations: u64,
    /// Notices.
    pub notices: u64,
    /// Notices that were taken back.
    pub rescinded: u64,
    /// Bills, each of which was known to the micro-dollar beforehand.
    pub bills_exact: u64,
}

#[derive(Clone, Copy, Debug)]
struct Promised {
    market: MarketId,
    provider: AccountId,
    capacity: u64,
}

/// An auditor with its books.
#[derive(Debug, Default)]
pub struct Auditor {
    now: Micros,
    events_seen: u64,
    markets: Vec<Market>,
    types: Types,
    offers: Offers,
    bids: Bids,
    nodes: Nodes,
    owed: Option<Owed>,
    claim_charges: ClaimCharges,
    /// The command at hand has begun: what was due before it is settled.
    in_command: bool,
    /// The bid that the command at hand amends, and its ceiling before.
    amended: Option<(BidId, Price)>,
    /// A notice by displacement has just begun: its claim comes next.
    displaced: Option<AllocationId>,
    /// Units on their way from a notice to the claim on it.
    handed: Vec<(UnitId, BidId)>,
    /// A bid that gave up a claim for a node: it gets one, also where its search has ended.
    rescued: Option<BidId>,
    /// Claims that were given up for a node that comes next.
    given_up: Vec<GivenUp>,
    /// Units whose node was not ready in time: they rest or are removed next.
    timed_out: Vec<UnitId>,
    /// An offer that was put, and how many units it then has.
    promised: Option<Promised>,
    sums: Sums,
}

impl Auditor {
    /// Makes an auditor that has seen no event.
    pub fn new() -> Auditor {
        Auditor::default()
    }

    /// Sets what events do not say: the name of a market, and its rules once it is opened or changed.
    pub fn set_rules(&mut self, market: MarketId, name: &MarketName, rules: MarketRules) {
        let index = market.0 as usize;
        if self.markets.len() <= index {
            self.markets.resize_with(index + 1, Market::default);
        }
        self.markets[index].announced = Some(rules);
        self.types.name(market, name);
    }

    /// Returns the sums so far.
    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// Returns the books of a market.
    pub fn market(&self, market: MarketId) -> &Market {
        &self.markets[market.0 as usize]
    }

    /// Returns the number of open bids.
    pub fn open_bids(&self) -> usize {
        self.bids.len()
    }

    /// Checks all events of one command, in order.
    pub fn on_events(&mut self, events: &[Event]) -> Result<(), Box<Disagreement>> {
        (self.in_command, self.amended) = (false, None);
        for event in events {
            self.events_seen += 1;
            let events_seen = self.events_seen;
            self.check_event(event).map_err(|violation| {
                Box::new(Disagreement { violation, event: Some(event.clone()), events_seen })
            })?;
        }
        self.at_rest().map_err(|violation| {
            Box::new(Disagreement { violation, event: None, events_seen: self.events_seen })
        })
    }

    /// Checks that the venue's own count of a market's units is that of the books.
    pub fn compare(&self, market: MarketId, theirs: Supply) -> Result<(), Box<Disagreement>> {
        let ours = self.market(market).supply;
        let violation = Violation::Count { ours, theirs };
        if ours == theirs {
            Ok(())
        } else {
            Err(Box::new(Disagreement { violation, event: None, events_seen: self.events_seen }))
        }
    }

    /// Checks that nothing is owed, promised or on its way once a command is settled.
    fn at_rest(&mut self) -> Result<(), Violation> {
        if let Some((unit, bid)) = self.handed.pop() {
            return Err(Violation::ClaimNotHonoured { unit, bid });
        }
        if let Some(node) = self.displaced.take() {
            return Err(Violation::DisplacedForNobody(node));
        }
        if let Some(bid) = self.rescued.take() {
            self.bids.forget(bid);
        }
        if !self.timed_out.is_empty() {
            return Err(Violation::NotTimedOut);
        }
        self.settle_owed()?;
        self.settle_claim_charges()?;
        self.raise_reserves(self.now)?;
        self.settle();
        let Some(Promised { market, provider, capacity }) = self.promised.take() else { return Ok(()) };
        self.offers.has(market, provider, capacity)
    }

    fn check_event(&mut self, event: &Event) -> Result<(), Violation> {
        if event.at < self.now {
            return Err(Violation::TimeRunsBack { now: self.now });
        }
        if event.at > self.now {
            self.settle_owed()?;
            self.settle_claim_charges()?;
            self.pass(event.at)?;
        }
        self.nodes.none_overdue(self.now)?;
        if !self.in_command && is_of_a_command(&event.fact) {
            self.in_command = true;
            self.settle();
        }
        if !matches!(event.fact, Fact::Charged { .. }) {
            self.settle_owed()?;
        }
        if let Some(node) = self.displaced.take()
            && !matches!(&event.fact, Fact::Claimed { node: claimed, .. } if claimed.allocation == node)
        {
            return Err(Violation::DisplacedForNobody(node));
        }
        self.account(&event.fact)
    }

    /// Goes on to an instant. Until then the prices hold that were settled; reserves that begin to count on the
    /// way change them. Those that begin to count at the instant itself are settled with what else is due then.
    fn pass(&mut self, to: Micros) -> Result<(), Violation> {
        self.settle();
        while let Some((at, _)) = self.nodes.due_raise(to) {
            self.now = self.now.max(at);
            self.raise_reserves(at)?;
            if self.now < to {
                self.settle();
            }
        }
        self.now = to;
        Ok(())
    }

    /// Raises count that were put off to `now` or before.
    fn raise_reserves(&mut self, now: Micros) -> Result<(), Violation> {
        while let Some((_, node)) = self.nodes.due_raise(now) {
            self.reserve_counts(node)?;
        }
        Ok(())
    }

    /// Puts into force the prices that follow from the books, in markets where something happened.
    fn settle(&mut self) {
        self.offers.settle();
        self.nodes.settle();
        for (id, market) in self.markets.iter_mut().enumerate().filter(|(_, market)| market.touched) {
            market.touched = false;
            let tariff = market.tariff(self.offers.offered(MarketId(id as u32)));
            market.meter.set(self.now, tariff);
        }
    }

    fn account(&mut self, fact: &Fact) -> Result<(), Violation> {
        if let Some(market) = market_of(fact)
            && let Some(market) = self.markets.get_mut(market.0 as usize)
        {
            market.touched = true;
        }
        match fact {
            Fact::MarketOpened { market } => {
                self.types.open(*market);
                let looking = self.bids.looking_in(*market, self.types.of(*market));
                let market = self.markets.get_mut(market.0 as usize).ok_or(Violation::UnknownMarket)?;
                market.forget_bids();
                for bid in looking {
                    market.count(bid.tenant, &bid.scope, bid.unmet.into(), None, bid.losing);
                }
                market.rules = market.announced.take().unwrap_or_else(|| market.rules.clone());
                market.open()
            }
            Fact::MarketClosing { market } => {
                self.known(*market)?;
                self.markets[market.0 as usize].close(self.bids.next())
            }
            Fact::MarketEnded { market } => {
                self.known(*market)?;
                self.markets[market.0 as usize].end()
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
            Fact::UnitResting { unit } => {
                let timed_out = self.timed_out.iter().position(|timed_out| timed_out == unit);
                self.timed_out.remove(timed_out.ok_or(Violation::NotTimedOut)?);
                self.offers.rest(*unit)?;
                self.markets[unit.market.0 as usize].unit_resting();
                Ok(())
            }
            Fact::UnitResumed { unit } => {
                self.offers.resume(*unit)?;
                self.markets[unit.market.0 as usize].unit_resumed();
                Ok(())
            }
            Fact::UnitRemoved { unit } => {
                self.timed_out.retain(|timed_out| timed_out != unit);
                let rested = self.offers.remove(*unit)?;
                self.markets[unit.market.0 as usize].unit_removed(rested);
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
                self.raise_reserves(self.now)?;
                let floor = self.offers.floor(*market);
                self.markets[market.0 as usize].price(*numbers, floor, self.offers.offered(*market))
            }
            Fact::RulesChanged { market } => {
                self.known(*market)?;
                let market = &mut self.markets[market.0 as usize];
                market.rules = market.announced.take().unwrap_or_else(|| market.rules.clone());
                Ok(())
            }
            Fact::NoticeMoved { node, deadline } => self.notice_moved(node, *deadline),
            Fact::Funded { .. }
            | Fact::BudgetSet { .. }
            | Fact::BudgetRenewed { .. }
            | Fact::RenewalSet { .. }
            | Fact::Rejected { .. }
            | Fact::Repeated { .. } => Ok(()),
        }
    }

    fn known(&self, market: MarketId) -> Result<(), Violation> {
        self.markets
            .get(market.0 as usize)
            .filter(|market| market.is_open())
            .map(|_| ())
            .ok_or(Violation::UnknownMarket)
    }

    fn amended(&mut self, bidder: Bidder, ceiling: Price, max_nodes: u32) -> Result<(), Violation> {
        let (before, bid) = self.bids.amend(bidder, ceiling, max_nodes)?;
        if ceiling < before && self.now < bid.locked_until {
            return Err(Violation::Locked(bid.locked_until));
        }
        self.amended = Some((bidder.bid, before));
        for node in &bid.live {
            let market = &mut self.markets[self.nodes.known(*node)?.node.unit.market.0 as usize];
            market.live.shift(before, ceiling);
            market.touched = true;
        }
        for node in &bid.claims {
            let market = &mut self.markets[self.nodes.known(*node)?.node.unit.market.0 as usize];
            market.claims.shift(before, ceiling);
            market.touched = true;
        }
        let mut locked_until = bid.locked_until;
        for node in bid.notices.iter().filter(|_| ceiling > before) {
            let market = &self.markets[self.nodes.known(*node)?.node.unit.market.0 as usize];
            locked_until = locked_until.max(self.now.after(market.rules.min_runtime));
        }
        self.bids.of(bidder)?.locked_until = locked_until;
        self.recount(bidder.bid);
        Ok(())
    }

    fn closed(&mut self, bidder: Bidder, max_nodes: u32) -> Result<(), Violation> {
        self.bids.close(bidder, max_nodes)?;
        self.recount(bidder.bid);
        self.bids.forget(bidder.bid);
        Ok(())
    }

    /// Updates the markets of a bid after a change: its unmet demand, and whether it counts as losing.
    fn recount(&mut self, bid: BidId) {
        let Some(change) = self.bids.recount(bid) else { return };
        let Change { tenant, scope, nodes, before, after } = change;
        let markets = match &scope {
            Scope::Markets(markets) => &markets[..],
            Scope::InstanceType(kind) => self.types.markets(kind),
        };
        for market in markets {
            let Some(market) = self.markets.get_mut(market.0 as usize) else { continue };
            if market.admits(bid) {
                market.touched = true;
                market.count(tenant, &scope, nodes, before, after);
            }
        }
    }
}

/// Events with which a command may begin, and no settlement.
fn is_of_a_command(fact: &Fact) -> bool {
    match fact {
        Fact::MarketOpened { .. }
        | Fact::RulesChanged { .. }
        | Fact::MarketClosing { .. }
        | Fact::OfferPut { .. }
        | Fact::UnitLeaving { .. }
        | Fact::UnitResumed { .. }
        | Fact::BidPlaced { .. }
        | Fact::BidAmended { .. }
        | Fact::Ready { .. }
        | Fact::Funded { .. }
        | Fact::BudgetSet { .. }
        | Fact::RenewalSet { .. }
        | Fact::Rejected { .. }
        | Fact::Repeated { .. } => true,
        Fact::BidClosed { reason, .. } => *reason == CloseReason::Cancelled,
        Fact::ClaimDropped { cause, .. } => {
            matches!(
                cause,
                DropCause::Cancelled
                    | DropCause::Regrouped
                    | DropCause::Lowered
                    | DropCause::Shrunk
                    | DropCause::UnitLost
            )
        }
        Fact::Ended { reason, .. } => {
            matches!(reason, EndReason::Released | EndReason::Regrouped | EndReason::UnitLost)
        }
        Fact::UnitAdded { .. }
        | Fact::UnitBack { .. }
        | Fact::UnitResting { .. }
        | Fact::UnitRemoved { .. }
        | Fact::Allocated { .. }
        | Fact::NoticeStarted { .. }
        | Fact::NoticeRescinded { .. }
        | Fact::Claimed { .. }
        | Fact::Charged { .. }
        | Fact::MarketEnded { .. }
        | Fact::NoticeMoved { .. }
        | Fact::BudgetRenewed { .. }
        | Fact::PriceChanged { .. } => false,
    }
}

/// Returns the market whose books an event changes by itself; bids change those of their markets.
fn market_of(fact: &Fact) -> Option<MarketId> {
    match fact {
        Fact::MarketOpened { market }
        | Fact::RulesChanged { market }
        | Fact::MarketClosing { market }
        | Fact::MarketEnded { market }
        | Fact::OfferPut { market, .. } => Some(*market),
        Fact::UnitAdded { unit, .. }
        | Fact::UnitLeaving { unit }
        | Fact::UnitBack { unit }
        | Fact::UnitResting { unit }
        | Fact::UnitResumed { unit }
        | Fact::UnitRemoved { unit } => Some(unit.market),
        Fact::Allocated { node }
        | Fact::NoticeStarted { node, .. }
        | Fact::NoticeRescinded { node, .. }
        | Fact::NoticeMoved { node, .. }
        | Fact::Claimed { node, .. }
        | Fact::ClaimDropped { node, .. }
        | Fact::Ended { node, .. } => Some(node.unit.market),
        Fact::BidPlaced { .. }
        | Fact::BidAmended { .. }
        | Fact::BidClosed { .. }
        | Fact::Ready { .. }
        | Fact::Charged { .. }
        | Fact::PriceChanged { .. }
        | Fact::Funded { .. }
        | Fact::BudgetSet { .. }
        | Fact::BudgetRenewed { .. }
        | Fact::RenewalSet { .. }
        | Fact::Rejected { .. }
        | Fact::Repeated { .. } => None,
    }
}
