//! Converts events of the wire format into events of the core, with numbers of its own for markets and accounts.

use crate::venue::VenueError;
use kubebid_client::v1;
use kubebid_client::v1::event::Kind;
use kubebid_core::event::{
    Bidder, ChargeReason, ClaimCause, CloseReason, DropCause, EndReason, Node, NoticeReason, Scope,
};
use kubebid_core::numbers::Numbers;
use kubebid_core::units::{
    AccountId, AccountName, AllocationId, BidId, InstanceType, MarketId, MarketName, Micros, Names, Seq,
    UnitId, UnitName,
};
use kubebid_core::{Amount, Event, Fact, Funds, Price, Reject};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Translation {
    names: Names,
    accounts: BTreeMap<String, AccountId>,
    markets: BTreeMap<String, MarketId>,
    /// Nodes that have not ended: an event about a claim names the allocation alone.
    nodes: BTreeMap<AllocationId, Node>,
    bidders: BTreeMap<BidId, AccountId>,
}

impl Translation {
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// Converts an event; `None` for a kind that this version does not know.
    pub(super) fn event(&mut self, event: v1::Event) -> Result<Option<Event>, VenueError> {
        let (seq, index, at) = (event.seq, event.index, Micros(event.at_us));
        let Some(kind) = event.kind else { return Ok(None) };
        let fact = self.fact(kind);
        let fact =
            fact.ok_or_else(|| VenueError(format!("event {seq}.{index} lacks what an administrator sees")))?;
        Ok(Some(Event { at, fact }))
    }

