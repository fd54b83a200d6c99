//! The ledger of a run: what each side used, paid and lost, computed from the events alone.

use super::book::Need;
use kubebid_core::event::{DropCause, EndReason, Node};
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, Micros};
use kubebid_core::{Event, Fact, Price};
use std::collections::{BTreeMap, BTreeSet};

/// The cost of a notice to a truthful tenant, in node time: it saves its work and starts again elsewhere.
pub const RESTART: Micros = Micros::seconds(300);

const HOUR: f64 = Micros::HOUR.0 as f64;

/// The result of one run. Money is in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Node-hours that the agent needed, or could have sold.
    pub node_hours: f64,
    /// Value of the agent's needed node time, less restarts, payments and costs, plus income.
    pub payoff: f64,
    /// Needed node-hours that the agent had.
    pub used: f64,
    /// Dollars that the agent paid.
    pub paid: f64,
    /// Value of the other tenants' node time, less what notices cost them.
    pub others_value: f64,
    /// Dollars that the other tenants paid.
    pub others_paid: f64,
    /// Income of the other providers, less their reserves.
    pub providers: f64,
    /// Notices to other tenants.
    pub notices: f64,
    /// Notices to the agent.
    pub own_notices: f64,
    /// Claims of other tenants that were dropped because the holder raised its ceiling.
    pub broken_claims: f64,
    /// Commands of the agent that were accepted.
    pub commands: f64,
}

impl Outcome {
    /// Returns value less payments of the other tenants.
    pub fn others(&self) -> f64 {
        self.others_value - self.others_paid
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    bid: BidId,
    ours: bool,
    /// The unit is the agent's.
    sold: bool,
    ready: Option<Micros>,
    noticed: bool,
    reserve: Price,
}

#[derive(Clone, Copy, Debug)]
struct TheirBid {
    value: Price,
    wanted: u32,
    ready: u32,
    since: Micros,
}

/// The account of what each side used, paid and lost.
#[derive(Debug)]
pub(super) struct Ledger {
    ours: BTreeSet<AccountId>,
    need: Need,
    cost: Price,
    ready: u32,
    since: Micros,
    held: BTreeMap<AllocationId, Held>,
    bids: BTreeMap<BidId, TheirBid>,
    reserves: BTreeMap<(MarketId, AccountId), Price>,
    outcome: Outcome,
    income: f64,
    spent: f64,
    value: f64,
}

impl Ledger {
    pub(super) fn new(need: Need, cost: Price, node_hours: f64) -> Ledger {
        Ledger {
            ours: BTreeSet::new(),
            need,
            cost,
            ready: 0,
            since: Micros(0),
            held: BTreeMap::new(),
            bids: BTreeMap::new(),
            reserves: BTreeMap::new(),
            outcome: Outcome { node_hours, ..Outcome::default() },
            income: 0.0,
            spent: 0.0,
            value: 0.0,
        }
    }

    /// Sets the account as one of the agent's.
    pub(super) fn own(&mut self, account: AccountId) {
        self.ours.insert(account);
    }

    pub(super) fn is_ours(&self, account: AccountId) -> bool {
        self.ours.contains(&account)
    }

    pub(super) fn command_accepted(&mut self) {
        self.outcome.commands += 1.0;
    }

    /// Returns the number of the agent's nodes that are ready.
    pub(super) fn ready(&self) -> u32 {
        self.ready
    }

    pub(super) fn on_event(&mut self, Event { at, fact }: &Event) {
        match fact {
            Fact::OfferPut { provider, market, reserve, .. } => {
                self.reserves.insert((*market, *provider), *reserve);
            }
            Fact::BidPlaced { bidder, ceiling, max_nodes, .. } if !self.is_ours(bidder.tenant) => {
                let bid = TheirBid { value: *ceiling, wanted: *max_nodes, ready: 0, since: *at };
                self.bids.insert(bidder.bid, bid);
            }
            Fact::Allocated { node } => self.allocated(*node),
            Fact::Ready { node } => {
                let Some(held) = self.held.get_mut(&node.allocation) else { return };
                held.ready = Some(*at);
                let held = *held;
                self.count(*at, held, 1);
            }
            Fact::NoticeStarted { node, .. } => self.noticed(node.allocation),
            Fact::NoticeRescinded { node, .. } => {
                if let Some(held) = self.held.get_mut(&node.allocation) {
                    held.noticed = false;
                }
            }
            Fact::Ended { node, reason, .. } => self.ended(*at, node.allocation, *reason),
            Fact::ClaimDropped { by, cause: DropCause::HolderRaised, .. } if !self.is_ours(by.tenant) => {
                self.outcome.broken_claims += 1.0;
            }
            Fact::Charged { node, tenant, debit, fee, reason: _ } => {
                self.charged(*tenant, node.unit.provider, debit.0 as f64 / 1e6, fee.0 as f64 / 1e6);
            }
            Fact::MarketOpened { .. }
            | Fact::RulesChanged { .. }
            | Fact::MarketClosing { .. }
            | Fact::MarketEnded { .. }
            | Fact::UnitAdded { .. }
            | Fact::UnitLeaving { .. }
            | Fact::UnitBack { .. }
            | Fact::UnitResting { .. }
            | Fact::UnitResumed { .. }
            | Fact::UnitRemoved { .. }
            | Fact::BidPlaced { .. }
            | Fact::BidAmended { .. }
            | Fact::BidClosed { .. }
            | Fact::Claimed { .. }
            | Fact::ClaimDropped { .. }
            | Fact::PriceChanged { .. }
            | Fact::NoticeMoved { .. }
            | Fact::Funded { .. }
            | Fact::BudgetSet { .. }
            | Fact::BudgetRenewed { .. }
            | Fact::RenewalSet { .. }
            | Fact::Rejected { .. }
            | Fact::Repeated { .. } => {}
        }
    }