    fn fact(&mut self, kind: Kind) -> Option<Fact> {
        Some(match kind {
            Kind::MarketOpened(e) => Fact::MarketOpened { market: self.market(&e.market) },
            Kind::RulesChanged(e) => Fact::RulesChanged { market: self.market(&e.market) },
            Kind::MarketClosing(e) => Fact::MarketClosing { market: self.market(&e.market) },
            Kind::MarketEnded(e) => Fact::MarketEnded { market: self.market(&e.market) },
            Kind::OfferPut(e) => Fact::OfferPut {
                provider: self.account(&e.provider),
                market: self.market(&e.market),
                capacity: e.capacity.into(),
                reserve: Price(e.reserve_micros),
            },
            Kind::UnitAdded(e) => {
                Fact::UnitAdded { unit: self.unit(&e.unit), reserve: Price(e.reserve_micros) }
            }
            Kind::UnitLeaving(e) => Fact::UnitLeaving { unit: self.unit(&e.unit) },
            Kind::UnitBack(e) => Fact::UnitBack { unit: self.unit(&e.unit) },
            Kind::UnitResting(e) => Fact::UnitResting { unit: self.unit(&e.unit) },
            Kind::UnitResumed(e) => Fact::UnitResumed { unit: self.unit(&e.unit) },
            Kind::UnitRemoved(e) => Fact::UnitRemoved { unit: self.unit(&e.unit) },
            Kind::BidPlaced(e) => {
                let bidder = Bidder { bid: BidId(e.bid), tenant: self.account(&e.tenant) };
                self.bidders.insert(bidder.bid, bidder.tenant);
                let scope = match &e.instance_type {
                    Some(kind) => Scope::InstanceType(InstanceType::new(kind)),
                    None => Scope::Markets(e.markets.iter().map(|name| self.market(name)).collect()),
                };
                let (min_nodes, max_nodes) = (e.min_nodes, e.max_nodes);
                Fact::BidPlaced { bidder, scope, ceiling: Price(e.ceiling_micros), min_nodes, max_nodes }
            }
            Kind::BidAmended(e) => Fact::BidAmended {
                bidder: self.bidder(e.bid)?,
                ceiling: Price(e.ceiling_micros),
                max_nodes: e.max_nodes,
                bid_seq: Seq(e.bid_seq),
            },
            Kind::BidClosed(e) => {
                let reason = word(CloseReason::ALL, CloseReason::word, e.reason().as_str_name())?;
                Fact::BidClosed { bidder: self.bidder(e.bid)?, max_nodes: e.max_nodes, reason }
            }
            Kind::Allocated(e) => {
                let (allocation, bid) = (AllocationId(e.allocation), BidId(e.bid?));
                let node =
                    Node { allocation, bid, tenant: self.account(&e.tenant?), unit: self.unit(&e.unit) };
                self.nodes.insert(allocation, node);
                Fact::Allocated { node }
            }
            Kind::Ready(e) => Fact::Ready { node: self.node(e.allocation)? },
            Kind::NoticeStarted(e) => {
                let reason = word(NoticeReason::ALL, NoticeReason::word, e.reason().as_str_name())?;
                let (node, deadline) = (self.node(e.allocation)?, Micros(e.deadline_us));
                Fact::NoticeStarted { node, deadline, max_nodes: e.max_nodes?, reason }
            }
            Kind::NoticeRescinded(e) => {
                Fact::NoticeRescinded { node: self.node(e.allocation)?, max_nodes: e.max_nodes? }
            }
            Kind::Claimed(e) => {
                let cause = word(ClaimCause::ALL, ClaimCause::word, e.cause().as_str_name())?;
                let was = match e.was {
                    Some(bid) => Some(self.bidder(bid)?),
                    None => None,
                };
                Fact::Claimed { node: self.node(e.allocation?)?, by: self.bidder(e.bid?)?, was, cause }
            }
            Kind::ClaimDropped(e) => {
                let cause = word(DropCause::ALL, DropCause::word, e.cause().as_str_name())?;
                Fact::ClaimDropped { node: self.node(e.allocation?)?, by: self.bidder(e.bid?)?, cause }
            }
            Kind::Ended(e) => {
                let reason = word(EndReason::ALL, EndReason::word, e.reason().as_str_name())?;
                let node = self.node(e.allocation)?;
                Fact::Ended { node, max_nodes: e.max_nodes?, reason }
            }
            Kind::Charged(e) => {
                let reason = word(ChargeReason::ALL, ChargeReason::word, e.reason().as_str_name())?;
                let (debit, fee) = (Amount(e.debit_micros.into()), Amount(e.fee_micros.into()));
                let tenant = self.account(&e.tenant?);
                Fact::Charged { node: self.node(e.allocation?)?, tenant, debit, fee, reason }
            }
            Kind::PriceChanged(e) => {
                let numbers = e.numbers?;
                let numbers = Numbers {
                    market_price: Price(numbers.market_price_micros),
                    entry_price: numbers.entry_price_micros.map(Price),
                    floor: numbers.floor_micros.map(Price),
                    lowest_accepted: numbers.lowest_accepted_micros.map(Price),
                    highest_losing: Price(numbers.highest_losing_micros),
                };
                Fact::PriceChanged { market: self.market(&e.market), numbers }
            }
            Kind::NoticeMoved(e) => {
                Fact::NoticeMoved { node: self.node(e.allocation)?, deadline: Micros(e.deadline_us) }
            }
            Kind::Funded(e) => {
                Fact::Funded { account: self.account(&e.account), funds: e.funds_micros.map(funds) }
            }
            Kind::BudgetSet(e) => Fact::BudgetSet {
                account: self.account(&e.account),
                monthly: e.monthly_micros,
                roll_over: e.roll_over,
                funds: e.funds_micros.map(funds),
            },
            Kind::BudgetRenewed(e) => {
                Fact::BudgetRenewed { account: self.account(&e.account), funds: funds(e.funds_micros) }
            }
            Kind::RenewalSet(e) => Fact::RenewalSet { renewal: Micros(e.renewal_us) },
            Kind::Rejected(e) => {
                Fact::Rejected { reason: *Reject::ALL.iter().find(|reject| reject.code() == e.reason)? }
            }
            Kind::Repeated(e) => Fact::Repeated { first: Seq(e.first_seq) },
        })
    }

    fn account(&mut self, name: &str) -> AccountId {
        if let Some(id) = self.accounts.get(name) {
            return *id;
        }
        let id = AccountId(self.names.accounts.len() as u32);
        self.names.accounts.push(AccountName::new(name));
        self.accounts.insert(name.to_owned(), id);
        id
    }

    fn market(&mut self, name: &str) -> MarketId {
        if let Some(id) = self.markets.get(name) {
            return *id;
        }
        let id = MarketId(self.names.markets.len() as u32);
        self.names.markets.push(MarketName::new(name));
        self.markets.insert(name.to_owned(), id);
        id
    }

    fn unit(&mut self, name: &str) -> UnitId {
        let UnitName { market, provider, number } = UnitName::parse(name);
        UnitId { market: self.market(market.as_str()), provider: self.account(provider.as_str()), number }
    }

    fn node(&self, allocation: u64) -> Option<Node> {
        self.nodes.get(&AllocationId(allocation)).copied()
    }

    fn bidder(&self, bid: u64) -> Option<Bidder> {
        let bid = BidId(bid);
        Some(Bidder { bid, tenant: *self.bidders.get(&bid)? })
    }
}

fn funds(micros: i64) -> Funds {
    Funds(micros.into())
}

/// Returns the value with this name; `None` for one that this version does not know.
fn word<T: Copy>(all: &[T], word: fn(T) -> &'static str, name: &str) -> Option<T> {
    all.iter().find(|value| word(**value) == name).copied()
}