    /// Charges an amount: for an event, or for a node that is held at the end.
    pub(super) fn charged(&mut self, tenant: AccountId, provider: AccountId, debit: f64, fee: f64) {
        if self.is_ours(tenant) {
            self.spent += debit;
        } else {
            self.outcome.others_paid += debit;
        }
        if self.is_ours(provider) {
            self.income += debit - fee;
        } else {
            self.outcome.providers += debit - fee;
        }
    }

    fn allocated(&mut self, node: Node) {
        let reserve = self.reserves.get(&(node.unit.market, node.unit.provider)).copied();
        let held = Held {
            bid: node.bid,
            ours: self.is_ours(node.tenant),
            sold: self.is_ours(node.unit.provider),
            ready: None,
            noticed: false,
            reserve: reserve.unwrap_or(Price::ZERO),
        };
        self.held.insert(node.allocation, held);
    }

    fn noticed(&mut self, allocation: AllocationId) {
        let Some(held) = self.held.get_mut(&allocation) else { return };
        held.noticed = true;
        let held = *held;
        if held.ours {
            self.outcome.own_notices += 1.0;
        } else {
            self.outcome.notices += 1.0;
            if held.ready.is_some() {
                self.restart(held);
            }
        }
    }

    /// Takes back what a restart costs.
    fn restart(&mut self, held: Held) {
        if held.ours {
            self.value -= dollars(self.need.value, RESTART.0 as f64);
        } else if let Some(bid) = self.bids.get(&held.bid) {
            self.outcome.others_value -= dollars(bid.value, RESTART.0 as f64);
        }
    }

    fn ended(&mut self, at: Micros, allocation: AllocationId, reason: EndReason) {
        let Some(held) = self.held.remove(&allocation) else { return };
        let Some(ready) = held.ready else { return };
        self.count(at, held, -1);
        // A truthful tenant has paid for its restart at the notice already. The agent pays for it when it leaves a node
        // under notice, whatever ends the node.
        let by_tenant = reason == EndReason::Released;
        let restarts = if held.ours { held.noticed || !by_tenant } else { !held.noticed && !by_tenant };
        if restarts {
            self.restart(held);
        }
        self.ran(held, at.since(ready));
    }

    /// Counts what a provider spends on a node that ran.
    fn ran(&mut self, held: Held, time: Micros) {
        if held.sold {
            self.income -= dollars(self.cost, time.0 as f64);
        } else {
            self.outcome.providers -= dollars(held.reserve, time.0 as f64);
        }
    }

    fn count(&mut self, at: Micros, held: Held, more: i32) {
        if held.ours {
            self.pass(at);
            self.ready = self.ready.saturating_add_signed(more);
        } else if let Some(bid) = self.bids.get_mut(&held.bid) {
            self.outcome.others_value += bid.pass(at);
            bid.ready = bid.ready.saturating_add_signed(more);
        }
    }

    /// Counts the agent's use up to `at`.
    fn pass(&mut self, at: Micros) {
        let (from, to) = (self.since.max(self.need.from), at.min(self.need.to));
        let used = if self.ready < self.need.least { 0 } else { self.ready.min(self.need.nodes) };
        let time = to.since(from).0 as f64 * f64::from(used);
        self.outcome.used += time / HOUR;
        self.value += dollars(self.need.value, time);
        self.since = at;
    }

    /// Returns the outcome at the end of the run.
    pub(super) fn close(mut self, at: Micros) -> Outcome {
        self.pass(at);
        for bid in self.bids.values_mut() {
            self.outcome.others_value += bid.pass(at);
        }
        for held in std::mem::take(&mut self.held).into_values() {
            if let Some(ready) = held.ready {
                self.ran(held, at.since(ready));
            }
        }
        let paid = self.spent;
        Outcome { payoff: self.value + self.income - self.spent, paid, ..self.outcome }
    }
}

impl TheirBid {
    /// Returns the value of the time since it was last counted.
    fn pass(&mut self, at: Micros) -> f64 {
        let time = at.since(self.since).0 as f64 * f64::from(self.ready.min(self.wanted));
        self.since = at;
        dollars(self.value, time)
    }
}

/// Returns what some node-microseconds at a price are worth, in dollars.
fn dollars(price: Price, node_micros: f64) -> f64 {
    price.0 as f64 / 1e6 * node_micros / HOUR
}
